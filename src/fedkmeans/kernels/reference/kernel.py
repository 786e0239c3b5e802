"""The plain kernel: `fedkmeans.kernels.reference.lloyd`, one client after the other.

Other kernels are derived from it, so it is also the interface of a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedkmeans._utils.threads import in_threads
from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import Clustered, DeltaArrays, LocalSummary, NewStatistics, Outcome, Rows
from fedkmeans.kernels.reference import kmeans, lloyd, totals
from fedkmeans.kernels.sparse import Table


class Kernel:
    """The arithmetic on rows; all kernels find the same labels."""

    name = "numpy"

    def assign(self, X: Table, centroids: FloatArray, n_threads: int = 1) -> IntArray:
        """Label of the nearest centroid for every row, shape (n,); the first one wins a tie."""
        return lloyd.assign(X, centroids)

    def lloyd_step(
        self, X: Table, centroids: FloatArray, sample_weight: FloatArray | None = None, n_threads: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Sums (k, m) and counts (k,) of the rows nearest to each centroid."""
        return lloyd.cluster_sums(X, lloyd.assign(X, centroids), len(centroids), sample_weight)

    def inertia(
        self, X: Table, centroids: FloatArray, sample_weight: FloatArray | None = None, n_threads: int = 1
    ) -> float:
        """Sum of squared distances of all rows to their nearest centroid."""
        labels = lloyd.assign(X, centroids)
        return float(lloyd.inertia_per_cluster(X, centroids, labels, sample_weight).sum())

    def inertia_each(
        self, rows: Rows, which: IntArray, centroids: FloatArray, n_threads: int = 1
    ) -> FloatArray:
        """The inertia of each of the clients `which`, shape (A,)."""
        inner, outer = (n_threads, 1) if len(which) < n_threads else (1, n_threads)

        def work(client: int) -> float:
            X, weight = rows.shard(client)
            return self.inertia(X, centroids, weight, inner)

        return np.array(in_threads(work, [(int(client),) for client in which], outer))

    def lloyd(
        self, X: Table, centroids: FloatArray, max_iter: int, sample_weight: FloatArray | None = None
    ) -> FloatArray:
        """Lloyd's steps until no label changes, shape (k, m); empty clusters are relocated."""
        return kmeans.lloyd(X, centroids, max_iter, sample_weight)

    def kmeans(
        self,
        X: Table,
        n_clusters: int,
        rng: np.random.Generator,
        n_init: int = 1,
        max_iter: int = 300,
        sample_weight: FloatArray | None = None,
    ) -> FloatArray:
        """k-means from `n_init` k-means++ starts: the best centroids, shape (k, m)."""
        rows = Rows.of(X, sample_weight)
        return self.kmeans_each(rows, np.array([0]), [n_clusters], [rng], n_init, max_iter)[0].centroids

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
        """The result of `kmeans` on the rows of each of the clients `which`."""

        def work(client: int, k: int, rng: np.random.Generator) -> Clustered:
            X, weight = rows.shard(client)
            return Clustered(kmeans.kmeans(X, k, rng, n_init, max_iter, weight))

        return in_threads(work, list(zip(which, n_clusters, rngs, strict=True)), n_threads)

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
        """Local steps of the clients `which`; see `lloyd.local_update`."""
        stack = np.empty((len(which), *centroids.shape))  # the centroids of all clients exist only once

        def work(place: int, client: int) -> LocalSummary:
            X, weight = rows.shard(client)
            local = lloyd.local_update(X, centroids, max_local, tol_local, empty_clusters, weight, inertia)
            stack[place] = local.centroids
            return replace(local, centroids=stack[place])

        found = in_threads(work, list(enumerate(which.tolist())), n_threads)
        return Outcome(
            counts=np.array([local.counts for local in found]),
            last_counts=np.array([local.last_counts for local in found]),
            stack=stack,
            places=np.arange(len(found)),
            inertia=np.array([local.inertia for local in found]),
            received_inertia=np.array([local.received_inertia for local in found]),
        )

    def renew(
        self,
        high: FloatArray,
        low: FloatArray,
        last: FloatArray,
        slots: IntArray,
        new: NewStatistics,
        n_threads: int = 1,
    ) -> None:
        """Replace statistics of clients in a running total; see `totals.renew`."""
        totals.renew(high, low, last, slots, new)

    def renew_deltas(
        self,
        state: DeltaArrays,
        slots: IntArray,
        modes: Any,
        new: NewStatistics,
        total: FloatArray,
        n_threads: int = 1,
    ) -> None:
        """Find what changed at clients and add it to a total; see `totals.renew_deltas`."""
        totals.renew_deltas(state, slots, modes, new, total)

    renew_numbers = staticmethod(totals.renew_numbers)

    def expect(self, rows: Rows, k: int, max_local: int) -> None:
        """Prepare in the background for such local steps with k centroids, which follow soon."""

    def at_a_time(self, rows: Rows, centroids: FloatArray) -> int:
        """Number of clients to pass to `local_steps` at a time: as many as have 32 MB of local centroids."""
        return max(1, 2**22 // centroids.size)


KERNEL = Kernel()
