"""The fast kernel: compiled, in threads, and with a cache of each client's last local steps.

There are three ways to make local steps, all with the same results:

- *scan*: every step is one pass over the rows, for small problems and for clients too large for the
  next way. It needs memory for a block of rows and the centroids, independent of the number of rows.
- *follow*: the first labels come from bounds that are kept between rounds (see `jit.bounds`), further
  steps from the Gram matrix of the client's rows. The cache is at most twice as large as the rows.
- clients with very many rows are cut into parts, which several threads scan.

Sparse rows are always scanned: their products are cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401 - compiled code uses its matrix product; `threads` must find it

from fedkmeans._utils.threads import in_threads
from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import Clustered, DeltaArrays, NewStatistics, Outcome, Rows
from fedkmeans.kernels.numba import compile_ahead, gram_kmeans
from fedkmeans.kernels.numba.gram_kmeans import Draws
from fedkmeans.kernels.numba.jit import kmeans, totals
from fedkmeans.kernels.numba.jit.structures import StepSettings
from fedkmeans.kernels.numba.kernel_cache import KernelCache
from fedkmeans.kernels.numba.local_steps import LocalSteps, by_clusters
from fedkmeans.kernels.numba.scanning import as_clients, as_data, as_double, scan_rows
from fedkmeans.kernels.reference import kernel as reference
from fedkmeans.kernels.reference.kmeans import BETTER, best_of, lloyd
from fedkmeans.kernels.reference.lloyd import double_block, means
from fedkmeans.kernels.sparse import SMALL, SparseRows, Table

# Numbers in the local centroids that are held at a time if nothing is kept.
_HELD = 2**22

_ONE_STEP = StepSettings(max_local=1, tol_local=0.0, drop=False)


def _arrays_of(new: NewStatistics) -> tuple[Any, ...]:
    return new.values, new.places, new.factor, new.weight, new.same


class Fast(reference.Kernel):
    """The same, faster."""

    name = "numba"

    def assign(self, X: Table, centroids: FloatArray, n_threads: int = 1) -> IntArray:
        """Label of the nearest centroid for every row."""
        labels = np.empty(len(X), dtype=np.int32)
        scan_rows(as_clients(Rows.of(X)), 0, len(X), as_double(centroids), n_threads, labels)
        return labels.astype(np.intp)

    def lloyd_step(
        self, X: Table, centroids: FloatArray, sample_weight: FloatArray | None = None, n_threads: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Sums and counts per cluster."""
        data = as_clients(Rows.of(X, sample_weight))
        return scan_rows(data, 0, len(X), as_double(centroids), n_threads, sums=True)[:2]

    def inertia(
        self, X: Table, centroids: FloatArray, sample_weight: FloatArray | None = None, n_threads: int = 1
    ) -> float:
        """Sum of squared distances to the nearest centroid."""
        data = as_clients(Rows.of(X, sample_weight))
        return float(scan_rows(data, 0, len(X), as_double(centroids), n_threads, inertia=True)[2].sum())

    def inertia_each(
        self, rows: Rows, which: IntArray, centroids: FloatArray, n_threads: int = 1
    ) -> FloatArray:
        """The same for the rows of each client, with the bounds of the last round if there are any."""
        received, cache = as_double(centroids), cache_of(rows)
        bounds = cache.nearest_bounds(received)
        if bounds is not None:
            with cache.following(bounds):
                return LocalSteps(rows, cache, which, received, _ONE_STEP, n_threads=n_threads).score(bounds)
        return super().inertia_each(rows, which, received, n_threads)

    def lloyd(
        self, X: Table, centroids: FloatArray, max_iter: int, sample_weight: FloatArray | None = None
    ) -> FloatArray:
        """Lloyd's steps until no label changes."""
        rows = Rows.of(X, sample_weight)
        cache = cache_of(rows)
        bounds = cache.find_bounds(rows, as_double(centroids), with_gram=False)

        def step(centroids: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
            """Labels, means and counts, with the bounds of the last step if there are any."""
            received = as_double(centroids)
            if bounds is not None:
                found = LocalSteps(rows, cache, np.array([0]), received, _ONE_STEP).follow(bounds)
                return bounds.arrays.labels.copy(), found.centroids(0), found.counts[0]
            labels: IntArray = np.empty(len(X), dtype=np.int32)
            sums, counts, _ = scan_rows(cache.data, 0, len(X), received, 1, labels, sums=True)
            return labels, means(sums, counts, otherwise=received), counts

        return lloyd(X, centroids, max_iter, sample_weight, step)

    def kmeans_each(
        self,
        rows: Rows,
        which: IntArray,
        n_clusters: Sequence[int],
        rngs: Sequence[np.random.Generator],
        n_init: int = 1,
        max_iter: int = 300,
        n_threads: int = 1,
    ) -> list[Clustered]:
        """k-means on the rows of each client."""
        weights = cache_of(rows).weighted.weight
        draws = [
            Draws.of(weights[rows.part(client)], k, rng, n_init)
            for client, k, rng in zip(which, n_clusters, rngs, strict=True)
        ]
        return self._cluster(rows, which, draws, max_iter, n_threads)

    def _cluster(
        self, rows: Rows, which: IntArray, draws: list[Draws], max_iter: int, n_threads: int
    ) -> list[Clustered]:
        """k-means on the rows of each client; clients with few rows use Gram matrices, in one call."""
        few = np.flatnonzero(gram_kmeans.are_few(rows, which, draws))
        size = max(1, _HELD // (max(draw.k for draw in draws) * rows.X.shape[1]))
        results: dict[int, Clustered] = {}
        for start in range(0, len(few), size):
            some = few[start : start + size]
            some_draws = [draws[place] for place in some]
            found = gram_kmeans.cluster_each(
                cache_of(rows).weighted, which[some], some_draws, max_iter, n_threads
            )
            results |= {place: one for place, one in zip(some, found, strict=True) if one is not None}

        def alone(place: int) -> Clustered:
            X, weight = rows.shard(which[place])
            if isinstance(X, SparseRows) and X.size <= SMALL:
                # So few rows are clustered faster as dense rows.
                dense = Rows.of(X.dense(), weight)
                return self._cluster(dense, np.array([0]), [draws[place]], max_iter, 1)[0]
            starts = self._plusplus(X, draws[place], weight)
            centroids = best_of(
                len(draws[place].firsts),
                lambda: self.lloyd(X, double_block(X, next(starts)), max_iter, weight),
                lambda centroids: self.inertia(X, centroids, weight),
            )
            return Clustered(centroids)

        others = [place for place in range(len(which)) if place not in results]
        results |= dict(
            zip(others, in_threads(alone, [(place,) for place in others], n_threads), strict=True)
        )
        return [results[place] for place in range(len(which))]

    def _plusplus(self, X: Table, draws: Draws, sample_weight: FloatArray | None) -> Iterator[IntArray]:
        """The rows from which each start begins, shape (k,)."""
        weight = np.ones(len(X)) if sample_weight is None else as_double(sample_weight)
        for first, uniforms in zip(*draws, strict=True):
            chosen = np.full(draws.k, first)
            kmeans.plusplus(as_data(X), X.shape[1], weight, uniforms, BETTER, chosen)
            yield chosen

    def local_steps(
        self,
        rows: Rows,
        which: IntArray,
        centroids: FloatArray,
        max_local: int,
        tol_local: float,
        empty_clusters: str,
        inertia: bool = False,
        n_threads: int = 1,
    ) -> Outcome:
        """Local steps of some clients; the plain version relocates empty clusters."""
        if empty_clusters == "relocate":
            return super().local_steps(
                rows, which, centroids, max_local, tol_local, empty_clusters, inertia, n_threads
            )
        settings = StepSettings(int(max_local), float(tol_local), empty_clusters == "drop")
        cache, received = cache_of(rows), as_double(centroids)
        steps = LocalSteps(rows, cache, which, received, settings, inertia, n_threads)
        bounds = cache.find_bounds(rows, received, with_gram=max_local > 1)
        if bounds is None:
            return steps.scan()
        with cache.following(bounds):
            outcome = steps.follow(bounds)
            if inertia:
                add_inertia = steps.add_cached_inertia if max_local == 1 else steps.add_inertia
                add_inertia(bounds, outcome)
            return outcome

    def renew(
        self,
        high: FloatArray,
        low: FloatArray,
        last: FloatArray,
        slots: IntArray,
        new: NewStatistics,
        n_threads: int = 1,
    ) -> None:
        """Replace statistics of clients in a running total, several clusters at a time."""
        by_clusters(
            lambda first, stop: totals.renew(high, low, last, slots, _arrays_of(new), first, stop),
            len(high),
            new.values[0].size * len(slots),
            n_threads,
        )

    def renew_deltas(
        self,
        state: DeltaArrays,
        slots: IntArray,
        modes: Any,
        new: NewStatistics,
        total: FloatArray,
        n_threads: int = 1,
    ) -> None:
        """Find what changed at clients and add it to a total, several clusters at a time."""
        # Plain tuples: compiled code on disk does not depend on classes outside its folder.
        kept = state.high, state.low, state.pending, state.settled
        by_clusters(
            lambda first, stop: totals.renew_deltas(kept, slots, modes, _arrays_of(new), total, first, stop),
            total.shape[1],
            new.values[0].size * len(slots),
            n_threads,
        )

    def renew_numbers(
        self, high: FloatArray, low: FloatArray, last: FloatArray, slots: IntArray, new: FloatArray
    ) -> None:
        """Replace single numbers of clients in a running total."""
        totals.renew_numbers(high, low, last, slots, new)

    def expect(self, rows: Rows, k: int, max_local: int) -> None:
        """Start to compile what such local steps need, in another process and once per machine."""
        if cache_of(rows).may_follow(rows, k, with_gram=max_local > 1):
            compile_ahead.start(cache_of(rows).data.X.dtype, "steps" if max_local > 1 else "step")

    def at_a_time(self, rows: Rows, centroids: FloatArray) -> int:
        """All if answers are kept, else as many as have 32 MB of local centroids."""
        if cache_of(rows).may_follow(rows, len(centroids), with_gram=True):
            return len(rows.starts)
        return max(1, _HELD // centroids.size)


def cache_of(rows: Rows) -> KernelCache:
    """What is kept about these rows."""
    if rows.cache is None:
        rows.cache = KernelCache(as_clients(rows))
    cache: KernelCache = rows.cache
    return cache


KERNEL = Fast()
