"""Nearest centroids of a block of rows, by matrix product or by the plain formula."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from fedkmeans.kernels.numba.jit.common import ANY_ORDER, DOUBLE, FINITE, MANY_COLUMNS, SINGLE, inner
from fedkmeans.kernels.numba.jit.distances import decide

# Centroids need no shift if their squared length is at most this many times their squared distance.
_NOT_FAR = 16.0
# Squared lengths for which single precision needs no scaling.
_MODERATE = 1e-10, 1e10


@inner()
def focus(centroids, scaled, squares, shift):
    """Shift and scale the centroids so that single precision is most accurate; return the factor.

    Distances do not change when everything is shifted. The factor is a power of two, so that scaling
    rounds nothing. It gives the longest shifted centroid a length of at most one.
    """
    k, m = centroids.shape
    for f in range(m):
        total = 0.0
        for j in range(k):
            total += centroids[j, f]
        shift[f] = total / k  # rounded to the precision of the data
    longest = 0.0
    for j in range(k):
        total = 0.0
        for f in range(m):
            total += (centroids[j, f] - np.float64(shift[f])) ** 2
        longest = max(longest, total)
    factor = 1.0
    if longest > 0:
        factor = 2.0 ** -np.ceil(0.5 * np.log2(longest))
    for j in range(k):
        total = 0.0
        for f in range(m):
            number = (centroids[j, f] - np.float64(shift[f])) * factor
            scaled[j, f] = number
            total += number * number
        squares[j] = total
    return factor


@inner(fastmath=ANY_ORDER)
def load_rows(X, start, n, shift, factor, rows, lengths):
    """Load rows from `start` on in single precision, shifted and scaled, and their squared lengths."""
    for q in range(n):
        total = np.float32(0)
        for f in range(X.shape[1]):
            number = np.float32((X[start + q, f] - shift[f]) * factor)
            rows[q, f] = number
            total += number * number
        lengths[q] = total


def rows_as_they_are(X, start, n, rows):
    """The rows themselves if they are in single precision, else `rows`; chosen at compile time."""
    return X[start : start + n] if X.dtype == np.float32 else rows


@overload(rows_as_they_are)
def _choose_rows(X, start, n, rows):
    if X.dtype == types.float32:
        return lambda X, start, n, rows: X[start : start + n]
    return lambda X, start, n, rows: rows


@inner(fastmath=ANY_ORDER)
def square_lengths(rows, lengths):
    """Squared lengths of rows in single precision."""
    for q in range(len(rows)):
        total = np.float32(0)
        for f in range(rows.shape[1]):
            total += rows[q, f] * rows[q, f]
        lengths[q] = total


@inner()
def round_centroids(centroids, scaled, squares):
    """Round the centroids to single precision, neither shifted nor scaled, where this is accurate.

    It is accurate if they are not much longer than the distances between them and nothing can overflow.
    Returns the length of the longest; 0 if they must be shifted.
    """
    k, m = centroids.shape
    longest, apart = 0.0, 0.0
    for j in range(k):
        total, difference = 0.0, 0.0
        for f in range(m):
            scaled[j, f] = centroids[j, f]
            total += centroids[j, f] ** 2
            difference += (centroids[j, f] - centroids[0, f]) ** 2
        squares[j] = total
        longest, apart = max(longest, total), max(apart, difference)
    if _MODERATE[0] < longest < _MODERATE[1] and longest < _NOT_FAR * apart:
        return np.sqrt(longest)
    return 0.0


@inner()
def multiply(rows, scaled, scratch):
    """Products of the k shifted and scaled centroids with n such rows, shape (k, n)."""
    (n, m), k = rows.shape, len(scaled)
    values = scratch.values[: n * k].reshape(k, n)
    if m < MANY_COLUMNS:
        np.dot(scaled, rows.T, values)
    else:
        # The matrix product is so much faster in this order that transposing its result pays off.
        by_row = scratch.products[: n * k].reshape(n, k)
        np.dot(rows, scaled.T, by_row)
        for q in range(n):
            for j in range(k):
                values[j, q] = by_row[q, j]
    return values


@inner(fastmath=FINITE)
def two_lowest(values, squares, best, second, label):
    """Turn products (k, n) into ‖c‖² - 2xc, and find the lowest two and the label of the lowest per row."""
    k, n = values.shape
    for q in range(n):
        best[q] = np.float32(np.inf)
        second[q] = np.float32(np.inf)
        label[q] = 0
    for j in range(k):
        square = squares[j]
        for q in range(n):
            value = square - np.float32(2) * values[j, q]
            values[j, q] = value
            second[q] = min(second[q], max(value, best[q]))
            label[q] = np.int32(j) if value < best[q] else label[q]
            best[q] = min(best[q], value)


@inner()
def rounding(m, length, longest):
    """Bound on the error of a value ‖c‖² - 2xc in single precision, for this ‖x‖ and ‖c‖ <= `longest`.

    It includes the error of the plain formula, which is larger for rows very far from all centroids.
    """
    reach = length + longest
    return 2 * (m + 8) * (SINGLE * longest * reach + DOUBLE * reach * reach)


@inner()
def nearest_by_product(X, start, centroids, rows, lengths, scaled, squares, longest, scratch):
    """Find the nearest centroid of rows from `start` on by matrix product, and exactly for close calls.

    `rows` and `scaled` are those rows and the centroids, shifted and scaled, in single precision,
    `lengths` and `squares` their squared lengths. `longest` is the length of the longest such centroid.
    It must be moderate, so that products only overflow for rows whose length shows it.
    """
    best, second, label = scratch.best, scratch.second, scratch.label
    n, m = rows.shape
    values = multiply(rows, scaled, scratch)
    two_lowest(values, squares, best, second, label)
    for q in range(n):
        margin = 2 * rounding(m, np.sqrt(np.float64(lengths[q])), longest)
        # Written so that values that are not finite count as close.
        if not second[q] - best[q] > margin:
            limit = best[q] + margin if lengths[q] < 1e30 else np.inf
            label[q] = decide(X, start + q, centroids, values, q, limit)
    return values


@inner()
def nearest_by_definition(X, start, n, centroids, scratch):
    """Find the nearest centroid of rows from `start` on by the plain formula, many rows at once."""
    label, columns, square, best = scratch.label, scratch.columns, scratch.square, scratch.lowest
    k, m = centroids.shape
    for f in range(m):
        for q in range(n):
            columns[f * n + q] = X[start + q, f]
    for q in range(n):
        best[q] = np.inf
        label[q] = 0
    for j in range(k):
        for f in range(m):
            number = centroids[j, f]
            column = columns[f * n : (f + 1) * n]
            if f == 0:
                for q in range(n):
                    difference = column[q] - number
                    square[q] = difference * difference
            else:
                for q in range(n):
                    difference = column[q] - number
                    square[q] += difference * difference
        for q in range(n):
            label[q] = np.int32(j) if square[q] < best[q] else label[q]
            best[q] = square[q] if square[q] < best[q] else best[q]
