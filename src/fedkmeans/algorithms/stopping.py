"""Stopping criteria: small or no longer decreasing movements, a stable score, or the maximum of rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedkmeans._utils.checks import check_integer, check_real
from fedkmeans.algorithms.state import State

# Changes over fewer rounds vary too much for a forecast.
_LEAST_WINDOW = 5


@dataclass(frozen=True, slots=True)
class Stopping:
    """The stopping criteria.

    Attributes
    ----------
    tol : float
        Stop when ‖C^(t) - C^(t-1)‖_F is smaller than this (ε in the paper, an absolute length). With
        memory, a movement may be small only because of the clients that were asked. It must then be
        small in all rounds of the window, in which every client replied at least once.
    patience : int or None
        Stop when the oldest of this many latest movements is the smallest of them (300 in the paper).
        Movements of the first `min_rounds` rounds do not count, because momentum makes the first ones
        small; in the authors' program, too, the earliest such stop is in round 16 + 300. With memory,
        for the same reason as above, each movement is replaced by the largest one in its window.
    min_rounds, max_rounds : int
        Bounds that override the other criteria; in case of conflict `max_rounds` has priority.
    tol_score : float
        Stop when the predicted remaining change of the score (`change_left`) is at most this fraction
        of the score; 0 means never. Requires memory: without it the server does not know the score.
    """

    tol: float = 1e-8
    patience: int | None = 300
    min_rounds: int = 16
    max_rounds: int = 10_000
    tol_score: float = 0.0

    def __post_init__(self) -> None:
        check_real("tol", self.tol, low=0, high=float("inf"))
        if self.patience is not None:
            check_integer("patience", self.patience, least=2)
        check_integer("min_rounds", self.min_rounds, least=0)
        check_integer("max_rounds", self.max_rounds)
        check_real("tol_score", self.tol_score, low=0, high=1, high_open=True)

    def look_back(self, window: int | None) -> int | None:
        """Return how many rounds the criteria use; None (all) while some client has not replied."""
        if window is None:
            return None
        return max((self.patience or 1) + window - 1, 3 * _at_least_five(window))

    def reason(self, state: State) -> str | None:
        """Return the reason why the run stops now, or None if it continues."""
        if state.round >= self.max_rounds:
            return "max_rounds"
        movements, window = state.movements, state.window
        if state.round < max(1, self.min_rounds) or not movements or window is None:
            return None
        if len(movements) >= window and max(movements[-window:]) < self.tol:
            return "tol"
        needed = (self.patience or 0) + window - 1
        if self.patience is not None and min(len(movements), state.round - self.min_rounds) >= needed:
            latest = movements[-needed:]
            largest = [max(latest[i : i + window]) for i in range(self.patience)]
            if largest[0] <= min(largest):
                return "patience"
        if self.tol_score:
            left = change_left(state.estimates, window, state.round)
            if left <= self.tol_score * state.estimates[-1]:
                return "tol_score"
        return None


def _at_least_five(window: int) -> int:
    return window * math.ceil(_LEAST_WINDOW / window)


def change_left(estimates: tuple[float, ...], window: int, n_rounds: int) -> float:
    """Predict the remaining change of the score from its means over the last three windows.

    A window is the number of rounds in which every client replied, or the smallest multiple of it with
    at least five rounds. A single estimate depends on which clients replied in which round; the mean
    over a window depends on this much less. The score of Lloyd's algorithm tends to decrease roughly
    like 1/t after t windows; the remaining change is then t times the change between two windows. The
    prediction uses the larger of the last two changes and doubles the result. It is not a bound: the
    score may still decrease after a plateau.

    `estimates` has the server's estimates of the score in the latest of `n_rounds` rounds, oldest first. In
    `window` rounds every client replied.
    """
    window = _at_least_five(window)
    if len(estimates) < 3 * window:
        return float("inf")
    means = np.reshape(estimates[-3 * window :], (3, window)).mean(axis=1)
    largest = float(np.abs(np.diff(means)).max())
    return 2 * n_rounds / window * largest if np.isfinite(largest) else float("inf")
