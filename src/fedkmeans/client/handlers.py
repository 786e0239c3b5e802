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
from fedkmeans.client.delta_state import make_delta
from fedkmeans.client.local_kmeans import local_clusters
from fedkmeans.errors import FederationError, ParameterError
from fedkmeans.kernels import Outcome
from fedkmeans.kernels.base import LocalSummary
from fedkmeans.kernels.reference.lloyd import distances_to_own, double_block
from fedkmeans.kernels.sparse import SparseRows, Table
from fedkmeans.kernels.weighting import needs_inertia, weights_for
from fedkmeans.protocol import messages
from fedkmeans.protocol.declaration import Query, Reply
from fedkmeans.protocol.messages import LocalUpdate
from fedkmeans.protocol.statistics import ClusterStatistics

if TYPE_CHECKING:
    from fedkmeans.client.site import Site

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# Number of runs for which a site stores delta states; a run may start before another one ends.
RUNS_KEPT = 4


# The handler of each type of query: (sites, query, n_threads) → pairs of a site and its reply.
HANDLERS: dict[type, Callable[[Sequence[Site], Any, int], list[tuple[Site, Any]]]] = {}


def handles(kind: type[Query]) -> Callable[[F], F]:
    """Register the decorated function, (sites, query, n_threads) → pairs, as the handler of a query."""

    def register(handler: F) -> F:
        HANDLERS[kind] = handler
        return handler

    return register


def handles_each(kind: type[Query]) -> Callable[[F], F]:
    """Register the decorated function, (site, query) → reply, which is called for each site separately."""

    def register(handler: F) -> F:
        def each(sites: Sequence[Site], query: Query, n_threads: int) -> list[tuple[Site, Any]]:
            replies = in_threads(handler, [(site, query) for site in sites], n_threads)
            return list(zip(sites, replies, strict=True))

        HANDLERS[kind] = each
        return handler

    return register


def answer_all(sites: Sequence[Site], query: Query, n_threads: int = 1) -> dict[ClientId, Reply]:
    """Let several sites answer the same query; each gets only its own part of it."""
    alike = [site for site in sites if not site.overrides_answer]
    replies = answer_together(alike, query, n_threads)
    others = [site for site in sites if site.overrides_answer]
    return replies | {site.name: site.answer(query.for_client(site.name)) for site in others}


def answer_together(sites: Sequence[Site], query: Query, n_threads: int) -> dict[ClientId, Reply]:
    """Let sites answer a query with its handler, with one call of the kernel per table."""
    if isinstance(query, messages.Bundle):
        answers = [answer_together(sites, part, n_threads) for part in query.queries]
        return {
            site.name: messages.BundleReply(tuple(answer[site.name] for answer in answers)) for site in sites
        }
    handler = HANDLERS.get(type(query))
    if handler is None:
        raise FederationError(
            f"No handler is known for the query {type(query).__name__}. Write one with the decorator "
            "`handles` of fedkmeans.client.handlers, and load it at every site."
        )
    return {site.name: reply for site, reply in handler(sites, query, n_threads)}


def _local_work(
    sites: Sequence[Site], update: LocalUpdate, inertia: bool, n_threads: int
) -> list[tuple[Site, LocalSummary]]:
    """Run the local steps of sites, together for sites that share a table."""

    def work(group: list[Site], which: IntArray, n_threads: int) -> list[LocalSummary]:
        outcome = group[0].table.local_steps(which, update, inertia, n_threads)
        return [summary_of(outcome, site.n_samples, place) for place, site in enumerate(group)]

    return _by_table(sites, work, n_threads)


@handles(messages.LocalClusters)
def _clusters(
    sites: Sequence[Site], query: messages.LocalClusters, n_threads: int
) -> list[tuple[Site, messages.CentroidSet]]:
    """Cluster the rows of sites, together for sites that share a table."""

    def work(group: list[Site], which: IntArray, n_threads: int) -> list[messages.CentroidSet]:
        table = group[0].table
        # In threads, because the generator of a site is seeded with a checksum of all its rows.
        rngs = in_threads(lambda site: site.generator(query.seed), [(site,) for site in group], n_threads)
        least = [site.policy.min_cluster_size for site in group]
        return local_clusters(table.rows, which, query, rngs, least, table.kernel, n_threads)

    return _by_table(sites, work, n_threads)


@handles(messages.Score)
def _scores(
    sites: Sequence[Site], query: messages.Score, n_threads: int
) -> list[tuple[Site, messages.ScoreTotals]]:
    """Compute the scores of sites, together for sites that share a table."""

    def work(group: list[Site], which: IntArray, n_threads: int) -> list[messages.ScoreTotals]:
        table = group[0].table
        inertia = table.kernel.inertia_each(table.rows, which, query.centroids, n_threads).tolist()
        return [
            messages.ScoreTotals.of(own, site.n_samples) for own, site in zip(inertia, group, strict=True)
        ]

    return _by_table(sites, work, n_threads)


