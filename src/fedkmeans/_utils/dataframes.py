"""Convert data frames of any library to arrays without a second copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedkmeans._utils.typing import DataArray, IntArray

if TYPE_CHECKING:
    import narwhals as nw


def numeric_frame(data: Any) -> nw.DataFrame[Any] | None:
    """Return `data` as a narwhals frame if it is one whose columns are all plain numbers, else None."""
    if isinstance(data, np.ndarray):
        return None
    import narwhals as nw  # here, because it takes time to load and arrays do not need it

    frame = nw.from_native(data, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame) or not len(frame.columns):
        return None
    return frame if all(dtype.kind in "fiub" for dtype in _dtypes(frame)) else None


def ordered_array(frame: nw.DataFrame[Any], order: IntArray | None = None) -> DataArray:
    """Return the frame as one array (n, m) with its rows in `order`.

    Columns are copied one at a time, so that there is never a second copy of the whole table. The dtype is
    the smallest that represents all columns without loss.
    """
    X = np.empty(frame.shape, dtype=np.result_type(*_dtypes(frame)))
    for j in range(frame.shape[1]):
        column = frame[:, j].to_numpy()
        X[:, j] = column if order is None else column[order]
    return X


def _dtypes(frame: nw.DataFrame[Any]) -> list[np.dtype[Any]]:
    # From the values: a column of integers with a missing value has floats or objects.
    return [frame[:, j].to_numpy().dtype for j in range(frame.shape[1])]
