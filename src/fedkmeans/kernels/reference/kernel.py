"""The plain kernel: `fedkmeans.kernels.reference.lloyd`, one client after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkmeans._utils.threads import in_threads
from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import Clustered, DeltaArrays, LocalSummary, NewStatistics, Rows
from fedkmeans.kernels.reference import kmeans, lloyd, totals
from fedkmeans.kernels.sparse import Table


@dataclass(frozen=True, slots=True)
class Summaries:
    """An `Outcome` with one summary per client."""

    summaries: list[LocalSummary]

    @property
    def counts(self) -> FloatArray:
        """Of the first step."""
        return np.array([local.counts for local in self.summaries])

    @property
    def last_counts(self) -> FloatArray:
        """Of the last step."""
        return np.array([local.last_counts for local in self.summaries])

    @property
    def inertia(self) -> FloatArray:
        """Per cluster; NaN if not requested."""
        return np.array([local.inertia for local in self.summaries])

    @property
    def received_inertia(self) -> FloatArray:
        """Over all clusters; NaN if not requested."""
        return np.array([local.received_inertia for local in self.summaries])

    changes = None

    def centroids(self, place: int) -> FloatArray:
        """Local centroids of one client."""
        return self.summaries[place].centroids.copy()

    def stacked(self) -> tuple[FloatArray, IntArray]:
        """Local centroids of all clients."""
        return np.stack([local.centroids for local in self.summaries]), np.arange(len(self.summaries))

    def add_to(self, weights: FloatArray, weighted_sum: FloatArray, plain_sum: FloatArray) -> None:
        """Add Σ ω c and Σ c."""
        for local, weight in zip(self.summaries, weights, strict=True):
            weighted_sum += weight[:, None] * local.centroids
            plain_sum += local.centroids


class Plain:
    """See `Kernel`."""

    name = "numpy"

    def assign(self, X: Table, centroids: FloatArray, n_threads: int = 1) -> IntArray:
        """Label of the nearest centroid for every row."""
        return lloyd.assign(X, centroids)

    def lloyd_step(
        self,
        X: Table,
        centroids: FloatArray,
        sample_weight: FloatArray | None = None,
        n_threads: int = 1,
    ) -> tuple[FloatArray, FloatArray]:
        """Sums and counts per cluster."""
        return lloyd.cluster_sums(X, lloyd.assign(X, centroids), len(centroids), sample_weight)

    def inertia(
        self,
        X: Table,
        centroids: FloatArray,
        sample_weight: FloatArray | None = None,
        n_threads: int = 1,
    ) -> float:
        """Sum of squared distances to the nearest centroid."""
        labels = lloyd.assign(X, centroids)
        return float(lloyd.inertia_per_cluster(X, centroids, labels, sample_weight).sum())

    def inertia_each(
        self, rows: Rows, which: IntArray, centroids: FloatArray, n_threads: int = 1
    ) -> FloatArray:
        """The same for the rows of each client."""

        def work(client: int) -> float:
            X, weight = rows.shard(client)
            return self.inertia(X, centroids, weight)

        return np.array(in_threads(work, [(int(client),) for client in which], n_threads))

    def lloyd(
        self, X: Table, centroids: FloatArray, max_iter: int, sample_weight: FloatArray | None = None
    ) -> FloatArray:
        """Lloyd's steps until no label changes."""
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
        """k-means from `n_init` starts."""
        return kmeans.kmeans(X, n_clusters, rng, n_init, max_iter, sample_weight)

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

        def work(client: int, k: int, rng: np.random.Generator) -> Clustered:
            X, weight = rows.shard(client)
            return Clustered(self.kmeans(X, k, rng, n_init, max_iter, weight))

        return in_threads(work, list(zip(which, n_clusters, rngs, strict=True)), n_threads)

    def local_steps(
        self,
        rows: Rows,
        which: IntArray,
        centroids: FloatArray,
        *,
        max_local: int,
        tol_local: float,
        empty_clusters: str,
        inertia: bool = False,
        n_threads: int = 1,
    ) -> Summaries:
        """Local steps of some clients."""

        def work(client: int) -> LocalSummary:
            X, weight = rows.shard(client)
            return lloyd.local_update(
                X,
                centroids,
                max_local=max_local,
                tol_local=tol_local,
                empty_clusters=empty_clusters,
                sample_weight=weight,
                with_inertia=inertia,
            )

        return Summaries(in_threads(work, [(int(client),) for client in which], n_threads))

    def renew(
        self,
        high: FloatArray,
        low: FloatArray,
        last: FloatArray,
        slots: IntArray,
        new: NewStatistics,
        n_threads: int = 1,
    ) -> None:
        """Replace statistics of clients in a running total."""
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
        """Find what changed at clients and add it to a total."""
        totals.renew_deltas(state, slots, modes, new, total)

    renew_numbers = staticmethod(totals.renew_numbers)

    def expect(self, rows: Rows, k: int, max_local: int) -> None:
        """Do nothing: there is nothing to prepare."""

    def at_a_time(self, rows: Rows, centroids: FloatArray) -> int:
        """As many clients as have 32 MB of local centroids."""
        return max(1, 2**22 // centroids.size)


KERNEL = Plain()
