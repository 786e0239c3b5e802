"""Copies of rows that are read faster than the rows: in single precision, and as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkmeans._utils.typing import FloatArray
from fedkmeans.kernels.base import Rows
from fedkmeans.kernels.numba import compiled

# Scaled centroids must not be longer than this, or single precision could overflow.
_LONGEST = 1e3
# Powers of two that a factor may be, so that it is a normal number of its kind and one over it is, too.
_POWERS = {np.float32: (-126, 120), np.float64: (-1000, 1000)}
# Rows to see of what size numbers are; standard deviations from their mean up to which they become bytes.
_SAMPLE, _DEVIATIONS = 256, 20


class Copies:
    """Copies of all rows in single precision and as bytes; filled where they are first needed.

    In single precision everything is shifted to the middle of the first centroids and scaled by a power of
    two so that the longest of them is about one long. Where later ones are far longer, it is done anew for
    them.

    Rows do not fit into the processor's caches where there are many: reading them takes longer than
    computing distances. Bytes are read in a quarter of the time that single precision takes, and mostly
    they are enough.
    """

    def __init__(self, data: Any, n_clients: int) -> None:
        n, m = data.shape
        self.kind = np.float32 if data.dtype == np.float32 else np.float64
        self.n_focused = 0
        lowest, spacing = even_steps(data[:: max(1, n // _SAMPLE)])
        self.arrays = compiled.RowCopies(
            rows=np.empty((n, m), dtype=np.float32),
            lengths=np.empty(n, dtype=np.float32),
            shift=np.zeros(m, dtype=self.kind),
            factor=self.kind(0.0),
            filled=np.zeros(n_clients, dtype=np.bool_),
            coarse=np.empty((n, m), dtype=np.uint8),
            coarse_squares=np.empty(n, dtype=np.int64),
            misses=np.empty(n, dtype=np.float32),
            lowest=lowest,
            spacing=spacing,
        )

    def place(self, centroids: FloatArray, scaled: Any) -> Any:
        """The centroids as compiled code needs them beside these rows; `scaled` (k, m) is room for them."""
        k, m = centroids.shape
        near = compiled.NearCentroids(
            scaled=scaled,
            squares=np.empty(k, dtype=np.float32),
            lengths=np.empty(k),
            coarse=np.empty((k, m), dtype=np.int16),
            coarse_squares=np.empty(k, dtype=np.int64),
            misses=np.empty(k),
        )
        if self.arrays.factor:
            compiled.place_centroids(centroids, self.arrays, near)
        if not self.arrays.factor or not near.lengths.max() <= _LONGEST:
            self._focus(centroids)
            compiled.place_centroids(centroids, self.arrays, near)
        return near

    def _focus(self, centroids: FloatArray) -> None:
        """Shift and scale so that it suits these centroids."""
        # First of all: were it interrupted, nothing must be taken for what it is no more.
        self.n_focused += 1
        self.arrays.filled[:] = False
        self.arrays.shift[:] = centroids.mean(axis=0)
        longest = float(np.linalg.norm(centroids - self.arrays.shift, axis=1).max())
        # Within what single precision can hold, also one over it.
        power = np.clip(-np.ceil(np.log2(longest)), *_POWERS[self.kind]) if longest > 0 else 0
        self.arrays = self.arrays._replace(factor=self.kind(2.0**power))

    @staticmethod
    def n_bytes(rows: Rows) -> int:
        """What the copies take."""
        n, m = rows.X.shape
        return int(n * (5 * m + 16))


def even_steps(rows: Any) -> tuple[float, float]:
    """256 evenly spaced numbers over the range of these, but for outliers: the lowest, and their spacing.

    The spacing is a positive number, and not so small that one over it is none.
    """
    if rows.dtype == np.uint8:
        return 0.0, 1.0
    numbers = np.asarray(rows, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        middle, away = numbers.mean(), _DEVIATIONS * numbers.std()
        # Where that is beyond all numbers, minimum and maximum take its place.
        lowest = float(np.fmax(numbers.min(), middle - away))
        highest = float(np.fmin(numbers.max(), middle + away))
        spacing = (highest - lowest) / 255
    return lowest, spacing if 1e-300 < spacing < np.inf else 1.0
