"""Checks of single parameters. The messages say which values are valid."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection
from typing import Any

from fedkmeans.errors import ParameterError


def check_integer(name: str, value: Any, *, least: int = 1) -> int:
    """Return `value` as an int; raise if it is not an integer or smaller than `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise ParameterError(f"must be a whole number of at least {least}, got {value!r}.", parameter=name)
    return int(value)


def check_real(
    name: str, value: Any, *, low: float, high: float, low_open: bool = False, high_open: bool = False
) -> float:
    """Return `value` as a float; raise if it is not a number or outside the interval."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    number = float(value) if is_number else math.nan
    high_open = high_open or math.isinf(high)
    above = low < number if low_open else low <= number
    below = number < high if high_open else number <= high
    if not (above and below):
        interval = f"{'(' if low_open else '['}{low:g}, {high:g}{')' if high_open else ']'}"
        raise ParameterError(f"must be a number in {interval}, got {value!r}.", parameter=name)
    return number


def check_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return `value`; raise with the list of choices if it is none of them."""
    if not isinstance(value, str) or value not in choices:
        raise ParameterError(f"must be one of {', '.join(sorted(choices))}; got {value!r}.", parameter=name)
    return value


# Parameters of the estimators that do not depend on where the rows are or which kernel computes.
PARAMETERS = (
    *("init", "init_clients", "init_rows", "n_init", "weighting", "memory", "learning_rate", "momentum"),
    *("look_ahead", "empty_clusters"),
    *("n_local_clusters", "n_init_local", "server_init", "clients_per_round", "participation", "max_local"),
    *("tol", "tol_local", "tol_score", "patience", "min_rounds", "max_rounds", "max_iter", "score_every"),
)
