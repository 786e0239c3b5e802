"""Words, and a running total of them that does not drift however often they are renewed.

A word is what a client says about its clusters. In a running total each number is held as an
unevaluated sum of two doubles (Knuth's TwoSum finds what an addition rounds off), about 32 digits
in all: a word that is taken off again leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedkmeans._utils.typing import FloatArray
from fedkmeans.errors import WireError
from fedkmeans.protocol.constraints import LARGEST, Array, Real
from fedkmeans.protocol.declaration import Reply, message
from fedkmeans.protocol.field_types import register


@message
class ClusterStatistics(Reply):
    """What a client says about its clusters, as sums: words of clients and of rounds add up.

    Attributes
    ----------
    weighted_sum : ndarray of shape (k, m)
        ω c, the local centroids times their weights.
    weight : ndarray of shape (k,)
        ω; zero for a cluster in which the client has no points.
    holders : ndarray of shape (k,)
        One where ω > 0, so that a total tells an empty cluster from one that rounding left over.
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
            array.setflags(write=False)  # a word is remembered as it was said

    @classmethod
    def nothing(cls, k: int, m: int) -> ClusterStatistics:
        """Return the word of nobody."""
        return cls(np.zeros((k, m)), np.zeros(k), np.zeros(k), 0.0, 0.0)

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
        """The numbers, in the order in which they make a word."""
        return self.weighted_sum, self.weight, self.holders, self.inertia, self.n_samples

    def __add__(self, other: ClusterStatistics) -> ClusterStatistics:
        return ClusterStatistics(*(a + b for a, b in zip(self.parts(), other.parts(), strict=True)))

    def __sub__(self, other: ClusterStatistics) -> ClusterStatistics:
        return ClusterStatistics(*(a - b for a, b in zip(self.parts(), other.parts(), strict=True)))

    def __neg__(self) -> ClusterStatistics:
        return self * -1.0

    def __mul__(self, factor: float) -> ClusterStatistics:
        return ClusterStatistics(*(factor * part for part in self.parts()))


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the rounded sum of numbers or arrays, and exactly what the rounding took off."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


@dataclass(frozen=True, slots=True)
class RunningTotal:
    """The total `high` + `low`, where `high` is the total rounded to double precision."""

    high: ClusterStatistics
    low: ClusterStatistics

    @classmethod
    def nothing(cls, k: int, m: int) -> RunningTotal:
        """Return the total of no words."""
        return cls(ClusterStatistics.nothing(k, m), ClusterStatistics.nothing(k, m))

    @classmethod
    def of(cls, word: ClusterStatistics) -> RunningTotal:
        """Return the total of one word."""
        return cls(word, ClusterStatistics.nothing(*word.weighted_sum.shape))

    def plus(self, word: ClusterStatistics) -> RunningTotal:
        """Add a word; `plus(-word)` takes it off again."""
        highs, lows = [], []
        for high, low, part in zip(self.high.parts(), self.low.parts(), word.parts(), strict=True):
            total, rest = two_sum(high, part)
            total, rest = two_sum(total, rest + low)
            highs.append(total)
            lows.append(rest)
        return RunningTotal(ClusterStatistics(*highs), ClusterStatistics(*lows))

    def __add__(self, other: RunningTotal) -> RunningTotal:
        return self.plus(other.high).plus(other.low)

    def to(self, word: ClusterStatistics) -> ClusterStatistics:
        """What must be added to arrive at `word`, rounded to double precision."""
        return word - self.high - self.low


register(RunningTotal)
