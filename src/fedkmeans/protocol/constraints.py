"""What the fields of a message may hold, written beside their types.

A field is declared as ``Annotated[type, constraint]``. The type says how the field travels, the constraint
what is checked when it arrives: its method `check` raises a `WireError` of one line unless the value is
allowed. Sizes of arrays have names, such as ``"k"`` and ``"m"``: a name stands for the same number in a query
and in its reply. `check` compares them with the known `sizes` and adds new ones.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkmeans.errors import WireError

# A site refuses rows with larger numbers, because their squares overflow. A mean may be slightly larger.
LARGEST = 1e150 * (1 + 1e-9)
# What the sizes that must not be zero count; other sizes may be zero.
_NEEDED_SIZES = {"k": "clusters", "m": "columns"}


@dataclass(frozen=True, slots=True)
class Array:
    """An array of float64 numbers."""

    shape: tuple[str, ...]  # names of the sizes
    least: float = -np.inf  # bound of the numbers
    largest: float = LARGEST  # bound of their absolute values
    finite: bool = True  # whether NaN and infinite numbers are refused

    def check(self, name: str, value: Any, sizes: dict[str, int]) -> None:
        """Check type, shape and numbers."""
        if not isinstance(value, np.ndarray) or value.dtype != np.float64:
            raise WireError(f"{name} is no array of float64.")
        named = dict(zip(self.shape, value.shape, strict=False))
        known = {size: sizes[size] for size in self.shape if size in sizes}
        if value.ndim != len(self.shape) or {**named, **known} != named:
            expected = ", ".join(str(known.get(size, "any")) for size in self.shape)
            raise WireError(f"{name} has shape {value.shape}, expected ({expected}).")
        for size, what in _NEEDED_SIZES.items():
            if named.get(size) == 0:
                raise WireError(f"{name} has shape {value.shape}: there are no {what}.")
        sizes.update(named)
        if self.finite:
            check_numbers(name, value, self.largest)
        if (value < self.least).any():
            raise WireError(f"{name} has negative values.")


def check_numbers(name: str, array: Any, largest: float = LARGEST) -> None:
    """Refuse an array with NaN, infinite or huge numbers."""
    if not np.isfinite(array).all():
        raise WireError(f"{name} has values that are missing (NaN) or infinite.")
    if not (np.abs(array) <= largest).all():
        raise WireError(f"{name} has huge values, up to {np.abs(array).max():.3g}.")


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two bounds, both included."""

    low: int
    high: int

    def check(self, name: str, value: Any, sizes: dict[str, int]) -> None:
        """Check type and bounds."""
        if not isinstance(value, int) or not self.low <= value <= self.high:
            raise WireError(f"{name} is {value!r}, expected a whole number from {self.low} to {self.high}.")


@dataclass(frozen=True, slots=True)
class Real:
    """A finite number that is at least, or if `positive` more than, `least`."""

    least: float = -np.inf
    positive: bool = False

    def check(self, name: str, value: Any, sizes: dict[str, int]) -> None:
        """Check type and bounds."""
        if not isinstance(value, float | int) or not np.isfinite(value):
            raise WireError(f"{name} is {value!r}, which is no finite number.")
        if value < self.least:
            raise WireError(f"{name} is {value!r}, expected {self.least:g} or more.")
        if self.positive and not value > 0:
            raise WireError(f"{name} is {value!r}, expected more than 0.")


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several names."""

    choices: Collection[str]

    def check(self, name: str, value: Any, sizes: dict[str, int]) -> None:
        """Check that the name is known."""
        if value not in self.choices:
            raise WireError(f"{name} {str(value)[:50]!r} is not known here. Update fedkmeans.")


@dataclass(frozen=True, slots=True)
class Text:
    """A text, or None or several texts, each of at most `longest` characters."""

    longest: int

    def check(self, name: str, value: Any, sizes: dict[str, int]) -> None:
        """Check the length."""
        texts = (value,) if isinstance(value, str) else value or ()
        longest = max(map(len, texts), default=0)
        if longest > self.longest:
            raise WireError(f"{name} has {longest} characters, more than {self.longest}.")
