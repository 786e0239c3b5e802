"""Groups of sites in the same process, and totals of their replies.

If the sites share a table, a round of all of them is one call of the kernel, and their statistics
stay in the arrays of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from fedkmeans._utils.typing import ClientId, FloatArray, IntArray
from fedkmeans.client.delta_stack import DeltaStack, StackedDelta, mode_of
from fedkmeans.client.handlers import answer_all, check_addressed, check_remembered, keep_totals, summary_of
from fedkmeans.client.shared_table import SharedTable
from fedkmeans.kernels import Outcome
from fedkmeans.kernels.weighting import USES_INERTIA, weights_for
from fedkmeans.protocol import messages
from fedkmeans.protocol.declaration import Query
from fedkmeans.protocol.exchange import Total, add_up
from fedkmeans.protocol.messages import LocalUpdate
from fedkmeans.protocol.statistics import ClusterStatistics, StackedStatistics

if TYPE_CHECKING:
    from fedkmeans.client.site import Site


@dataclass(frozen=True, slots=True)
class SiteGroup:
    """Sites that are asked together, sorted by name.

    Attributes
    ----------
    sites : list of Site
    names : tuple of str
    table : SharedTable or None
        The shared table of the sites; None if there are several tables or if a site overrides
        `answer`.
    which : ndarray of shape (N,)
        Indices of the sites in the table.
    """

    sites: list[Site]
    names: tuple[ClientId, ...]
    table: SharedTable | None
    which: IntArray

    @classmethod
    def of(cls, sites: Sequence[Site]) -> SiteGroup:
        """Make a group of these sites."""
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
        """Return the group of the sites with these indices."""
        if len(places) == len(self.sites):
            return self
        sites = [self.sites[place] for place in places]
        return SiteGroup(sites, tuple(site.name for site in sites), self.table, self.which[places])


def total_of(group: SiteGroup, query: Query, n_threads: int = 1) -> Total:
    """Return the same as `add_up(answer_all(…))`, without making single replies where possible."""
    if isinstance(query, messages.Bundle) and group.table is not None:
        totals = [total_of(group, part, n_threads) for part in query.queries]
        bundle = messages.BundleReply(tuple(total.record for total in totals))
        return Total(bundle, totals[0].answered, tuple(total.received for total in totals))
    if group.table is not None and isinstance(query, messages.SendStatistics):
        return _total_statistics(group, query, n_threads)
    if group.table is not None and isinstance(query, messages.SendDelta):
        return _total_deltas(group, query, n_threads)
    if group.table is None or not (isinstance(query, LocalUpdate) and isinstance(query.weighting, str)):
        return add_up(answer_all(group.sites, query, n_threads))
    table, n_clients = group.table, len(group.sites)
    k, m = query.centroids.shape
    weighted_sum, weight, plain_sum = np.zeros((k, m)), np.zeros(k), np.zeros((k, m))
    with table.lock:
        for some in table.portions(group.which, query):
            outcome = table.local_steps(some, query, query.weighting in USES_INERTIA, n_threads)
            weights = weights_for(query.weighting, summary_of(outcome, table.n_samples[some]))
            outcome.add_to(weights, weighted_sum, plain_sum)
            # Add sequentially, like records are added; `np.sum` may use another order.
            weight = np.add.accumulate(np.vstack([weight, weights]))[-1]
    record = messages.ClusterTotals(weighted_sum, weight, plain_sum, n_clients)
    size = weighted_sum.nbytes + weight.nbytes  # of a `LocalModel`
    return Total(record, group.names, n_clients * size)


def _total_statistics(group: SiteGroup, query: messages.SendStatistics, n_threads: int) -> Total:
    """Return the total of the statistics, added in the order of the names of clients."""
    table, update = group.table, query.update
    assert table is not None
    weighted_sum = np.full(update.centroids.shape, -0.0)  # -0.0 + x is x for every x, also for -0.0
    plain_sum, numbers = np.zeros_like(weighted_sum), []
    with table.lock:
        for some in table.portions(np.arange(len(group.sites)), update):
            part = group.part(some)
            outcome = table.local_steps(part.which, update, True, n_threads)
            weight = _weights(part, update, outcome)
            outcome.add_to(weight, weighted_sum, plain_sum)
            inertia: Any = outcome.received_inertia
            numbers.append(np.column_stack([weight, weight > 0, inertia, table.n_samples[part.which]]))
    # Add sequentially, like records are added; `np.sum` may use another order.
    sums = np.add.accumulate(np.concatenate(numbers))[-1]
    k = len(weighted_sum)
    record = ClusterStatistics(
        weighted_sum, sums[:k].copy(), sums[k : 2 * k].copy(), float(sums[-2]), float(sums[-1])
    )
    return Total(record, group.names, len(group.sites) * messages.n_bytes(record))


def statistics_of(group: SiteGroup, query: messages.SendStatistics, n_threads: int = 1) -> StackedStatistics:
    """Return the statistics of sites that share a table, without a copy of the kernel's arrays."""
    table, update = group.table, query.update
    assert table is not None
    with table.lock:
        outcome = table.local_steps(group.which, update, True, n_threads)
        weight = _weights(group, update, outcome)
        stacked = StackedStatistics(
            group.names,
            outcome.stack,
            outcome.places,
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
    """Return the weights of all sites, a new array of shape (A, k); raise if memory cannot use them."""
    if isinstance(update.weighting, str):
        n_samples = group.table.n_samples[group.which]  # type: ignore[union-attr]
        weight = np.array(weights_for(update.weighting, summary_of(outcome, n_samples)))
    else:
        locals_ = [summary_of(outcome, site.n_samples, place) for place, site in enumerate(group.sites)]
        weight = np.stack([weights_for(update.weighting, local) for local in locals_])
    wrong = (weight > 0) & (outcome.counts == 0) & (outcome.last_counts == 0)
    if wrong.any():
        check_remembered(group.names[int(wrong.any(axis=1).argmax())], wrong)
    return weight


def _total_deltas(group: SiteGroup, query: messages.SendDelta, n_threads: int) -> Total:
    """Return the sum of the deltas of sites that share a table, in one pass over stacked states."""
    table = group.table
    assert table is not None
    with table.lock:
        statistics = statistics_of(group, messages.SendStatistics(query.update), n_threads)
        before = [site.delta_states.get(query.run, {}).get(query.total) for site in group.sites]
        key = query.run, query.total
        stack = table.delta_stacks.get(key)
        if stack is None:
            stack = DeltaStack(len(table.rows.sizes), *query.update.centroids.shape)
            table.delta_stacks[key] = stack
        modes = np.full(len(before), -1)
        for site in group.sites:  # before any state changes
            check_addressed(site, query)
        for place, (site, state) in enumerate(zip(group.sites, before, strict=True)):
            if state is not None and not (isinstance(state, StackedDelta) and state.stack is stack):
                stack.load(site.index, state.state())
            acknowledged = query.counted[site.name]
            mode = mode_of(stack, site.index, acknowledged) if state or acknowledged is None else None
            totals = site.delta_states.pop(query.run, {})
            if mode is not None:
                modes[place] = mode
                stack.counted_in[site.index], stack.pending_in[site.index] = acknowledged, query.exchange
            if mode is not None or state is not None:
                totals[query.total] = StackedDelta(stack, site.index)
            keep_totals(site, query.run, totals)
        known = np.flatnonzero(modes >= 0)
        difference = stack.renew(group.which[known], modes[known], known, statistics, table.kernel)
    n_lost = len(before) - len(known)
    nothing = messages.StatisticsDelta(
        ClusterStatistics.nothing(*query.update.centroids.shape), 0, query.exchange
    )
    record = messages.DeltaTotals(difference, n_lost, frozenset([query.exchange]))
    return Total(record, group.names, len(before) * messages.n_bytes(nothing))
