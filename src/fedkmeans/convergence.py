"""When to stop: nothing moves, movements no longer shrink, the score has settled, or rounds are used up."""

from __future__ import annotations

from dataclasses import dataclass

from fedkmeans.parameters import check_integer, check_real
from fedkmeans.records import State

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
    min_rounds, max_rounds : int
        Bounds that hold whatever the other criteria say; where they disagree, `max_rounds` wins.
    tol_score : float
        Stop when what the score may still change, estimated by `change_left`, is at most this
        fraction of it; 0 means never. Needs memory: without, the server does not know the score.
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

    def keep(self, window: int | None) -> int:
        """How many movements and estimates to keep when every client was heard in `window` rounds."""
        return max(self.patience or 1, 2 * max(window or 1, _LEAST_WINDOW) + 1)

    def reason(self, state: State) -> str | None:
        """Say why the run stops now, or None if it goes on."""
        if state.round >= self.max_rounds:
            return "max_rounds"
        if state.round < max(1, self.min_rounds):
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
    """Estimate how much the score will still change, from how it changed in the last two windows.

    A window is as many rounds as it took to hear everybody, so that the two changes do not depend on
    who was asked, and at least five. If the second is r and the first r/ρ, and it goes on like that,
    r (ρ + ρ² + …) is left. The answer is at least r itself, and infinite where changes do not shrink.

    Parameters
    ----------
    estimates : tuple of float
        The server's estimates of the score, oldest first.
    window : int
        Rounds.
    """
    window = max(window, _LEAST_WINDOW)
    if len(estimates) < 2 * window + 1:
        return float("inf")
    first, middle, last = estimates[-1 - 2 * window], estimates[-1 - window], estimates[-1]
    earlier, latest = abs(first - middle), abs(middle - last)
    if latest == 0:
        return 0.0
    if not latest < earlier:  # not shrinking, or NaN
        return float("inf")
    ratio = latest / earlier
    return latest * max(1.0, ratio / (1 - ratio))
