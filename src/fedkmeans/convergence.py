"""When to stop: the movement is small, has stopped shrinking, or there were rounds enough."""

from __future__ import annotations

from dataclasses import dataclass

from fedkmeans.parameters import check_integer, check_real
from fedkmeans.records import State


@dataclass(frozen=True, slots=True)
class Stopping:
    """The stopping criteria.

    Attributes
    ----------
    tol : float
        Stop when ‖C^(t) - C^(t-1)‖_F is smaller (the paper's ε, an absolute length).
    patience : int or None
        Stop when the oldest of this many latest movements is the smallest of them (the paper: 300).
    min_rounds, max_rounds : int
        Bounds that hold whatever the movements say; where they disagree, `max_rounds` wins.
    """

    tol: float = 1e-8
    patience: int | None = 300
    min_rounds: int = 16
    max_rounds: int = 10_000

    def __post_init__(self) -> None:
        check_real("tol", self.tol, low=0, high=float("inf"))
        if self.patience is not None:
            check_integer("patience", self.patience, least=2)
        check_integer("min_rounds", self.min_rounds, least=0)
        check_integer("max_rounds", self.max_rounds)

    @property
    def window(self) -> int:
        """How many movements the criteria look back on."""
        return self.patience or 1

    def reason(self, state: State) -> str | None:
        """Say why the run stops now, or None if it goes on."""
        if state.round >= self.max_rounds:
            return "max_rounds"
        if state.round < max(1, self.min_rounds):
            return None
        if state.movements[-1] < self.tol:
            return "tol"
        full = self.patience is not None and len(state.movements) >= self.patience
        if full and state.movements[0] <= min(state.movements):
            return "patience"
        return None
