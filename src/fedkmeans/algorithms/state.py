"""The result of a round, the state of a run between rounds, and the report on a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkmeans._utils.typing import ClientId, FloatArray
from fedkmeans.kernels.base import protect
from fedkmeans.protocol.messages import ScoreTotals


@dataclass(frozen=True, slots=True)
class Target:
    """The result of a round.

    Attributes
    ----------
    d : ndarray of shape (k, m)
        The aggregated centroids, d^(t) in the paper.
    answered : tuple of str
        Names of the clients that replied.
    sent, received : int
        Bytes sent to and received from all clients in the exchanges of this round.
    memory : object
        What the server remembers for the next round; None without memory.
    estimate : float
        The server's estimate of the mean squared distance over all rows, with each client evaluated at
        the centroids of its latest reply. NaN if it is unknown.
    window : int or None
        Number of latest rounds in which every client replied at least once; None if some client
        never replied. Without memory: 1.
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
    """The state of a run between two rounds.

    Attributes
    ----------
    centroids, previous : ndarray of shape (k, m)
        C^(t) and C^(t-1); equal before the first round.
    round : int
        Number of finished rounds.
    movements, estimates : tuple of float
        Movements ‖C^(t) - C^(t-1)‖_F and estimates of the score of rounds with at least one reply,
        oldest first; only as many as the stopping criteria need.
    window : int or None
    memory : object
        Values of the latest `Target`.
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
    """The report on a round.

    `asked` and `answered` are names of clients; `estimate` is the server's estimate of the score (NaN
    if unknown); `score` is set only if it was requested; `sent` and `received` are the bytes exchanged
    with all clients in the round.
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
