"""What kernels are given and what they return; `reference.kernel` has the interface itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.sparse import Table


@dataclass(slots=True, eq=False, repr=False)  # rows must not appear in a message
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
    cache: Any = None

    @classmethod
    def of(cls, X: Table, sample_weight: FloatArray | None = None) -> Rows:
        """The rows of a single client."""
        return cls(X, np.array([0, len(X)]), sample_weight)

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

    @classmethod
    def nothing(cls, n_clients: int, k: int, m: int) -> DeltaArrays:
        """Return the arrays of clients that have sent nothing."""
        # One by one: for a single large array, no memory of an earlier run would be used again.
        high, low, pending = (np.zeros((n_clients, k, m + 2)) for _ in range(3))
        return cls(high, low, pending, np.full((n_clients, k), np.nan))


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Result of the local steps of A clients; valid until the next local steps on the same rows.

    Attributes
    ----------
    counts, last_counts : ndarray of shape (A, k)
        As in a `LocalSummary`, one row per client.
    inertia, received_inertia : ndarray of shape (A, k) and (A,), or None
        The same, if they were requested.
    stack : ndarray of shape (P, k, m)
        Local centroids of clusters with points. The array belongs to the kernel, which may overwrite it.
    places : ndarray of shape (A,)
        Places of the clients in `stack`.
    changes : Changes or None
        What is the same as the last time, if the kernel knows.
    """

    counts: FloatArray
    last_counts: FloatArray
    stack: FloatArray
    places: IntArray
    inertia: FloatArray | None = None
    received_inertia: FloatArray | None = None
    changes: Changes | None = None

    def centroids(self, place: int) -> FloatArray:
        """Local centroids of one client, a new array of shape (k, m)."""
        return np.array(self.stack[self.places[place]])

    def add_to(
        self,
        weights: FloatArray,
        weighted_sum: FloatArray,
        plain_sum: FloatArray,
        clusters: IntArray | None = None,
    ) -> None:
        """Add Σ ω c and Σ c over the clients, in their order, to arrays (k, m); `weights` is (A, k).

        Only `clusters` are added, if these are given.
        """
        some: Any = slice(None) if clusters is None else clusters
        for place, weight in zip(self.places, weights, strict=True):
            weighted_sum[some] += weight[some, None] * self.stack[place, some]
            plain_sum[some] += self.stack[place, some]
