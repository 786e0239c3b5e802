"""The interface of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.sparse import Table


@dataclass(slots=True)
class Rows:
    """The rows of one or several clients in one table.

    Attributes
    ----------
    X : ndarray or SparseRows of shape (n, m)
    starts : ndarray of shape (N + 1,)
        Client i has the rows from starts[i] up to starts[i + 1].
    sample_weight : ndarray of shape (n,) or None
    cache : object
        What a kernel keeps about these rows; only the kernel reads it.
    """

    X: Table
    starts: IntArray
    sample_weight: FloatArray | None = None
    cache: Any = field(default=None, repr=False)

    @property
    def sizes(self) -> IntArray:
        """Number of rows of each client, shape (N,)."""
        return self.starts[1:] - self.starts[:-1]

    def part(self, client: int) -> slice:
        """The rows of a client as a slice."""
        return slice(int(self.starts[client]), int(self.starts[client + 1]))

    def shard(self, client: int) -> tuple[Table, FloatArray | None]:
        """Rows (n_i, m) and weights (n_i,) of a client, as views."""
        part = self.part(client)
        return self.X[part], None if self.sample_weight is None else self.sample_weight[part]


def protect(*arrays: FloatArray) -> None:
    """Make arrays read-only, so that a weighting rule or an observer cannot change them."""
    for array in arrays:
        array.setflags(write=False)


@dataclass(frozen=True, slots=True)
class LocalSummary:
    """Result of a client's local steps; a weighting rule turns it into weights.

    Attributes
    ----------
    centroids : ndarray of shape (k, m)
        The local centroids c_ij.
    counts : ndarray of shape (k,)
        Points (or their sample weight) nearest to each centroid **as received**: the paper's ω_ij.
    last_counts : ndarray of shape (k,)
        Points (or their sample weight) in each cluster in the last local step.
    inertia : ndarray of shape (k,)
        Sum of squared distances of those points to their local centroid, per cluster.
    n_samples : float
        Rows of the client, or the sum of its sample weights.
    received_inertia : float
        Sum of squared distances of all points to the nearest centroid **as received**.
    """

    centroids: FloatArray
    counts: FloatArray
    last_counts: FloatArray
    inertia: FloatArray
    n_samples: float
    received_inertia: float = float("nan")

    def __post_init__(self) -> None:
        protect(self.centroids, self.counts, self.last_counts, self.inertia)


WeightingRule: TypeAlias = Callable[[LocalSummary], FloatArray]


class Clustered(NamedTuple):
    """Result of k-means: centroids (k, m), and counts (k,) if another step would change nothing."""

    centroids: FloatArray
    counts: FloatArray | None = None


_STAMPS = count(1)


def next_stamp() -> int:
    """A number for one reply of one or several clients; no other reply in this process has it."""
    return next(_STAMPS)


class Changes(NamedTuple):
    """What is the same as in the last replies of A clients.

    `previous` (A,) holds the stamps of these replies, -1 where there are none; `stamp` is that of the
    new ones; `same` (A, k) marks clusters that still have the same points.
    """

    previous: IntArray
    stamp: int
    same: Any


class NewStatistics(NamedTuple):
    """New statistics of A clients for a running total: factor times values, and weights.

    Attributes
    ----------
    values : ndarray of shape (P, k, m)
    places : ndarray of shape (A,)
        Places of the clients in `values`.
    factor : ndarray of shape (A, k)
    weight : ndarray of shape (A, k)
        Where it is zero, the values are not read.
    same : ndarray of shape (A, k), bool
        Clusters whose values are known to be the same as the last time.
    """

    values: FloatArray
    places: IntArray
    factor: FloatArray
    weight: FloatArray
    same: Any


class DeltaArrays(NamedTuple):
    """What N clients have sent towards a running total.

    Attributes
    ----------
    high, low : ndarray of shape (N, k, m + 2)
        Sum of each client's changes that were counted.
    pending : ndarray of shape (N, k, m + 2)
        Its latest change.
    settled : ndarray of shape (N, k)
        Weight of each cluster if its latest change is zero; otherwise NaN.
    """

    high: FloatArray
    low: FloatArray
    pending: FloatArray
    settled: FloatArray


class Outcome(Protocol):
    """Result of the local steps of A clients; valid until the next local steps on the same rows."""

    @property
    def counts(self) -> FloatArray:
        """As in a `LocalSummary`, one row per client, shape (A, k)."""
        ...

    @property
    def last_counts(self) -> FloatArray:
        """As in a `LocalSummary`, shape (A, k)."""
        ...

    @property
    def inertia(self) -> FloatArray | None:
        """As in a `LocalSummary`, shape (A, k); only if requested."""
        ...

    @property
    def received_inertia(self) -> FloatArray | None:
        """As in a `LocalSummary`, shape (A,); only if requested."""
        ...

    @property
    def changes(self) -> Changes | None:
        """What is the same as the last time; None if the kernel does not know."""
        ...

    def centroids(self, place: int) -> FloatArray:
        """Local centroids of one client, a new array of shape (k, m)."""
        ...

    def stacked(self) -> tuple[FloatArray, IntArray]:
        """Local centroids of clusters with points as an array (P, k, m), and each client's place in it (A,).

        The array belongs to the kernel: the next local steps on the same rows may overwrite it.
        """
        ...

    def add_to(self, weights: FloatArray, weighted_sum: FloatArray, plain_sum: FloatArray) -> None:
        """Add Σ ω c and Σ c over the clients, in their order, to arrays of shape (k, m).

        `weights` has shape (A, k).
        """
        ...


class Kernel(Protocol):
    """The arithmetic on rows; all kernels find the same labels."""

    name: str

    def assign(self, X: Table, centroids: FloatArray, n_threads: int = 1) -> IntArray:
        """Label of the nearest centroid for every row, shape (n,); the first one wins a tie."""
        ...

    def lloyd_step(
        self,
        X: Table,
        centroids: FloatArray,
        sample_weight: FloatArray | None = None,
        n_threads: int = 1,
    ) -> tuple[FloatArray, FloatArray]:
        """Sums (k, m) and counts (k,) of the rows nearest to each centroid, in one pass."""
        ...

    def inertia(
        self,
        X: Table,
        centroids: FloatArray,
        sample_weight: FloatArray | None = None,
        n_threads: int = 1,
    ) -> float:
        """Sum of squared distances of all rows to their nearest centroid."""
        ...

    def inertia_each(
        self, rows: Rows, which: IntArray, centroids: FloatArray, n_threads: int = 1
    ) -> FloatArray:
        """The inertia of each of the clients `which`, shape (A,)."""
        ...

    def lloyd(
        self, X: Table, centroids: FloatArray, max_iter: int, sample_weight: FloatArray | None = None
    ) -> FloatArray:
        """Lloyd's steps until no label changes, shape (k, m); empty clusters are relocated."""
        ...

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
        ...

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
        """The result of `kmeans` on the rows of each of the clients `which`, in one call."""
        ...

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
    ) -> Outcome:
        """Local steps of the clients `which`, in one call; see `lloyd.local_update`."""
        ...

    def renew(
        self,
        high: FloatArray,
        low: FloatArray,
        last: FloatArray,
        slots: IntArray,
        new: NewStatistics,
        n_threads: int = 1,
    ) -> None:
        """Replace statistics of clients in a running total; see `reference.totals.renew`."""
        ...

    def renew_deltas(
        self,
        state: DeltaArrays,
        slots: IntArray,
        modes: Any,
        new: NewStatistics,
        total: FloatArray,
        n_threads: int = 1,
    ) -> None:
        """Find what changed at clients and add it to a total (2, k, m + 2); see `reference.totals`."""
        ...

    def renew_numbers(
        self, high: FloatArray, low: FloatArray, last: FloatArray, slots: IntArray, new: FloatArray
    ) -> None:
        """Replace single numbers of clients in a running total; see `reference.totals.renew_numbers`."""
        ...

    def expect(self, rows: Rows, k: int, max_local: int) -> None:
        """Prepare in the background for such local steps with k centroids, which follow soon."""
        ...

    def at_a_time(self, rows: Rows, centroids: FloatArray) -> int:
        """Number of clients to pass to `local_steps` at a time, so that memory stays bounded."""
        ...
