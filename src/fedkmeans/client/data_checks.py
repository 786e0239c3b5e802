"""Validation of the data, sample weights and name of a site."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedkmeans._utils.typing import ClientId, FloatArray
from fedkmeans.errors import DataError, ParameterError
from fedkmeans.kernels.sparse import SparseRows, Table

# Squared distances between larger numbers may overflow.
_LARGEST = 1e150
# Larger integers are not all distinct in double precision.
_LARGEST_INTEGER = 2.0**53 - 1


def check_data(name: ClientId, X: Table, feature_names: tuple[str, ...] | None) -> Table:
    """Return `X` if it is a 2D array of finite numbers; otherwise raise an error that names the column."""
    who = f"Client {name!r}"
    if X.ndim != 2 or X.shape[1] == 0:
        raise DataError(f"{who}: data must have rows and columns, got shape {X.shape}.")
    if len(X) == 0:
        raise DataError(f"{who} has no rows. Leave the client out or give it data.")
    if X.dtype.kind not in "fiub":
        raise DataError(
            f"{who}: data must be real numbers, got dtype {X.dtype}. Drop or encode other columns."
        )
    if feature_names is not None and len(feature_names) != X.shape[1]:
        raise DataError(f"{who}: {len(feature_names)} column names for {X.shape[1]} columns.")
    if X.dtype.kind != "b":
        _check_range(who, X, feature_names)
    return X


def _check_range(who: str, X: Table, feature_names: tuple[str, ...] | None) -> None:
    limit = _LARGEST if X.dtype.kind == "f" else _LARGEST_INTEGER
    for column, values in _columns_beyond(X, limit):
        bad = np.flatnonzero(~(np.abs(values) <= limit))
        label = column if feature_names is None else repr(feature_names[column])
        found = f"{who}, column {label}: {len(bad)} value(s)"
        where = f"the first in row {int(bad[0])}"
        if np.isfinite(values[bad]).all():
            raise DataError(
                f"{found} beyond {limit:.3g}, too large for exact distances; {where}. Scale the column, or "
                "leave it out if it holds identifiers."
            )
        raise DataError(
            f"{found} missing (NaN) or infinite; {where}. Drop these rows, or fill the values in first."
        )


def _columns_beyond(X: Table, limit: float) -> Iterator[tuple[int, FloatArray]]:
    """Yield columns with missing values or values beyond a limit, as (index, values of shape (n,))."""
    if isinstance(X, SparseRows):
        stored = X.data[X.stored]
        if not len(stored) or _within(stored.min(), stored.max(), limit):
            return
        for column, (numbers, rows) in enumerate(X.by_column()):
            if len(numbers) and not _within(numbers.min(), numbers.max(), limit):
                values = np.zeros(len(X))
                values[rows] = numbers
                yield column, values
        return
    # The minimum and maximum of a column show whether a value is out of range, without a copy.
    for column in map(int, np.flatnonzero(~_within(X.min(axis=0), X.max(axis=0), limit))):
        yield column, X[:, column].astype(np.float64)


def _within(least: Any, largest: Any, limit: float) -> Any:
    return (np.abs(np.stack([least, largest]).astype(np.float64)) <= limit).all(axis=0)


def check_weight(name: ClientId, sample_weight: Any, n_rows: int) -> FloatArray | None:
    """Return the weights as an array of shape (n_rows,), or None; raise an error if they are invalid."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    who = f"Client {name!r}"
    if weight.shape != (n_rows,):
        raise DataError(
            f"{who}: sample_weight must have one entry a row, {n_rows}, got shape {weight.shape}."
        )
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise DataError(f"{who}: sample weights must be finite and not negative.")
    if not weight.any():
        raise DataError(f"{who}: the sample weights add up to zero. Leave the client out.")
    return weight


def check_name(name: ClientId) -> None:
    """Raise an error if this is not a valid client name."""
    if not isinstance(name, str) or not name:
        raise ParameterError(f"A client's name must be a text that is not empty, got {name!r}.")
