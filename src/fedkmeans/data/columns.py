"""Single columns of a table: their type, their missing values, and their values as NumPy arrays."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fedkmeans._utils.typing import DataArray

# A NumPy column (a view of a matrix) or a pyarrow.ChunkedArray; pyarrow has no type hints.
Column: TypeAlias = Any
Mask: TypeAlias = npt.NDArray[np.bool_]


def type_name(column: Column) -> str:
    """Return the name of a column's type, for an error message."""
    return str(column.dtype if isinstance(column, np.ndarray) else column.type)


def numeric_dtype(column: Column) -> np.dtype[Any] | None:
    """Return the NumPy type for a numeric column, or None if the column is not numeric.

    Booleans become uint8. Integers with missing values become float64, with NaN for the missing ones.
    So does a column in which all values are missing.
    """
    if isinstance(column, np.ndarray):
        own: np.dtype[Any] = np.dtype(np.uint8) if column.dtype.kind == "b" else column.dtype
        return own if own.kind in "iuf" else None
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_decimal(kind):
        return np.dtype(np.float64)
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return None
    if column.null_count and not pa.types.is_floating(kind):
        return np.dtype(np.float64)
    return np.dtype(np.uint8 if pa.types.is_boolean(kind) else kind.to_pandas_dtype())


def missing_mask(column: Column) -> Mask:
    """Return which rows are missing (null, or NaN in a column of floats), shape (n_rows,)."""
    if isinstance(column, np.ndarray):
        if column.dtype.kind == "f":
            return np.isnan(column)
        return np.zeros(len(column), dtype=bool)
    mask: Mask = np.empty(len(column), dtype=bool)
    start = 0
    for chunk in column.chunks:
        # Null is missing in any type. NaN exists only in floats.
        nan_too = pa.types.is_floating(chunk.type)
        mask[start : start + len(chunk)] = pc.is_null(chunk, nan_is_null=nan_too).to_numpy(
            zero_copy_only=False
        )
        start += len(chunk)
    return mask


def fill(out: DataArray, column: Column, kept: Mask | None) -> None:
    """Write the kept rows of a numeric column into `out`, of shape (n_kept,), chunk by chunk."""
    if isinstance(column, np.ndarray):
        out[:] = column if kept is None else column[kept]
        return
    read = written = 0
    for chunk in column.chunks:
        values = _numbers(chunk)
        if kept is not None:
            values = values[kept[read : read + len(chunk)]]
        out[written : written + len(values)] = values
        read, written = read + len(chunk), written + len(values)


def _numbers(chunk: Any) -> DataArray:
    if pa.types.is_null(chunk.type) or pa.types.is_decimal(chunk.type):
        chunk = chunk.cast(pa.float64())
    values: DataArray = chunk.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "O":  # booleans with nulls, for which NumPy has no type
        values = chunk.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values


def label_values(column: Column) -> DataArray:
    """Return labels or client ids, shape (n_rows,): numbers as numbers, everything else as text.

    The caller handles missing values; in a column of integers they become 0.

    Raises
    ------
    UnicodeDecodeError
        The column contains text that is not UTF-8.
    """
    if isinstance(column, np.ndarray):
        return column if column.dtype.kind in "biuf" else column.astype(str)
    if pa.types.is_integer(column.type):
        whole: DataArray = pc.fill_null(column, 0).to_numpy()
        return whole
    dtype = numeric_dtype(column)
    if dtype is not None:
        out = np.empty(len(column), dtype=dtype)
        fill(out, column, None)
        return out
    values = column.to_pylist()
    return np.array(
        [value.decode() if isinstance(value, bytes) else str(value) for value in values], dtype=str
    )
