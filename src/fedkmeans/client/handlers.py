"""Handlers with which sites answer queries, one by one or several sites of one process together.

Data of a site is accessed only through its `Site`. Sites that share a table are handled together, so
that a round of all of them is one call of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedkmeans._utils.threads import in_threads
from fedkmeans._utils.typing import ClientId, DataArray, IntArray
from fedkmeans.client.delta_state import DeltaStates
from fedkmeans.client.local_kmeans import local_clusters
from fedkmeans.client.shared_table import SharedTable
from fedkmeans.errors import FederationError
from fedkmeans.kernels.reference.lloyd import distances_to_own, double_block
from fedkmeans.kernels.sparse import SparseRows, Table
from fedkmeans.kernels.weighting import needs_inertia
from fedkmeans.protocol import messages
from fedkmeans.protocol.declaration import Query, Reply
from fedkmeans.protocol.exchange import Total
from fedkmeans.protocol.messages import LocalUpdate
from fedkmeans.protocol.statistics import ClusterStatistics

if TYPE_CHECKING:
    from fedkmeans.client.site import Site

F = TypeVar("F", bound=Callable[..., Any])
# A handler: (sites that share a table, query, n_threads) → their replies. It is called with the table's lock.
Handler = Callable[[Sequence["Site"], Any, int], list[Any]]

_HANDLERS: dict[type, Handler] = {}
_HANDLERS_OF_ONE: dict[type, Callable[[Any, Any], Any]] = {}


def handles(kind: type[Query]) -> Callable[[F], F]:
    """Register the decorated function, (sites, query, n_threads) → replies, as the handler of a query."""

    def register(handler: F) -> F:
        _HANDLERS[kind] = handler
        return handler

    return register


def handles_each(kind: type[Query]) -> Callable[[F], F]:
    """Register the decorated function, (site, query) → reply, which is called for each site separately."""

    def register(handler: F) -> F:
        def each(sites: Sequence[Site], query: Query, n_threads: int) -> list[Any]:
            return in_threads(handler, [(site, query) for site in sites], n_threads)

        _HANDLERS[kind], _HANDLERS_OF_ONE[kind] = each, handler
        return handler

    return register


def handler_of(query: Query) -> Handler:
    """Return the handler of a query."""
    if type(query) not in _HANDLERS:
        raise FederationError(
            f"No handler is known for the query {type(query).__name__}. Write one with the decorator "
            "`handles` of fedkmeans.client.handlers, and load it at every site."
        )
    return _HANDLERS[type(query)]


def answer_all(sites: Sequence[Site], query: Query, n_threads: int = 1) -> dict[ClientId, Reply]:
    """Let several sites answer the same query, with one call of the handler per table."""
    replies = _answers([site for site in sites if not site.overrides_answer], query, n_threads)
    others = [site for site in sites if site.overrides_answer]  # each gets only its own part of the query
    return replies | {site.name: site.answer(query.for_client(site.name)) for site in others}


def _answers(sites: Sequence[Site], query: Query, n_threads: int) -> dict[ClientId, Any]:
    if isinstance(query, messages.Bundle):
        parts = [_answers(sites, part, n_threads) for part in query.queries]
        return {site.name: messages.BundleReply(tuple(part[site.name] for part in parts)) for site in sites}
    handler = handler_of(query)
    if type(query) in _HANDLERS_OF_ONE:
        # Without locks: a handler may ask its site again, and its thread would wait for this one forever.
        alone = in_threads(_HANDLERS_OF_ONE[type(query)], [(site, query) for site in sites], n_threads)
        return {site.name: reply for site, reply in zip(sites, alone, strict=True)}
    groups: dict[int, list[Site]] = {}
    for site in sites:
        groups.setdefault(id(site.table), []).append(site)
    inner, outer = (n_threads, 1) if len(groups) < n_threads else (1, n_threads)
    with ExitStack() as held:
        # Acquire all locks first, in a fixed order and not in worker threads: a worker that waits for a
        # lock could block the owner of that lock, if the owner waits for a free worker.
        for _, group in sorted(groups.items()):
            held.enter_context(group[0].table.lock)
        found = in_threads(handler, [(group, query, inner) for group in groups.values()], outer)
    return {
        site.name: reply
        for group, some in zip(groups.values(), found, strict=True)
        for site, reply in zip(group, some, strict=True)
    }


@handles(messages.Bundle)
def _bundle(sites: Sequence[Site], query: messages.Bundle, n_threads: int) -> list[messages.BundleReply]:
    parts = [handler_of(part)(sites, part, n_threads) for part in query.queries]
    return [messages.BundleReply(replies) for replies in zip(*parts, strict=True)]


@handles(messages.LocalClusters)
def _clusters(
    sites: Sequence[Site], query: messages.LocalClusters, n_threads: int
) -> list[messages.CentroidSet]:
    # In threads, because the generator of a site is seeded with a checksum of all its rows.
    rngs = in_threads(lambda site: site.generator(query.seed), [(site,) for site in sites], n_threads)
    least = [site.policy.min_cluster_size for site in sites]
    table, which = _places(sites)
    return local_clusters(table, which, query, rngs, least, table.kernel, n_threads)


@handles(messages.Score)
def _scores(sites: Sequence[Site], query: messages.Score, n_threads: int) -> list[messages.ScoreTotals]:
    table, which = _places(sites)
    inertia = table.kernel.inertia_each(table, which, query.centroids, n_threads).tolist()
    return list(map(messages.ScoreTotals.of, inertia, table.n_samples[which].tolist()))


def _places(sites: Sequence[Site]) -> tuple[SharedTable, IntArray]:
    """Return the table of sites, and their indices in it."""
    return sites[0].table, np.array([site.index for site in sites])


@handles(LocalUpdate)
def _models(sites: Sequence[Site], query: LocalUpdate, n_threads: int) -> list[messages.LocalModel]:
    table, which = _places(sites)
    inertia = needs_inertia(query.weighting)
    table.reclaim()
    outcome = table.kernel.local_steps(
        table, which, query.centroids, **query.steps, inertia=inertia, n_threads=n_threads
    )
    weights = table.weights(which, query, outcome)
    return [messages.LocalModel(outcome.centroids(place), own) for place, own in enumerate(weights)]


@handles(messages.SendStatistics)
def _statistics(
    sites: Sequence[Site], query: messages.SendStatistics, n_threads: int
) -> list[ClusterStatistics]:
    table, which = _places(sites)
    statistics = table.statistics(which, query.update, n_threads)
    return [statistics.record(place) for place in range(len(which))]


@handles(messages.SendDelta)
def _deltas(
    sites: Sequence[Site], query: messages.SendDelta, n_threads: int
) -> list[messages.StatisticsDelta]:
    table, which = _places(sites)
    statistics = table.statistics(which, query.update, n_threads)
    states, acknowledged = _states(table, query, statistics.names)
    _, lost = states.renew(which, statistics, query.exchange, acknowledged)
    nothing = ClusterStatistics.nothing(*states.shape)
    return [
        messages.StatisticsDelta(nothing if gone else states.pending_of(client), int(gone), query.exchange)
        for client, gone in zip(which, lost, strict=True)
    ]


def _states(
    table: SharedTable, query: messages.SendDelta, names: Sequence[ClientId]
) -> tuple[DeltaStates, list[str | None]]:
    """Return the delta states for a query, and what was counted of each client."""
    unknown = [client for client in names if client not in query.counted]
    if unknown:
        raise FederationError(
            f"Client {unknown[0]!r} was asked for what changed, but the query speaks only of "
            f"{', '.join(sorted(query.counted)[:5])}. The federation must know its sites by their own names."
        )
    states = table.states_of(query.run, query.total, query.update.centroids.shape)
    return states, [query.counted[client] for client in names]


def total_models(table: SharedTable, which: IntArray, query: LocalUpdate, n_threads: int) -> Total:
    """Return the total of the local models of clients, without making single replies."""
    k, m = query.centroids.shape
    weighted_sum, weight, plain_sum = np.zeros((k, m)), np.zeros(k), np.zeros((k, m))
    inertia = needs_inertia(query.weighting)
    table.reclaim()
    for some in _portions(table, which, query):
        outcome = table.kernel.local_steps(
            table, some, query.centroids, **query.steps, inertia=inertia, n_threads=n_threads
        )
        weights = table.weights(some, query, outcome)
        outcome.add_to(weights, weighted_sum, plain_sum)
        # Add sequentially, like records are added; `np.sum` may use another order.
        weight = np.add.accumulate(np.vstack([weight, weights]))[-1]
    record = messages.ClusterTotals(weighted_sum, weight, plain_sum, len(which))
    size = weighted_sum.nbytes + weight.nbytes  # of a `LocalModel`
    return Total(record, table.names_of(which), len(which) * size)


def total_statistics(
    table: SharedTable, which: IntArray, query: messages.SendStatistics, n_threads: int
) -> Total:
    """Return the total of the statistics of clients, added in their order."""
    update = query.update
    weighted_sum = np.full(update.centroids.shape, -0.0)  # -0.0 + x is x for every x, also for -0.0
    plain_sum, numbers, portions = np.zeros_like(weighted_sum), [], _portions(table, which, update)
    table.reclaim()
    for some in portions:
        outcome = table.kernel.local_steps(
            table, some, update.centroids, **update.steps, inertia=True, n_threads=n_threads
        )
        weight = table.remembered_weights(some, update, outcome)
        if len(portions) == 1:
            table.add_changed(outcome, weight, weighted_sum, plain_sum)
        else:
            outcome.add_to(weight, weighted_sum, plain_sum)
        inertia: Any = outcome.received_inertia
        numbers.append(np.column_stack([weight, weight > 0, inertia, table.n_samples[some]]))
    # Add sequentially, like records are added; `np.sum` may use another order.
    sums = np.add.accumulate(np.concatenate(numbers))[-1]
    weight, holders = sums[:-2].reshape(2, -1).copy()
    record = ClusterStatistics(weighted_sum, weight, holders, float(sums[-2]), float(sums[-1]))
    return Total(record, table.names_of(which), len(which) * messages.n_bytes(record))


def total_deltas(table: SharedTable, which: IntArray, query: messages.SendDelta, n_threads: int) -> Total:
    """Return the sum of the deltas of clients, in one pass over their states."""
    statistics = table.statistics(which, query.update, n_threads)
    states, acknowledged = _states(table, query, statistics.names)
    difference, lost = states.renew(which, statistics, query.exchange, acknowledged)
    record = messages.DeltaTotals(difference, int(lost.sum()), frozenset([query.exchange]))
    reply = messages.StatisticsDelta(difference.high, 0, query.exchange)
    return Total(record, statistics.names, len(which) * messages.n_bytes(reply))


# Replies that are added up without making them: (table, indices of clients, query, n_threads) → total.
TOTALS: dict[type, Callable[[SharedTable, IntArray, Any, int], Total]] = {
    LocalUpdate: total_models,
    messages.SendStatistics: total_statistics,
    messages.SendDelta: total_deltas,
}


def _portions(table: SharedTable, which: IntArray, update: LocalUpdate) -> list[IntArray]:
    """Split clients into portions, so that the memory for local centroids stays bounded."""
    size = table.kernel.at_a_time(table, update.centroids)
    return [which[start : start + size] for start in range(0, len(which), size)]


@handles_each(messages.Describe)
def _describe(site: Site, query: messages.Describe) -> messages.Description:
    return messages.Description(len(site.X), site.X.shape[1], site.feature_names, site.table.kernel_name)


@handles_each(messages.FindBox)
def _find_box(site: Site, query: messages.FindBox) -> messages.Box:
    # A bound is the mean of several extreme values, because the extreme value itself is data of one row.
    few = site.policy.min_cluster_size
    n, m = site.X.shape
    if n < few:
        return messages.Box(np.full(m, np.inf), np.full(m, -np.inf))  # an empty box
    box = np.empty((2, m))
    for j, numbers in enumerate(_outer_numbers(site.X, few)):
        ordered = np.partition(numbers, sorted({few - 1, len(numbers) - few}))
        for side, outermost in enumerate((ordered[:few], ordered[len(numbers) - few :])):
            box[side, j] = np.sort(outermost).mean(dtype=np.float64)  # sorted for reproducible rounding
    return messages.Box(box[0], box[1])


def _outer_numbers(X: Table, few: int) -> Iterator[DataArray]:
    """Yield, for each column, numbers that include its `few` smallest and `few` largest values."""
    if not isinstance(X, SparseRows):
        yield from X.T
        return
    for numbers, _ in X.by_column():
        # More than `few` zeros are not needed.
        n_zeros = min(few, len(X) - len(numbers))
        yield np.concatenate([numbers, np.zeros(n_zeros, dtype=numbers.dtype)])


@handles_each(messages.DrawPoint)
def _draw(site: Site, query: messages.DrawPoint) -> messages.Candidate:
    n, m = site.X.shape
    if n < site.policy.min_cluster_size:
        return messages.Candidate(np.zeros(m), 0.0)
    potential = np.ones(n) if site.sample_weight is None else site.sample_weight
    if len(query.centroids):
        nearest = site.table.kernel.assign(site.X, query.centroids)
        potential = potential * distances_to_own(site.X, query.centroids, nearest)
    total = float(potential.sum())
    if total == 0:  # every row is a centroid already
        return messages.Candidate(np.zeros(m), 0.0)
    rng = site.generator(query.seed)
    mean_of = min(n, max(query.mean_of, site.policy.min_cluster_size))
    if query.spread:
        rows = rng.choice(n, size=mean_of, replace=False)
    else:
        drawn = double_block(site.X, np.array([rng.choice(n, p=potential / total)]))
        to_drawn = distances_to_own(site.X, drawn, np.zeros(n, dtype=np.intp))
        rows = np.argsort(to_drawn, kind="stable")[:mean_of]
    return messages.Candidate(double_block(site.X, rows).mean(axis=0), total)
