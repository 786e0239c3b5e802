"""When to stop: nothing moves, movements no longer shrink, the score has settled, or rounds are used up."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedkmeans._utils.checks import check_integer, check_real
from fedkmeans.algorithms.state import State

# Changes over fewer rounds are too uneven to foretell the next ones.
_LEAST_WINDOW = 5


@dataclass(frozen=True, slots=True)
class Stopping:
    """The stopping criteria.

    Attributes
    ----------
    tol : float
        Stop when ‖C^(t) - C^(t-1)‖_F is smaller (the paper's ε, an absolute length). With memory a
        round may be quiet only because of who was asked: all rounds must be quiet, back to where
        every client has been heard.
    patience : int or None
        Stop when the oldest of this many latest movements is the smallest of them (the paper: 300).
        With memory, for the same reason, the movement of a round is the largest in the rounds back
        to where every client has been heard.
    min_rounds, max_rounds : int
        Bounds that hold whatever the other criteria say; where they disagree, `max_rounds` wins.
    tol_score : float
        Stop when what the score is foreseen to change still (`change_left`) is at most this fraction
        of it; 0 means never. Needs memory: without, the server does not know the score.
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
        """How many rounds the criteria look back on; None, for all, while some client is unheard."""
        if window is None:
            return None
        return max((self.patience or 1) + window - 1, 3 * _at_least_five(window))

    def reason(self, state: State) -> str | None:
        """Say why the run stops now, or None if it goes on."""
        if state.round >= self.max_rounds:
            return "max_rounds"
        if state.round < max(1, self.min_rounds) or not state.movements:
            return None
        if state.window is not None and _all_below(state.movements, state.window, self.tol):
            return "tol"
        if self.patience is not None and state.window is not None:
            latest = _largest_in_windows(state.movements, state.window, self.patience)
            if latest and latest[0] <= min(latest):
                return "patience"
        if self.tol_score and state.window is not None:
            left = change_left(state.estimates, state.window, state.round)
            if left <= self.tol_score * state.estimates[-1]:
                return "tol_score"
        return None


def _all_below(movements: tuple[float, ...], window: int, tol: float) -> bool:
    return len(movements) >= window and max(movements[-window:]) < tol


def _largest_in_windows(movements: tuple[float, ...], window: int, n: int) -> list[float]:
    """The largest movement in each of the `n` latest windows that end one round apart; [] if too few."""
    if len(movements) < n + window - 1:
        return []
    latest = movements[len(movements) - n - window + 1 :]
    return [max(latest[i : i + window]) for i in range(n)]


def _at_least_five(window: int) -> int:
    return window * math.ceil(_LEAST_WINDOW / window)


def change_left(estimates: tuple[float, ...], window: int, n_rounds: int) -> float:
    """Foresee how much the score will still change, from its means over the last three windows.

    A window is as many rounds as it took to hear everybody, or a multiple of that with five rounds or
    more: a single estimate depends on who was heard when, the mean over a window hardly does. Lloyd's
    score tends to fall ever more slowly, about like 1/t after t windows; then t times the change from
    one window to the next is left. Of the last two changes the larger is taken, and the result doubled.
    A forecast, not a bound: a run may rest on a plateau and go on.

    Parameters
    ----------
    estimates : tuple of float
        The server's estimates of the score, oldest first.
    window : int
        Rounds.
    n_rounds : int
        Rounds so far, of which the latest have estimates here.
    """
    window = _at_least_five(window)
    if len(estimates) < 3 * window:
        return float("inf")
    means = np.reshape(estimates[-3 * window :], (3, window)).mean(axis=1)
    largest = float(np.abs(np.diff(means)).max())
    return 2 * n_rounds / window * largest if np.isfinite(largest) else float("inf")
