"""Statistics of a client's clusters, and exact running totals of them.

A running total keeps each number as an unevaluated sum of two doubles, about 32 digits: `two_sum`
(Knuth's TwoSum) returns exactly what an addition rounds off. Statistics that are subtracted again
leave nothing behind, however often clients renew them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from fedkmeans._utils.typing import ClientId, FloatArray, IntArray
from fedkmeans.errors import WireError
from fedkmeans.kernels.base import Changes, NewStatistics
from fedkmeans.kernels.reference.totals import plus, two_sum
from fedkmeans.protocol.constraints import LARGEST, Array, Real
from fedkmeans.protocol.declaration import Reply, message
from fedkmeans.protocol.field_types import register

__all__ = ["ClusterStatistics", "RunningTotal", "StackedStatistics", "two_sum"]

# Plain replies with so many numbers, or of so many clients, are worth loading the compiled kernel.
_MANY_NUMBERS, _MANY_CLIENTS = 2**22, 500


@message
class ClusterStatistics(Reply):
    """Statistics of a client's clusters, as sums: those of several clients or rounds add up.

    Attributes
    ----------
    weighted_sum : ndarray of shape (k, m)
        ω c, the local centroids times their weights.
    weight : ndarray of shape (k,)
        ω; zero for a cluster in which the client has no points.
    holders : ndarray of shape (k,)
        One where ω > 0, so that a total distinguishes an empty cluster from one that only holds a
        rounding error.
    inertia : float
        Squared distances of the client's points to the centroids as received.
    n_samples : float
    """

    weighted_sum: Annotated[FloatArray, Array(("k", "m"), largest=np.inf)]
    weight: Annotated[FloatArray, Array(("k",))]
    holders: Annotated[FloatArray, Array(("k",))]
    inertia: Annotated[float, Real()]
    n_samples: Annotated[float, Real()]

    def __post_init__(self) -> None:
        for array in (self.weighted_sum, self.weight, self.holders):
            array.setflags(write=False)  # statistics are remembered as they were sent

    @classmethod
    def nothing(cls, k: int, m: int) -> ClusterStatistics:
        """Return the statistics of no client: zeros."""
        return cls(np.zeros((k, m)), np.zeros(k), np.zeros(k), 0.0, 0.0)

    @property
    def mean_inertia(self) -> float:
        """Inertia per sample; NaN if there are no samples."""
        return self.inertia / self.n_samples if self.n_samples > 0 else float("nan")

    def check_for(self, query: Any) -> None:
        """Refuse what cannot be the statistics of one client; a difference of two may be anything."""
        if (self.weight < 0).any():
            raise WireError("weight has negative values.")
        # The sums are weights times centroids, so a cluster without weight has no sum either.
        if (np.abs(self.weighted_sum) > self.weight[:, None] * LARGEST).any():
            raise WireError("weighted_sum is huge compared with weight, or there is no weight.")
        if not np.array_equal(self.holders, self.weight > 0):
            raise WireError("holders is not one where there is weight and zero elsewhere.")
        Real(0).check("inertia", self.inertia, {})
        Real(positive=True).check("n_samples", self.n_samples, {})

    def parts(self) -> tuple[Any, ...]:
        """The numbers, in the order of the attributes."""
        return self.weighted_sum, self.weight, self.holders, self.inertia, self.n_samples

    def __add__(self, other: ClusterStatistics) -> ClusterStatistics:
        return ClusterStatistics(*(a + b for a, b in zip(self.parts(), other.parts(), strict=True)))

    def __sub__(self, other: ClusterStatistics) -> ClusterStatistics:
        return ClusterStatistics(*(a - b for a, b in zip(self.parts(), other.parts(), strict=True)))

    def __neg__(self) -> ClusterStatistics:
        return self * -1.0

    def __mul__(self, factor: float) -> ClusterStatistics:
        return ClusterStatistics(*(factor * part for part in self.parts()))


@dataclass(slots=True, eq=False, weakref_slot=True)
class StackedStatistics(Mapping[ClientId, ClusterStatistics]):
    """Statistics of several clients in stacked arrays; `[name]` makes the record of one client.

    Attributes
    ----------
    names : tuple of str
        Clients, sorted.
    stack : ndarray of shape (P, k, m)
        Local centroids, or sums. They may belong to a kernel, see `detach`.
    places : ndarray of shape (A,)
        Place of each client in `stack`.
    factor : ndarray of shape (A, k)
        ω c is `factor` times `stack`: ω itself for centroids, one for sums.
    weight : ndarray of shape (A, k)
        ω; where it is zero, `stack` may hold anything.
    numbers : ndarray of shape (A, 2)
        Inertia and number of samples.
    changes : Changes or None
        Clusters that are the same as in the clients' last replies, if that is known.
    kernel : str
        Kernel that should add these statistics up.
    n_threads : int
    lock : context manager
        Held by everybody who reads `stack`.
    """

    names: tuple[ClientId, ...]
    stack: FloatArray
    places: IntArray
    factor: FloatArray
    weight: FloatArray
    numbers: FloatArray
    changes: Changes | None = None
    kernel: str = "numpy"
    n_threads: int = 1
    lock: AbstractContextManager[Any] = field(default_factory=nullcontext)
    _index: dict[ClientId, int] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, statistics: Mapping[ClientId, ClusterStatistics]) -> StackedStatistics:
        """Stack the records of one client or more; stacked ones are returned as they are."""
        if isinstance(statistics, StackedStatistics):
            return statistics
        names = tuple(sorted(statistics))
        records = [statistics[name] for name in names]
        sums = np.stack([record.weighted_sum for record in records])
        large = sums.size > _MANY_NUMBERS or len(names) > _MANY_CLIENTS
        weight = np.stack([record.weight for record in records])
        return cls(
            names,
            sums,
            np.arange(len(names)),
            np.ones_like(weight),
            weight,
            np.array([(record.inertia, record.n_samples) for record in records], dtype=np.float64),
            kernel="numba" if large else "numpy",
        )

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, client: ClientId) -> ClusterStatistics:
        if not self._index:
            self._index.update({name: place for place, name in enumerate(self.names)})
        with self.lock:
            return self.record(self._index[client])

    def record(self, place: int) -> ClusterStatistics:
        """Return the statistics of the client at this place; the caller holds the lock."""
        weight, sums = self.weight[place].copy(), np.zeros(self.stack.shape[1:])
        factor, values = self.factor[place, :, None], self.stack[self.places[place]]
        np.multiply(factor, values, out=sums, where=weight[:, None] > 0)
        return ClusterStatistics(sums, weight, (weight > 0).astype(np.float64), *self.numbers[place].tolist())

    def new(self, places: IntArray | slice, stamps: IntArray) -> tuple[NewStatistics, int]:
        """Statistics of some clients for a total that has their replies with these stamps, and the new stamp.

        The caller holds the lock.
        """
        weight = self.weight[places]
        same, stamp = np.zeros(weight.shape, dtype=np.bool_), -2  # -2: known to nobody
        if self.changes is not None:
            stamp = self.changes.stamp
            same = self.changes.same[places] & (self.changes.previous[places] == stamps)[:, None]
        return NewStatistics(self.stack, self.places[places], self.factor[places], weight, same), stamp

    def new_numbers(self, places: IntArray) -> NewStatistics:
        """The numbers of some clients, as the sums of a single cluster with a weight of one."""
        ones = np.ones((len(places), 1))
        return NewStatistics(self.numbers[:, None], places, ones, ones, np.zeros(ones.shape, dtype=np.bool_))

    def detach(self) -> None:
        """Copy the stack; then the kernel may overwrite its own. The caller holds the lock."""
        self.stack, self.places = self.stack[self.places], np.arange(len(self.names))


@dataclass(frozen=True, slots=True)
class RunningTotal:
    """The total `high` + `low`, where `high` is the total rounded to double precision."""

    high: ClusterStatistics
    low: ClusterStatistics

    @classmethod
    def nothing(cls, k: int, m: int) -> RunningTotal:
        """Return an empty total."""
        return cls(ClusterStatistics.nothing(k, m), ClusterStatistics.nothing(k, m))

    @classmethod
    def of(cls, statistics: ClusterStatistics) -> RunningTotal:
        """Return the total of the statistics of one client."""
        return cls(statistics, ClusterStatistics.nothing(*statistics.weighted_sum.shape))

    @classmethod
    def of_rows(cls, rows: FloatArray, numbers: FloatArray) -> RunningTotal:
        """Return a total from rows (2, k, m + 2) and numbers (2, 2), as kernels keep it."""
        high, low = (
            ClusterStatistics(part[:, :-2], part[:, -2], part[:, -1], float(inertia), float(n_samples))
            for part, (inertia, n_samples) in zip(rows, numbers, strict=True)
        )
        return cls(high, low)

    def plus(self, statistics: ClusterStatistics) -> RunningTotal:
        """Add statistics; `plus(-statistics)` subtracts them again."""
        # In most rounds few clusters change.
        changed = statistics.weighted_sum.any(axis=1) | (statistics.weight != 0) | (statistics.holders != 0)
        rows = np.flatnonzero(changed)
        highs, lows = [], []
        for high, low, part in zip(self.high.parts(), self.low.parts(), statistics.parts(), strict=True):
            if not isinstance(part, np.ndarray) or 2 * len(rows) > len(changed):
                sums, rests = plus(high, low, part)
            elif len(rows):
                sums, rests = high.copy(), low.copy()
                sums[rows], rests[rows] = plus(high[rows], low[rows], part[rows])
            else:
                sums, rests = high, low
            highs.append(sums)
            lows.append(rests)
        return RunningTotal(ClusterStatistics(*highs), ClusterStatistics(*lows))

    def __add__(self, other: RunningTotal) -> RunningTotal:
        return self.plus(other.high).plus(other.low)

    def to(self, statistics: ClusterStatistics) -> ClusterStatistics:
        """What must be added to arrive at `statistics`, rounded to double precision."""
        return statistics - self.high - self.low


register(RunningTotal)
