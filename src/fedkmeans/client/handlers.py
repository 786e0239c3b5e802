"""How sites answer queries: one by one, or those of one process together.

Only a `Site` calls this about its rows; sites of one process are asked together because a round of
neighbours, whose rows lie in one table, is one call of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

import numpy as np

from fedkmeans._utils.threads import in_threads
from fedkmeans._utils.typing import ClientId, DataArray, FloatArray, IntArray
from fedkmeans.client.delta_stack import DeltaStack, StackedDelta, mode_of
from fedkmeans.client.delta_state import make_delta
from fedkmeans.client.local_kmeans import local_clusters
from fedkmeans.client.shared_table import SharedTable
from fedkmeans.errors import FederationError, ParameterError
from fedkmeans.kernels import Outcome
from fedkmeans.kernels.base import LocalSummary
from fedkmeans.kernels.reference.lloyd import distances_to_own, double_block
from fedkmeans.kernels.sparse import SparseRows, Table
from fedkmeans.kernels.weighting import USES_INERTIA, needs_inertia, weights_for
from fedkmeans.protocol import messages
from fedkmeans.protocol.exchange import Total, add_up
from fedkmeans.protocol.messages import LocalUpdate, Query, Reply
from fedkmeans.protocol.statistics import ClusterStatistics, StackedStatistics

if TYPE_CHECKING:
    from fedkmeans.client.site import Site

T = TypeVar("T")

# Runs for which a site keeps in mind what it said; one may begin while another is being finished.
RUNS_KEPT = 4


@dataclass(frozen=True, slots=True)
class SiteGroup:
    """Sites that are asked together, sorted by name.

    Attributes
    ----------
    sites : list of Site
    names : tuple of str
    shards : Shards or None
        The table in which the rows of all of them lie; None if they have several, or if one of them
        answers in its own way.
    which : ndarray of shape (N,)
        Their places in that table.
    """

    sites: list[Site]
    names: tuple[ClientId, ...]
    table: SharedTable | None
    which: IntArray

    @classmethod
    def of(cls, sites: Sequence[Site]) -> SiteGroup:
        """A panel of these sites."""
        sites = sorted(sites, key=lambda site: site.name)
        common = {id(site.table) for site in sites}
        together = len(common) == 1 and not any(site.overrides_answer for site in sites)
        return cls(
            sites,
            tuple(site.name for site in sites),
            sites[0].table if together else None,
            np.array([site.index for site in sites]),
        )

    def part(self, places: IntArray) -> SiteGroup:
        """Some of the sites, by their places in the group."""
        if len(places) == len(self.sites):
            return self
        sites = [self.sites[place] for place in places]
        return SiteGroup(sites, tuple(site.name for site in sites), self.table, self.which[places])


def answer_all(sites: Sequence[Site], query: Query, n_threads: int = 1) -> dict[ClientId, Reply]:
    """Let several sites answer the same query, each with what of it is addressed to it."""
    alike = [site for site in sites if not site.overrides_answer]
    replies = answer_together(alike, query, n_threads)
    others = [site for site in sites if site.overrides_answer]
    return replies | {site.name: site.answer(messages.addressed(query, site.name)) for site in others}


def answer_together(sites: Sequence[Site], query: Query, n_threads: int) -> dict[ClientId, Reply]:
    """Local steps of sites that are neighbours are one call of the kernel."""
    if isinstance(query, messages.Bundle):
        answers = [answer_together(sites, part, n_threads) for part in query.queries]
        return {
            site.name: messages.BundleReply(tuple(answer[site.name] for answer in answers)) for site in sites
        }
    if type(query) in _LOCAL_WORK:
        update, inertia, say = _LOCAL_WORK[type(query)]
        return {
            site.name: say(site, messages.addressed(query, site.name), local)
            for site, local in _local_work(sites, update(query), inertia(query), n_threads)
        }
    if type(query) in _TOGETHER:
        return {site.name: reply for site, reply in _TOGETHER[type(query)](sites, query, n_threads)}
    answer = _ANSWERS[type(query)]
    replies = in_threads(answer, [(site, query) for site in sites], n_threads)
    return {site.name: reply for site, reply in zip(sites, replies, strict=True)}


def total_of(panel: SiteGroup, query: Query, n_threads: int = 1) -> Total:
    """What `add_up(answer_all(…))` returns, without replies of single sites where they are not needed."""
    if isinstance(query, messages.Bundle) and panel.table is not None:
        totals = [total_of(panel, part, n_threads) for part in query.queries]
        bundle = messages.BundleReply(tuple(total.record for total in totals))
        return Total(bundle, totals[0].answered, tuple(total.received for total in totals))
    if panel.table is not None and isinstance(query, messages.SendStatistics):
        return _total_statistics(panel, query, n_threads)
    if panel.table is not None and isinstance(query, messages.SendDelta):
        return _total_deltas(panel, query, n_threads)
    if panel.table is None or not (isinstance(query, LocalUpdate) and isinstance(query.weighting, str)):
        return add_up(answer_all(panel.sites, query, n_threads))
    table, n_clients = panel.table, len(panel.sites)
    k, m = query.centroids.shape
    weighted_sum, weight, plain_sum = np.zeros((k, m)), np.zeros(k), np.zeros((k, m))
    with table.lock:
        for some in table.portions(panel.which, query):
            outcome = table.local_steps(some, query, query.weighting in USES_INERTIA, n_threads)
            weights = weights_for(query.weighting, _summary(outcome, table.n_samples[some]))
            outcome.add_to(weights, weighted_sum, plain_sum)
            # One after the other, as records are added; a plain sum might take them in another order.
            weight = np.add.accumulate(np.vstack([weight, weights]))[-1]
    record = messages.ClusterTotals(weighted_sum, weight, plain_sum, n_clients)
    size = weighted_sum.nbytes + weight.nbytes  # of a `LocalModel`
    return Total(record, panel.names, n_clients * size)


def _total_statistics(group: SiteGroup, query: messages.SendStatistics, n_threads: int) -> Total:
    """The same for statistics, which are added in the order of the clients' names."""
    table, update = group.table, query.update
    assert table is not None
    weighted_sum = np.full(update.centroids.shape, -0.0)  # the only number that changes no sum
    plain_sum, numbers = np.zeros_like(weighted_sum), []
    with table.lock:
        for some in table.portions(np.arange(len(group.sites)), update):
            part = group.part(some)
            outcome = table.local_steps(part.which, update, True, n_threads)
            weight = _weights(part, update, outcome)
            outcome.add_to(weight, weighted_sum, plain_sum)
            inertia: Any = outcome.received_inertia
            numbers.append(np.column_stack([weight, weight > 0, inertia, table.n_samples[part.which]]))
    # One after the other, as records are added; a plain sum might add them in another order.
    sums = np.add.accumulate(np.concatenate(numbers))[-1]
    k = len(weighted_sum)
    record = ClusterStatistics(
        weighted_sum, sums[:k].copy(), sums[k : 2 * k].copy(), float(sums[-2]), float(sums[-1])
    )
    return Total(record, group.names, len(group.sites) * messages.n_bytes(record))


