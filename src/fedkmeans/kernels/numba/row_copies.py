"""Copies of rows as bytes, which are faster to read than the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkmeans._utils.typing import FloatArray
from fedkmeans.kernels.base import Rows
from fedkmeans.kernels.numba.jit.copies import place_centroids
from fedkmeans.kernels.numba.jit.structures import NearCentroids, RowCopies

# Scaled centroids must not be longer than this, otherwise single precision could overflow.
_LONGEST = 1e3
# Range of powers of two for the factor: the factor and one over it must be normal numbers of the dtype.
_POWERS = {np.float32: (-126, 120), np.float64: (-1000, 1000)}
# The range of bytes is found from so many rows, and covers at most so many standard deviations around the
# mean.
_SAMPLE, _DEVIATIONS = 256, 20


class Copies:
    """Copies of all rows as bytes, made when they are first needed, and the scale for single precision.

    Many rows do not fit into the processor's caches, and reading them takes longer than computing
    distances. Bytes are read faster, and mostly they suffice.

    In single precision everything is shifted to the mean of the first centroids and scaled by a power of
    two so that the longest of them has a length of about one. If later centroids are far longer, shift and
    scale are chosen anew.
    """

    def __init__(self, data: Any, n_clients: int) -> None:
        n, m = data.shape
        self.kind = np.float32 if data.dtype == np.float32 else np.float64
        self.n_scalings = 0
        lowest, spacing = even_steps(data[:: max(1, n // _SAMPLE)])
        self.arrays = RowCopies(
            shift=np.zeros(m, dtype=self.kind),
            factor=self.kind(0.0),
            filled=np.zeros(n_clients, dtype=np.bool_),
            coarse=np.empty((n, m), dtype=np.uint8),
            coarse_squares=np.empty(n, dtype=np.int64),
            misses=np.empty(n, dtype=np.float32),
            lowest=lowest,
            spacing=spacing,
        )

    def prepare(self, centroids: FloatArray, scaled: Any) -> NearCentroids:
        """The centroids in the form that these copies need; `scaled` (k, m) is part of the result."""
        k, m = centroids.shape
        near = NearCentroids(
            scaled=scaled,
            squares=np.empty(k, dtype=np.float32),
            lengths=np.empty(k),
            coarse=np.empty((k, m), dtype=np.int16),
            coarse_squares=np.empty(k, dtype=np.int64),
            misses=np.empty(k),
        )
        if self.arrays.factor:
            place_centroids(centroids, self.arrays, near)
        if not self.arrays.factor or not near.lengths.max() <= _LONGEST:
            self._choose_scale(centroids)
            place_centroids(centroids, self.arrays, near)
        return near

    def _choose_scale(self, centroids: FloatArray) -> None:
        """Choose shift and scale for these centroids."""
        self.n_scalings += 1  # first, in case of an interrupt: what was scaled before is invalid
        self.arrays.shift[:] = centroids.mean(axis=0)
        longest = float(np.linalg.norm(centroids - self.arrays.shift, axis=1).max())
        # Within the range of the dtype, also for one over it.
        power = np.clip(-np.ceil(np.log2(longest)), *_POWERS[self.kind]) if longest > 0 else 0
        self.arrays = self.arrays._replace(factor=self.kind(2.0**power))

    @staticmethod
    def n_bytes(rows: Rows) -> int:
        """Size of the copies in bytes."""
        n, m = rows.X.shape
        return int(n * (m + 12))


def even_steps(rows: Any) -> tuple[float, float]:
    """256 evenly spaced numbers over the range of these rows except outliers: the lowest, and the spacing.

    The spacing is positive, and one over it is finite.
    """
    if rows.dtype == np.uint8:
        return 0.0, 1.0
    numbers = np.asarray(rows, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        middle, away = numbers.mean(), _DEVIATIONS * numbers.std()
        # If this overflows, minimum and maximum are used instead.
        lowest = float(np.fmax(numbers.min(), middle - away))
        highest = float(np.fmin(numbers.max(), middle + away))
        spacing = (highest - lowest) / 255
    return lowest, spacing if 1e-300 < spacing < np.inf else 1.0
