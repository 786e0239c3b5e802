"""Checks of single parameters, with messages that say what would have been right."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection
from typing import Any

from fedkmeans.errors import ParameterError


def check_integer(name: str, value: Any, *, least: int = 1) -> int:
    """Return `value` as an int, or raise if it is none or smaller than `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise ParameterError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return int(value)


def check_real(
    name: str, value: Any, *, low: float, high: float, low_open: bool = False, high_open: bool = False
) -> float:
    """Return `value` as a float, or raise if it is none or outside the interval."""
    ok = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(float(value))
    if ok:
        number = float(value)
        ok = (low < number if low_open else low <= number) and (
            number < high if high_open else number <= high
        )
    if not ok:
        left = "(" if low_open else "["
        right = ")" if high_open or math.isinf(high) else "]"
        raise ParameterError(f"{name} must be a number in {left}{low:g}, {high:g}{right}, got {value!r}.")
    return float(value)


def check_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return `value`, or raise with the list of what may be chosen."""
    if not isinstance(value, str) or value not in choices:
        raise ParameterError(f"{name} must be one of {', '.join(sorted(choices))}; got {value!r}.")
    return value


# What can be chosen about how an estimator goes to work, wherever the rows are and whoever computes.
PARAMETERS = (
    "init",
    "n_init",
    "weighting",
    "memory",
    "learning_rate",
    "momentum",
    "empty_clusters",
    "n_local_clusters",
    "n_init_local",
    "clients_per_round",
    "participation",
    "max_local",
    "tol",
    "tol_local",
    "tol_score",
    "patience",
    "min_rounds",
    "max_rounds",
    "max_iter",
    "score_every",
)
