"""When to stop: nothing moves, movements no longer shrink, the score has settled, or rounds are used up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedkmeans.parameters import check_integer, check_real
from fedkmeans.records import State

# Changes over fewer rounds are too uneven to foretell the next ones.
_LEAST_WINDOW = 5
# Of the changes in two windows; closer to one, or above, it would foretell the next hundred windows.
_LARGEST_RATIO = 0.9


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
        Meant for runs without memory, in which no round is quiet by chance.
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

    def reason(self, state: State) -> str | None:
        """Say why the run stops now, or None if it goes on."""
        if state.round >= self.max_rounds:
            return "max_rounds"
        if state.round < max(1, self.min_rounds) or not state.movements:
            return None
        if state.window is not None and _all_below(state.movements, state.window, self.tol):
            return "tol"
        if self.patience is not None and len(state.movements) >= self.patience:
            latest = state.movements[-self.patience :]
            if latest[0] <= min(latest):
                return "patience"
        if self.tol_score and state.window is not None:
            left = change_left(state.estimates, state.window)
            if left <= self.tol_score * state.estimates[-1]:
                return "tol_score"
        return None


def _all_below(movements: tuple[float, ...], window: int, tol: float) -> bool:
    return len(movements) >= window and max(movements[-window:]) < tol


def change_left(estimates: tuple[float, ...], window: int) -> float:
    """Foresee how much the score will still change, from its means over the last three windows.

    A window is as many rounds as it took to hear everybody, and at least five: a single estimate
    depends on who was heard when, the mean over a window hardly does. If the means of the last two
    windows differ by r and those of the two before by r/ρ, and it goes on like that, r (ρ + ρ² + …)
    is left. The answer is at least r itself, and at most nine times r, for changes that hardly shrink
    or grow. A forecast, not a bound: a run may rest on a plateau and go on.

    Parameters
    ----------
    estimates : tuple of float
        The server's estimates of the score, oldest first.
    window : int
        Rounds.
    """
    window = max(window, _LEAST_WINDOW)
    if len(estimates) < 3 * window:
        return float("inf")
    first, middle, last = np.reshape(estimates[-3 * window :], (3, window)).mean(axis=1)
    earlier, change = abs(first - middle), abs(middle - last)
    if not np.isfinite(earlier + change):
        return float("inf")
    ratio = min(change / earlier if earlier else 1.0, _LARGEST_RATIO)
    return float(change * max(1.0, ratio / (1 - ratio)))