def _by_table(
    sites: Sequence[Site], work: Callable[[list[Site], IntArray, int], list[T]], n_threads: int
) -> list[tuple[Site, T]]:
    """Call `work` once per table, with the sites that share it and their indices in it."""
    groups: dict[int, list[Site]] = {}
    for site in sites:
        groups.setdefault(id(site.table), []).append(site)
    inner, outer = (n_threads, 1) if len(groups) < n_threads else (1, n_threads)

    def pairs(group: list[Site]) -> list[tuple[Site, T]]:
        return list(zip(group, work(group, np.array([site.index for site in group]), inner), strict=True))

    with ExitStack() as held:
        # Acquire all locks first, in a fixed order and not in worker threads: a worker that waits for a
        # lock could block the owner of that lock, if the owner waits for a free worker.
        for _, group in sorted(groups.items()):
            held.enter_context(group[0].table.lock)
        done = in_threads(pairs, [(group,) for group in groups.values()], outer)
    return [pair for some in done for pair in some]


def summary_of(outcome: Outcome, n_samples: Any, place: int | None = None) -> LocalSummary:
    """Return the summary of one client, or of all clients with one row per client and no centroids."""
    which: Any = slice(None) if place is None else place
    counts = outcome.counts[which]
    return LocalSummary(
        centroids=np.empty(0) if place is None else outcome.centroids(place),
        counts=counts,
        last_counts=outcome.last_counts[which],
        inertia=np.full(counts.shape, np.nan) if outcome.inertia is None else outcome.inertia[which],
        n_samples=n_samples,
        received_inertia=float("nan")
        if place is None or outcome.received_inertia is None
        else float(outcome.received_inertia[place]),
    )


@handles(LocalUpdate)
def _models(sites: Sequence[Site], query: LocalUpdate, n_threads: int) -> list[tuple[Site, Any]]:
    work = _local_work(sites, query, needs_inertia(query.weighting), n_threads)
    return [
        (site, messages.LocalModel(local.centroids, weights_for(query.weighting, local)))
        for site, local in work
    ]


@handles(messages.SendStatistics)
def _all_statistics(
    sites: Sequence[Site], query: messages.SendStatistics, n_threads: int
) -> list[tuple[Site, Any]]:
    work = _local_work(sites, query.update, True, n_threads)
    return [(site, _statistics(site, query.update, local)) for site, local in work]


@handles(messages.SendDelta)
def _deltas(sites: Sequence[Site], query: messages.SendDelta, n_threads: int) -> list[tuple[Site, Any]]:
    work = _local_work(sites, query.update, True, n_threads)
    return [(site, _delta(site, query, local)) for site, local in work]


def check_remembered(client: ClientId, wrong: Any) -> None:
    """Raise if any cluster without points has a weight; `wrong` marks such clusters."""
    if wrong.any():
        raise ParameterError(
            f"Client {client!r}: the weighting rule gives weight to a cluster in which the client has no "
            "points; this cannot be remembered. Return 0 there (where counts is 0), or use memory=None."
        )


def _statistics(site: Site, update: LocalUpdate, local: LocalSummary) -> ClusterStatistics:
    weight = weights_for(update.weighting, local)
    check_remembered(site.name, (weight > 0) & (local.counts == 0) & (local.last_counts == 0))
    return ClusterStatistics(
        weighted_sum=weight[:, None] * local.centroids,
        weight=weight,
        holders=(weight > 0).astype(np.float64),
        inertia=local.received_inertia,
        n_samples=local.n_samples,
    )


def keep_totals(site: Site, run: str, totals: dict[str, Any]) -> None:
    """Store the delta states of a run; drop those of all but the latest `RUNS_KEPT` runs."""
    site.delta_states[run] = totals  # inserted last: the least recently used run comes first
    while len(site.delta_states) > RUNS_KEPT:
        site.delta_states.pop(next(iter(site.delta_states)))


def check_addressed(site: Site, query: messages.SendDelta) -> None:
    """Raise if the query does not name the site."""
    if site.name not in query.counted:
        raise FederationError(
            f"Client {site.name!r} was asked for what changed, but the query speaks only of "
            f"{', '.join(sorted(query.counted)[:5])}. The federation must know its sites by their own names."
        )


def _delta(site: Site, query: messages.SendDelta, local: LocalSummary) -> messages.StatisticsDelta:
    check_addressed(site, query)
    statistics = _statistics(site, query.update, local)
    totals = site.delta_states.pop(query.run, {})
    before = totals.get(query.total)
    delta, state = make_delta(
        None if before is None else before.state(), statistics, query.exchange, query.counted[site.name]
    )
    if state is not None:
        totals[query.total] = state
    keep_totals(site, query.run, totals)
    return delta


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