def statistics_of(group: SiteGroup, query: messages.SendStatistics, n_threads: int = 1) -> StackedStatistics:
    """Statistics of sites of one table, without a copy of what the kernel knows."""
    table, update = group.table, query.update
    assert table is not None
    with table.lock:
        outcome = table.local_steps(group.which, update, True, n_threads)
        weight = _weights(group, update, outcome)
        values, places = outcome.stacked()
        stacked = StackedStatistics(
            group.names,
            values,
            places,
            weight,
            weight,
            np.array(outcome.received_inertia),
            table.n_samples[group.which],
            outcome.changes,
            table.kernel_name,
            n_threads,
            table.lock,
        )
        table.lent = ref(stacked)
    return stacked


def _weights(group: SiteGroup, update: LocalUpdate, outcome: Outcome) -> FloatArray:
    """Weights of all sites that may be remembered, a new array of shape (A, k)."""
    if isinstance(update.weighting, str):
        n_samples = group.table.n_samples[group.which]  # type: ignore[union-attr]
        weight = np.array(weights_for(update.weighting, _summary(outcome, n_samples)))
    else:
        locals_ = [_summary(outcome, site.n_samples, place) for place, site in enumerate(group.sites)]
        weight = np.stack([weights_for(update.weighting, local) for local in locals_])
    wrong = (weight > 0) & (outcome.counts == 0) & (outcome.last_counts == 0)
    if wrong.any():
        _check_remembered(group.names[int(wrong.any(axis=1).argmax())], wrong)
    return weight


