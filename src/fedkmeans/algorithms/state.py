"""The run: what a round finds out, what is carried on to the next, and what is reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkmeans._utils.typing import ClientId, FloatArray
from fedkmeans.kernels.base import protect
from fedkmeans.protocol.messages import ScoreTotals


@dataclass(frozen=True, slots=True)
class Target:
    """What a round found out: where the centroids should go, and how it knows.

    Attributes
    ----------
    d : ndarray of shape (k, m)
        The aggregated centroids, d^(t) in the paper.
    answered : tuple of str
    sent, received : int
        Bytes to and from all clients in the exchanges of this round.
    memory : object
        What the aggregation wants to be given back in the next round; None without memory.
    estimate : float
        Mean squared distance over all rows as far as the server knows it: for each client at the
        centroids that were sent to it when it was last heard. NaN where it does not know.
    window : int or None
        How many rounds back one must go until every client has been heard; None if some never was.
        Without memory each round stands for itself: 1.
    """

    d: FloatArray
    answered: tuple[ClientId, ...]
    sent: int
    received: int
    memory: Any = None
    estimate: float = float("nan")
    window: int | None = 1


@dataclass(frozen=True, slots=True)
class State:
    """All that a run carries from one round to the next.

    Attributes
    ----------
    centroids, previous : ndarray of shape (k, m)
        C^(t) and C^(t-1); equal before the first round.
    round : int
        Rounds done so far.
    movements, estimates : tuple of float
        Movements ‖C^(t) - C^(t-1)‖_F and estimates of the score, oldest first, of rounds in which
        anybody answered; no more than the stopping criteria look back on.
    window : int or None
        Of the latest `Target`.
    memory : object
        Of the latest `Target`.
    """

    centroids: FloatArray
    previous: FloatArray
    round: int = 0
    movements: tuple[float, ...] = ()
    estimates: tuple[float, ...] = ()
    window: int | None = 1
    memory: Any = None

    def __post_init__(self) -> None:
        protect(self.centroids, self.previous)

    @classmethod
    def start(cls, centroids: FloatArray) -> State:
        """Return the state before the first round, with the convention C^(-1) = C^(0)."""
        return cls(np.array(centroids, dtype=np.float64), np.array(centroids, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class RoundInfo:
    """What is reported about a round; nothing here is carried on.

    `asked` and `answered` hold client names; `estimate` is the server's own of the score (NaN where
    it has none); `score` is set only when it was asked for; `sent` and `received` count the bytes
    of the round's exchanges with all clients.
    """

    restart: int
    round: int
    movement: float
    asked: tuple[str, ...]
    answered: tuple[str, ...]
    estimate: float = float("nan")
    score: ScoreTotals | None = None
    sent: int = 0
    received: int = 0
