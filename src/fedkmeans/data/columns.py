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
        return np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), dtype=bool)
    # Null is missing in any type. NaN exists only in floats.
    mask: Mask = pc.is_null(column, nan_is_null=pa.types.is_floating(column.type)).to_numpy()
    return mask


def numbers(column: Column) -> DataArray:
    """Return the values of a numeric column, shape (n_rows,), with NaN for missing ones."""
    if isinstance(column, np.ndarray):
        return column
    dtype = numeric_dtype(column)
    if dtype == np.float64:  # NumPy has no type for integers with nulls, and none for decimals
        column = column.cast(pa.float64(), safe=False)
    values: DataArray = column.to_numpy().astype(dtype, copy=False)
    return values
