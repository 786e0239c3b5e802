"""The state of a run: what a round finds, what the next round needs, and what is reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkmeans._utils.typing import ClientId, FloatArray
from fedkmeans.kernels.base import protect
from fedkmeans.protocol.messages import ScoreTotals


@dataclass(frozen=True, slots=True)
class Target:
    """The result of a round: where the centroids should go.

    Attributes
    ----------
    d : ndarray of shape (k, m)
        The aggregated centroids, d^(t) in the paper.
    answered : tuple of str
    sent, received : int
        Bytes to and from all clients in the exchanges of this round.
    memory : object
        What the algorithm keeps for the next round; None without memory.
    estimate : float
        Mean squared distance over all rows as far as the server knows it: for each client at the
        centroids of its latest reply. NaN if it is not known.
    window : int or None
        Number of latest rounds in which every client answered at least once; None if some client
        never did. Without memory: 1.
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
    """Everything that a run keeps from one round to the next.

    Attributes
    ----------
    centroids, previous : ndarray of shape (k, m)
        C^(t) and C^(t-1); equal before the first round.
    round : int
        Number of finished rounds.
    movements, estimates : tuple of float
        Movements ‖C^(t) - C^(t-1)‖_F and estimates of the score, oldest first, of rounds with at
        least one reply; only as many as the stopping criteria need.
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


@dataclass(slots=True)
class RunName:
    """The name of a fit, under which clients keep what they sent; all its restarts share it."""

    name: str = ""

    def settle(self, proposed: str) -> str:
        """Return the name; the first one proposed becomes it."""
        self.name = self.name or proposed
        return self.name


@dataclass(frozen=True, slots=True)
class RoundInfo:
    """What is reported about a round.

    `asked` and `answered` hold client names; `estimate` is the server's estimate of the score (NaN
    if it has none); `score` is set only if it was requested; `sent` and `received` count the bytes
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
