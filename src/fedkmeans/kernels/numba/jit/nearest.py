"""Squared distances, and nearest centroids of a block of rows by matrix product or by the plain formula."""

from __future__ import annotations

import numpy as np

from fedkmeans.kernels.numba.jit.common import (
    ANY_ORDER,
    DOUBLE,
    FINITE,
    MANY_COLUMNS,
    SINGLE,
    chosen_by_type,
    fill,
    inner,
    is_single,
    part_of_caller,
)

# Centroids need no shift if their squared length is at most this many times that from their middle.
_NOT_FAR = 32.0
# Squared lengths for which single precision needs no scaling.
_MODERATE = 1e-10, 1e10


@inner()
def exact_square(X, p, centroids, j):
    """Squared distance as in the plain version: one term after the other."""
    total = 0.0
    for f in range(centroids.shape[1]):
        difference = np.float64(X[p, f]) - centroids[j, f]
        total += difference * difference
    return total


@inner(fastmath=ANY_ORDER)
def quick_square(X, p, centroids, j):
    """The same to (m + 2) roundings, several terms at once."""
    total = 0.0
    for f in range(centroids.shape[1]):
        difference = np.float64(X[p, f]) - centroids[j, f]
        total += difference * difference
    return total


@inner()
def square_between(a, b):
    """Squared distance of two vectors."""
    total = 0.0
    for f in range(len(a)):
        total += (a[f] - b[f]) ** 2
    return total


@inner()
def decide(X, p, centroids, values, q, limit):
    """Nearest of the centroids j with values[j, q] <= limit, by the plain formula."""
    k, m = centroids.shape
    best, label = np.inf, 0
    for j in range(k):
        if not values[j, q] > limit:
            square = quick_square(X, p, centroids, j)
            if square < best:
                best, label = square, j
    # Few rows get here, so computing the distances again is cheap.
    close = best * (1 + 8 * (m + 8) * DOUBLE)
    best = np.inf
    for j in range(k):
        if not values[j, q] > limit and quick_square(X, p, centroids, j) <= close:
            square = exact_square(X, p, centroids, j)
            if square < best:
                best, label = square, j
    return label


@inner()
def focus(centroids, scaled, squares, shift, may_stay):
    """Shift and scale the centroids so that single precision is most accurate.

    Distances do not change when everything is shifted. The factor is a power of two, so that scaling
    rounds nothing. It gives the longest shifted centroid a length of at most one. If centroids `may_stay`,
    they do where this is accurate: if they are not much longer than the distances between them, and
    nothing can overflow. Returns the factor, an upper bound of the lengths, and whether they stay.
    """
    k, m = centroids.shape
    for f in range(m):
        total = 0.0
        for j in range(k):
            total += centroids[j, f]
        shift[f] = total / k  # rounded to the precision of the data
    longest, away = 0.0, 0.0
    for j in range(k):
        square, total = 0.0, 0.0
        for f in range(m):
            square += centroids[j, f] ** 2
            total += (centroids[j, f] - np.float64(shift[f])) ** 2
        longest, away = max(longest, square), max(away, total)
    stay = may_stay and _MODERATE[0] < longest < _MODERATE[1] and longest < _NOT_FAR * away
    factor = 1.0
    if stay:
        fill(shift, 0)
    elif away > 0:
        factor = 2.0 ** -np.ceil(0.5 * np.log2(away))
    for j in range(k):
        total = 0.0
        for f in range(m):
            number = (centroids[j, f] - np.float64(shift[f])) * factor
            scaled[j, f] = number
            total += number * number
        squares[j] = total
    return factor, np.sqrt(longest) if stay else 1.0, stay


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


@inner()
def slice_rows(X, start, n, rows):
    """The rows themselves."""
    return X[start : start + n]


@inner()
def given_rows(X, start, n, rows):
    """The buffer."""
    return rows


# The rows themselves if they are in single precision, else the buffer `rows`.
rows_as_they_are = chosen_by_type(is_single, slice_rows, given_rows)


@inner(fastmath=ANY_ORDER)
def square_lengths(rows, lengths):
    """Squared lengths of rows in single precision."""
    for q in range(len(rows)):
        total = np.float32(0)
        for f in range(rows.shape[1]):
            total += rows[q, f] * rows[q, f]
        lengths[q] = total


@part_of_caller()
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


@part_of_caller()
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