def _local_work(
    sites: Sequence[Site], update: LocalUpdate, inertia: bool, n_threads: int
) -> list[tuple[Site, LocalSummary]]:
    """Local steps of sites, neighbours together."""

    def work(group: list[Site], which: IntArray, n_threads: int) -> list[LocalSummary]:
        outcome = group[0].table.local_steps(which, update, inertia, n_threads)
        return [_summary(outcome, site.n_samples, place) for place, site in enumerate(group)]

    return _by_table(sites, work, n_threads)


def _clusters(
    sites: Sequence[Site], query: messages.LocalClusters, n_threads: int
) -> list[tuple[Site, messages.CentroidSet]]:
    """Clusters of sites, neighbours together."""

    def work(group: list[Site], which: IntArray, n_threads: int) -> list[messages.CentroidSet]:
        table = group[0].table
        # In threads: what a site draws depends on its rows, all of which are read for it.
        rngs = in_threads(lambda site: site.generator(query.seed), [(site,) for site in group], n_threads)
        least = [site.policy.min_cluster_size for site in group]
        return local_clusters(table.rows, which, query, rngs, least, table.kernel, n_threads)

    return _by_table(sites, work, n_threads)


def _scores(
    sites: Sequence[Site], query: messages.Score, n_threads: int
) -> list[tuple[Site, messages.ScoreTotals]]:
    """Scores of sites, neighbours together."""

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
    """Let neighbours work together: call `work` with the sites of each table and their places in it."""
    groups: dict[int, list[Site]] = {}
    for site in sites:
        groups.setdefault(id(site.table), []).append(site)
    inner, outer = (n_threads, 1) if len(groups) < n_threads else (1, n_threads)

    def pairs(group: list[Site]) -> list[tuple[Site, T]]:
        return list(zip(group, work(group, np.array([site.index for site in group]), inner), strict=True))

    with ExitStack() as held:
        # All locks first, in one order for everybody, and none in the threads: a thread that waits for
        # a lock would keep another from working whose owner waits for a thread.
        for _, group in sorted(groups.items()):
            held.enter_context(group[0].table.lock)
        done = in_threads(pairs, [(group,) for group in groups.values()], outer)
    return [pair for some in done for pair in some]


def _summary(outcome: Outcome, n_samples: Any, place: int | None = None) -> LocalSummary:
    """The summary of one client, or of all at once: then without centroids, with one row a client."""
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


def _model(site: Site, query: LocalUpdate, local: LocalSummary) -> messages.LocalModel:
    return messages.LocalModel(local.centroids, weights_for(query.weighting, local))


def _check_remembered(client: ClientId, wrong: Any) -> None:
    """Refuse weights of clusters without points, shape (k,)."""
    if wrong.any():
        raise ParameterError(
            f"Client {client!r}: the weighting rule gives weight to a cluster in which the client has no "
            "points; this cannot be remembered. Return 0 there (where counts is 0), or use memory=None."
        )


def _statistics(site: Site, query: messages.SendStatistics, local: LocalSummary) -> ClusterStatistics:
    weight = weights_for(query.update.weighting, local)
    _check_remembered(site.name, (weight > 0) & (local.counts == 0) & (local.last_counts == 0))
    return ClusterStatistics(
        weighted_sum=weight[:, None] * local.centroids,
        weight=weight,
        holders=(weight > 0).astype(np.float64),
        inertia=local.received_inertia,
        n_samples=local.n_samples,
    )


def _keep_totals(site: Site, run: str, totals: dict[str, Any]) -> None:
    site.delta_states[run] = totals  # at the end: the run that was silent longest comes first
    while len(site.delta_states) > RUNS_KEPT:
        site.delta_states.pop(next(iter(site.delta_states)))


def _check_addressed(site: Site, query: messages.SendDelta) -> None:
    if site.name not in query.counted:
        raise FederationError(
            f"Client {site.name!r} was asked for what changed, but the query speaks only of "
            f"{', '.join(sorted(query.counted)[:5])}. The federation must know its sites by their own names."
        )


