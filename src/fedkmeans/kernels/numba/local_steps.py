"""Local steps of some clients for one query, in threads: by following the previous ones, or by scanning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from fedkmeans._utils.threads import in_threads, split_evenly
from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import Outcome, Rows
from fedkmeans.kernels.numba import compile_ahead
from fedkmeans.kernels.numba.bounds_cache import BoundsCache
from fedkmeans.kernels.numba.jit import bounds as jit_bounds
from fedkmeans.kernels.numba.jit import clients, follow, totals
from fedkmeans.kernels.numba.jit.common import AS_RECEIVED, MEAN
from fedkmeans.kernels.numba.jit.structures import LocalResults, StepSettings, new_results
from fedkmeans.kernels.numba.kernel_cache import NO_SPREAD, GramMatrices, KernelCache
from fedkmeans.kernels.numba.scanning import are_large, as_double, scan_rows
from fedkmeans.kernels.reference.lloyd import means

# From this many products of numbers on, work is shared with another thread. A client that was asked before
# takes about this part of its products.
WORTH_THREADS, _FOLLOWED = 2**20, 1 / 256


@dataclass(slots=True, kw_only=True)
class StoredOutcome(Outcome):
    """An outcome in arrays of the kernel: where the status (P, k) says so, centroids are as received."""

    status: Any
    received: FloatArray
    n_threads: int

    def centroids(self, place: int) -> FloatArray:
        """Local centroids of one client."""
        client = self.places[place]
        own = self.status[client] != AS_RECEIVED
        return np.where(own[:, None], self.stack[client], self.received)

    def add_to(
        self,
        weights: FloatArray,
        weighted_sum: FloatArray,
        plain_sum: FloatArray,
        clusters: IntArray | None = None,
    ) -> None:
        """Add Σ ω c and Σ c, several clusters at a time."""
        some = np.arange(len(self.received)) if clusters is None else clusters
        before = as_double(weights), self.places, self.received, self.stack, self.status
        by_clusters(
            lambda first, last: clients.add_up(*before, some[first:last], weighted_sum, plain_sum),
            len(some),
            len(some) * self.received.shape[1] * len(self.places),
            self.n_threads,
        )


def by_clusters(function: Callable[[int, int], None], k: int, n_numbers: int, n_threads: int) -> None:
    """Call a function that adds up with the first and last of some clusters, in threads if it pays."""
    # Eight times as many: adding up mostly waits for memory.
    n_threads = n_threads if n_numbers > 8 * WORTH_THREADS else 1
    edges = [k * part // n_threads for part in range(n_threads + 1)]
    in_threads(function, list(pairwise(edges)), n_threads)


@dataclass
class LocalSteps:
    """Local steps of some clients, and two ways to make them."""

    rows: Rows
    cache: KernelCache
    which: IntArray
    received: FloatArray
    settings: StepSettings
    inertia: bool = False
    n_threads: int = 1

    def __post_init__(self) -> None:
        self.sizes = self.rows.sizes[self.which]

    def _parts(self, places: IntArray, share: Any = 1.0) -> tuple[list[tuple[IntArray]], int]:
        """Return parts of the places that take about equally long, and how many threads they are worth.

        `share` is the part of all products that is computed, for each place or for all.
        """
        sizes = self.sizes[places]
        n_threads = self.n_threads if (sizes * share).sum() * self.received.size > WORTH_THREADS else 1
        return [(places[part],) for part in split_evenly(sizes.tolist(), n_threads)], n_threads

    def score(self, bounds: BoundsCache) -> FloatArray:
        """Sum of squared distances to the received centroids, for each client."""
        data, copies, scores = self.cache.weighted, self.cache.copies, np.empty(len(self.which))

        def work(part: IntArray) -> None:
            which, found = self.which[part], np.empty(len(part))
            jit_bounds.follow_labels(data, which, self.received, bounds.latest, copies, bounds.arrays)
            follow.score_clients(data, which, self.received, bounds.arrays, found)
            scores[part] = found

        in_threads(work, *self._parts(np.arange(len(self.which))))
        bounds.end_query(self.which, self.received)
        return scores

    def follow(self, bounds: BoundsCache) -> StoredOutcome:
        """Make the steps with bounds and answers of the previous query."""
        cache, received, settings = self.cache, self.received, self.settings
        data, copies = cache.weighted, cache.copies
        if bounds.with_gram and cache.grams is None:
            cache.grams = GramMatrices(self.rows)
        grams, number = cache.grams, bounds.setting_number(settings)
        spread = cache.spread if self.inertia else NO_SPREAD

        def work(part: IntArray) -> None:
            which = self.which[part]
            jit_bounds.follow_labels(data, which, received, bounds.latest, copies, bounds.arrays)
            compile_ahead.wait()
            if grams is None or settings.max_local == 1:
                follow.follow_step(data, which, bounds.arrays, *spread)
            else:
                grams.prepare(data, which)
                follow.follow_steps(data, which, received, settings, number, grams.arrays, bounds.arrays)

        new = bounds.arrays.last_query[self.which] < 0
        in_threads(work, *self._parts(np.arange(len(self.which)), np.where(new, 1.0, _FOLLOWED)))
        bounds.end_query(self.which, received)
        return self._outcome(bounds.arrays.results, self.which)

    def _outcome(self, results: LocalResults, places: IntArray) -> StoredOutcome:
        return StoredOutcome(
            counts=results.counts[places],
            last_counts=results.last_counts[places],
            stack=results.means,
            places=places,
            status=results.status,
            received=self.received,
            n_threads=self.n_threads,
        )

    def add_inertia(self, bounds: BoundsCache, outcome: StoredOutcome) -> None:
        """Find the inertia after `follow`."""
        data, n_clients = self.cache.weighted, len(self.rows.starts) - 1
        inertia, received_inertia = np.empty((n_clients, len(self.received))), np.empty(n_clients)

        def work(part: IntArray) -> None:
            follow.inertia_of_clients(
                data, self.which[part], self.received, bounds.arrays, inertia, received_inertia
            )

        in_threads(work, *self._parts(np.arange(len(self.which))))
        outcome.inertia, outcome.received_inertia = inertia[self.which], received_inertia[self.which]

    def add_cached_inertia(self, bounds: BoundsCache, outcome: StoredOutcome) -> None:
        """Find the inertia after one local step, from what changed since the last time."""
        data, results = self.cache.weighted, bounds.arrays.results
        cache = bounds.inertia_cache(*self.cache.spread)
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
        data = self.cache.data
        results = new_results(len(self.which), k, m, self.inertia)
        places = np.arange(len(self.which))
        large = are_large(data.X, data.starts[self.which], data.starts[self.which + 1], m)

        def work(some: IntArray) -> None:
            clients.scan_clients(data, self.which[some], some, self.received, self.settings, results)

        small = places[~large]
        if len(small):
            in_threads(work, *self._parts(small))
        for place in places[large]:
            self._scan_large(int(place), results)
        outcome = self._outcome(results, places)
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
                self.cache.data, start, stop, local, self.n_threads, sums=True, inertia=self.inertia
            )
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
