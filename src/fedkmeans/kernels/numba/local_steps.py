"""Local steps of some clients for one query, in threads: by following the previous ones, or by scanning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from fedkmeans._utils.threads import in_threads, split_evenly
from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import Changes, Rows
from fedkmeans.kernels.numba import compile_ahead
from fedkmeans.kernels.numba.bounds_cache import BoundsCache, empty_results
from fedkmeans.kernels.numba.jit import bounds as jit_bounds
from fedkmeans.kernels.numba.jit import clients, follow, totals
from fedkmeans.kernels.numba.jit.buffers import new_workspace
from fedkmeans.kernels.numba.jit.common import AS_RECEIVED, MEAN
from fedkmeans.kernels.numba.jit.structures import ClientData, LocalResults, StepSettings
from fedkmeans.kernels.numba.kernel_cache import GramMatrices, KernelCache
from fedkmeans.kernels.numba.row_copies import Copies
from fedkmeans.kernels.numba.scanning import are_large, as_double, new_scratch, scan_rows
from fedkmeans.kernels.reference.lloyd import means

# From this many products of numbers on, work is shared with another thread. A client that was asked before
# takes about this part of its products.
WORTH_THREADS, _FOLLOWED = 2**20, 1 / 256


@dataclass(slots=True)
class StoredOutcome:
    """An `Outcome` that is stored in `LocalResults`: that of client a is at places[a]."""

    results: LocalResults
    places: IntArray
    received: FloatArray
    n_threads: int
    inertia: FloatArray | None = None
    received_inertia: FloatArray | None = None
    changes: Changes | None = None

    @property
    def counts(self) -> FloatArray:
        """Of the first step."""
        return np.asarray(self.results.counts[self.places])

    @property
    def last_counts(self) -> FloatArray:
        """Of the last step."""
        return np.asarray(self.results.last_counts[self.places])

    def centroids(self, place: int) -> FloatArray:
        """Local centroids of one client."""
        client = self.places[place]
        own = self.results.status[client] != AS_RECEIVED
        return np.where(own[:, None], self.results.means[client], self.received)

    def add_to(self, weights: FloatArray, weighted_sum: FloatArray, plain_sum: FloatArray) -> None:
        """Add Σ ω c and Σ c, several clusters at a time."""
        weights = as_double(weights)

        def add(first: int, last: int) -> None:
            clients.add_up(
                weights, self.places, self.received, self.results, first, last, weighted_sum, plain_sum
            )

        by_clusters(add, len(self.received), self.received.size * len(self.places), self.n_threads)

    def stacked(self) -> tuple[FloatArray, IntArray]:
        """Local centroids of clusters with points, where the kernel keeps them."""
        return self.results.means, self.places


def by_clusters(function: Callable[[int, int], None], k: int, n_numbers: int, n_threads: int) -> None:
    """Call a function that adds up with the first and last of some clusters, in threads if it pays."""
    # Eight times as many: adding up mostly waits for memory.
    n_threads = n_threads if n_numbers > 8 * WORTH_THREADS else 1
    edges = [k * part // n_threads for part in range(n_threads + 1)]
    in_threads(function, list(pairwise(edges)), n_threads)


@dataclass(slots=True)
class LocalSteps:
    """Local steps of some clients, and two ways to make them."""

    rows: Rows
    cache: KernelCache
    which: IntArray
    received: FloatArray
    settings: StepSettings
    inertia: bool = False
    n_threads: int = 1

    sizes: IntArray = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = self.rows.sizes[self.which]

    def _weighted(self) -> ClientData:
        """The rows with a weight for each."""
        return ClientData(self.cache.data, self.cache.weights, self.rows.starts)

    def _parts(self, places: IntArray, share: Any = 1.0) -> tuple[list[tuple[IntArray]], int]:
        """Return parts of the places that take about equally long, and how many threads they are worth.

        `share` is the part of all products that is computed, for each place or for all.
        """
        sizes = self.sizes[places]
        n_threads = self.n_threads if (sizes * share).sum() * self.received.size > WORTH_THREADS else 1
        return [(places[part],) for part in split_evenly(sizes.tolist(), n_threads)], n_threads

    def _label_follower(self, bounds: BoundsCache) -> Callable[[IntArray, Any, Any], None]:
        """A function that finds the first labels of some clients, in any thread."""
        cache = self.cache
        if cache.copies is None:
            cache.copies = Copies(cache.data, len(self.rows.starts) - 1)
        near = bounds.start_query(self.received, cache.copies)
        data, copies = self._weighted(), cache.copies.arrays

        def follow_labels(which: IntArray, scratch: Any, workspace: Any) -> None:
            jit_bounds.follow_labels(
                data, which, self.received, bounds.latest, copies, near, bounds.arrays, scratch, workspace
            )

        return follow_labels

    def score(self, bounds: BoundsCache) -> FloatArray:
        """Sum of squared distances to the received centroids, for each client."""
        data, scores, follow_labels = (
            self._weighted(),
            np.empty(len(self.which)),
            self._label_follower(bounds),
        )

        def work(part: IntArray) -> None:
            scratch, workspace = bounds.take_buffers(data.X.dtype)
            which, found = self.which[part], np.empty(len(part))
            follow_labels(which, scratch, workspace)
            follow.score_clients(data, which, self.received, bounds.arrays, found)
            scores[part] = found
            bounds.buffers.append((scratch, workspace))

        in_threads(work, *self._parts(np.arange(len(self.which))))
        bounds.end_query(self.which, self.received)
        return scores

    def step_follower(self, bounds: BoundsCache) -> Callable[[IntArray, Any], None]:
        """A function that makes the local steps of some clients from their first labels, in any thread."""
        cache, data = self.cache, self._weighted()
        if bounds.with_gram and cache.grams is None:
            cache.grams = GramMatrices(self.rows)
        grams = cache.grams
        number = bounds.setting_number(self.settings)

        def follow_steps(which: IntArray, workspace: Any) -> None:
            if grams is None or self.settings.max_local == 1:
                follow.follow_step(data, which, bounds.arrays, workspace)
                return
            grams.prepare(*data, which)
            follow.follow_steps(
                data, which, self.received, self.settings, number, grams.arrays, bounds.arrays, workspace
            )

        return follow_steps

    def follow(self, bounds: BoundsCache) -> StoredOutcome:
        """Make the steps with bounds and answers of the previous query."""
        dtype = self.cache.data.dtype
        follow_labels, follow_steps = self._label_follower(bounds), self.step_follower(bounds)

        def work(part: IntArray) -> None:
            scratch, workspace = bounds.take_buffers(dtype)
            which = self.which[part]
            follow_labels(which, scratch, workspace)
            compile_ahead.wait(dtype, compile_ahead.STEPS)
            follow_steps(which, workspace)
            bounds.buffers.append((scratch, workspace))

        new = bounds.arrays.last_query[self.which] < 0
        in_threads(work, *self._parts(np.arange(len(self.which)), np.where(new, 1.0, _FOLLOWED)))
        bounds.end_query(self.which, self.received)
        return StoredOutcome(bounds.results, self.which, self.received, self.n_threads)

    def add_inertia(self, bounds: BoundsCache, outcome: StoredOutcome) -> None:
        """Find the inertia after `follow`."""
        n_clients, k = bounds.results.counts.shape
        data, inertia, received_inertia = self._weighted(), np.empty((n_clients, k)), np.empty(n_clients)

        def work(part: IntArray) -> None:
            follow.inertia_of_clients(
                data, self.which[part], self.received, bounds.arrays, inertia, received_inertia
            )

        in_threads(work, *self._parts(np.arange(len(self.which))))
        outcome.inertia, outcome.received_inertia = inertia[self.which], received_inertia[self.which]

    def add_cached_inertia(self, bounds: BoundsCache, outcome: StoredOutcome) -> None:
        """Find the inertia after one local step, from what changed since the last time."""
        data, results, cache = self._weighted(), bounds.results, bounds.inertia_cache(self.rows)
        previous, moved = cache.begin(self.which, self.received)

        def work(part: IntArray) -> None:
            totals.received_inertia(
                data, self.which[part], self.received, moved[part], bounds.arrays.labels, results,
                cache.arrays,
            )  # fmt: skip

        in_threads(work, *self._parts(np.arange(len(self.which)), np.where(previous < 0, 1.0, _FOLLOWED)))
        outcome.changes = cache.finish(self.which, previous)
        outcome.inertia = cache.arrays.within[self.which]
        outcome.received_inertia = (outcome.inertia + cache.arrays.away[self.which]).sum(axis=1)

    def scan(self) -> StoredOutcome:
        """Make each step by one pass over the rows; nothing is kept."""
        k, m = self.received.shape
        data = ClientData(self.cache.data, self.cache.weight, self.rows.starts)
        results = empty_results(len(self.which), k, m, self.inertia)
        places = np.arange(len(self.which))
        large = are_large(data.X, data.starts[self.which], data.starts[self.which + 1], m)

        def work(some: IntArray) -> None:
            scratch = new_scratch(data.X, k, m, int(self.sizes[some].max()))
            clients.scan_clients(
                data, self.which[some], some, self.received, self.settings, scratch, new_workspace(k, m, 0),
                results,
            )  # fmt: skip

        small = places[~large]
        if len(small):
            in_threads(work, *self._parts(small))
        for place in places[large]:
            self._scan_large(int(place), results)
        outcome = StoredOutcome(results, places, self.received, self.n_threads)
        if self.inertia:
            outcome.inertia, outcome.received_inertia = results.inertia, results.received_inertia
        return outcome

    def _scan_large(self, place: int, results: LocalResults) -> None:
        """Local steps of one client with many rows, several threads per step."""
        client = self.which[place]
        start, stop = self.rows.starts[client], self.rows.starts[client + 1]
        active, local = np.arange(len(self.received)), self.received
        for step in range(self.settings.max_local):
            sums, counts, own = scan_rows(
                self.cache.data, self.cache.weight, start, stop, local, self.n_threads, sums=True,
                inertia=self.inertia,
            )  # fmt: skip
            if step == 0:
                results.counts[place] = counts
                if self.inertia:
                    results.received_inertia[place] = own.sum()
                if self.settings.drop:
                    active = np.flatnonzero(counts)
                    local, sums, counts = local[active], sums[active], counts[active]
                    own = own[active] if self.inertia else own
            moved = means(sums, counts, otherwise=local)
            away = ((moved - local) ** 2).sum(axis=1)
            local = moved
            if np.sqrt(away.sum()) < self.settings.tol_local:
                break
        results.status[place] = MEAN
        results.means[place] = self.received
        results.means[place, active] = local
        results.last_counts[place, active] = counts
        if self.inertia:
            results.inertia[place, active] = np.maximum(own - counts * away, 0.0)