def _total_deltas(group: SiteGroup, query: messages.SendDelta, n_threads: int) -> Total:
    """The sum of what changed at sites of one table, in one pass over stacked states."""
    table = group.table
    assert table is not None
    with table.lock:
        statistics = statistics_of(group, messages.SendStatistics(query.update), n_threads)
        before = [site.delta_states.get(query.run, {}).get(query.total) for site in group.sites]
        stacks = (state.stack for state in before if isinstance(state, StackedDelta))
        stack = next(stacks, None) or DeltaStack(len(table.rows.sizes), *query.update.centroids.shape)
        modes = np.full(len(before), -1)
        for place, (site, state) in enumerate(zip(group.sites, before, strict=True)):
            _check_addressed(site, query)
            if state is not None and not (isinstance(state, StackedDelta) and state.stack is stack):
                stack.load(site.index, state.state() if isinstance(state, StackedDelta) else state)
            acknowledged = query.counted[site.name]
            mode = mode_of(stack, site.index, acknowledged) if state or acknowledged is None else None
            totals = site.delta_states.pop(query.run, {})
            if mode is not None:
                modes[place] = mode
                stack.counted_in[site.index], stack.pending_in[site.index] = acknowledged, query.exchange
            if mode is not None or state is not None:
                totals[query.total] = StackedDelta(stack, site.index)
            _keep_totals(site, query.run, totals)
        known = np.flatnonzero(modes >= 0)
        difference = stack.renew(group.which[known], modes[known], known, statistics, table.kernel)
    n_lost = len(before) - len(known)
    nothing = messages.StatisticsDelta(
        ClusterStatistics.nothing(*query.update.centroids.shape), 0, query.exchange
    )
    record = messages.DeltaTotals(difference, n_lost, frozenset([query.exchange]))
    return Total(record, group.names, len(before) * messages.n_bytes(nothing))


def _delta(site: Site, query: messages.SendDelta, local: LocalSummary) -> messages.StatisticsDelta:
    _check_addressed(site, query)
    word = _statistics(site, messages.SendStatistics(query.update), local)
    totals = site.delta_states.pop(query.run, {})
    before = totals.get(query.total)
    if isinstance(before, StackedDelta):
        before = before.state()
    delta, state = make_delta(before, word, query.exchange, query.counted[site.name])
    if state is not None:
        totals[query.total] = state
    _keep_totals(site, query.run, totals)
    return delta


# Queries that begin with local steps: the steps, whether inertia is needed, and what to say of them.
_LOCAL_WORK: dict[type, tuple[Callable[[Any], LocalUpdate], Callable[[Any], bool], Callable[..., Reply]]] = {
    LocalUpdate: (lambda query: query, lambda query: needs_inertia(query.weighting), _model),
    messages.SendStatistics: (lambda query: query.update, lambda query: True, _statistics),
    messages.SendDelta: (lambda query: query.update, lambda query: True, _delta),
}


# Other queries that sites of one table answer together.
_TOGETHER: dict[type, Callable[[Sequence[Site], Any, int], list[tuple[Site, Any]]]] = {
    messages.LocalClusters: _clusters,
    messages.Score: _scores,
}


def _describe(site: Site, query: messages.Describe) -> messages.Description:
    return messages.Description(len(site.X), site.X.shape[1], site.feature_names, site.table.kernel_name)


def _find_box(site: Site, query: messages.FindBox) -> messages.Box:
    # Not the outermost value, which is somebody's, but the mean of the outermost few.
    few = site.policy.min_cluster_size
    n, m = site.X.shape
    if n < few:
        return messages.Box(np.full(m, np.inf), np.full(m, -np.inf))  # bounds that bound nothing
    box = np.empty((2, m))
    for j, numbers in enumerate(_outer_numbers(site.X, few)):
        ordered = np.partition(numbers, sorted({few - 1, len(numbers) - few}))
        for side, outermost in enumerate((ordered[:few], ordered[len(numbers) - few :])):
            box[side, j] = np.sort(outermost).mean(dtype=np.float64)  # sorted: rounded in one way only
    return messages.Box(box[0], box[1])


def _outer_numbers(X: Table, few: int) -> Iterator[DataArray]:
    """For each column numbers among which are its `few` least and its `few` largest."""
    if not isinstance(X, SparseRows):
        yield from X.T
        return
    for numbers, _ in X.by_column():
        # No more zeros than could be among them.
        n_zeros = min(few, len(X) - len(numbers))
        yield np.concatenate([numbers, np.zeros(n_zeros, dtype=numbers.dtype)])


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


_ANSWERS: dict[type, Callable[[Site, Any], Reply]] = {
    messages.Describe: _describe,
    messages.FindBox: _find_box,
    messages.DrawPoint: _draw,
}
