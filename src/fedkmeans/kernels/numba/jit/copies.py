"""Coarse copies of rows and centroids, and distances between them; see `structures.RowCopies`."""

from __future__ import annotations

import numpy as np

from fedkmeans.kernels.numba.jit.common import ANY_ORDER, SINGLE, entry, inner

# Squares of numbers below this may be lost in single precision sums of squares.
_FAINT = 2.0**-70
# The grid for centroids is this many times finer than that for coarse rows.
FINER = 32
# Products of this many columns add up to less than 2³¹.
_COLUMNS = 1024


@entry(fastmath=ANY_ORDER)
def place_centroids(centroids, copies, result):
    """Fill in a `NearCentroids`."""
    k, m = centroids.shape
    factor = np.float64(copies.factor)
    for j in range(k):
        total = 0.0
        for f in range(m):
            number = (centroids[j, f] - np.float64(copies.shift[f])) * factor
            result.scaled[j, f] = number
            total += number * number
        result.lengths[j], result.squares[j] = np.sqrt(total), total
        result.misses[j], result.coarse_squares[j] = coarsen(
            centroids, j, copies.lowest, copies.spacing / FINER, 255 * FINER, result.coarse[j]
        )


@inner(fastmath=ANY_ORDER)
def coarsen(X, p, lowest, spacing, last, result):
    """Round each number of row p to the nearest of `lowest` + `spacing` times 0 to `last`.

    Returns
    -------
    miss : float
        Upper bound of the distance between the row and its rounded copy, in units of `spacing`.
    square : int
        The squared length of the copy, in the same units.
    """
    m, per_spacing = len(result), 1.0 / spacing
    total, square = 0.0, np.int64(0)
    for f in range(m):
        number = (np.float64(X[p, f]) - lowest) * per_spacing
        # Written so that NaN becomes a number; the miss shows that the copy is useless.
        step = np.floor(number + 0.5) if number > 0.0 else 0.0
        step = step if step < last else np.float64(last)
        result[f] = np.int16(step)
        square += np.int64(step) * np.int64(step)
        total += (number - step) ** 2
    # Rounded up by more than these few operations can round down.
    return np.sqrt(total) * (1 + 1e-6) + 1e-9 * np.sqrt(m), square


@inner()
def load_coarse(X, start, n, copies):
    """Make coarse copies of n rows from `start` on."""
    for p in range(start, start + n):
        miss, square = coarsen(X, p, copies.lowest, copies.spacing, 255, copies.coarse[p])
        copies.misses[p] = miss * FINER
        copies.coarse_squares[p] = square * FINER**2


@inner(fastmath=ANY_ORDER)
def single_movements(old, near, back, result):
    """Upper bounds of how far centroids have moved from `old`, both known in single precision."""
    k, m = old.shape
    for j in range(k):
        total = np.float32(0)
        for f in range(m):
            difference = near.scaled[j, f] - old[j, f]
            total += difference * difference
        distance = np.sqrt(np.float64(total)) * (1 + (m + 8) * SINGLE) + _FAINT * np.sqrt(m)
        result[j] = (distance + 8 * SINGLE * (near.lengths[j] + distance)) * back


@inner()
def coarse_distance(copies, p, near, j):
    """Distance between coarse copies; integer arithmetic loses no digit."""
    total, m = np.int64(0), near.coarse.shape[1]
    for block in range(0, m, _COLUMNS):
        row, centroid = copies.coarse[p, block : block + _COLUMNS], near.coarse[j, block : block + _COLUMNS]
        product = np.int32(0)
        for f in range(len(row)):
            # Written so that the compiler uses the processor's instruction for such products.
            product = np.int32(product + np.int32(np.int32(row[f]) * np.int32(centroid[f])))
        total += product
    twice = 2 * FINER * total
    return np.sqrt(np.float64(copies.coarse_squares[p] + near.coarse_squares[j] - twice))
