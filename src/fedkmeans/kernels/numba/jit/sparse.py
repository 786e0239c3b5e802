"""Sparse rows; see `structures.Csr`.

The products of a row with all centroids take as many terms as the row has numbers. They are computed in
double precision with transposed centroids (m, k), so that the innermost loop runs over clusters. A row is
spread over all m columns only if it is a close call which centroid is the nearest, or if the short
formula for its squared distance would round too much.
"""

from __future__ import annotations

import numpy as np

from fedkmeans.kernels.numba.jit.buffers import new_sparse_scratch
from fedkmeans.kernels.numba.jit.common import ANY_ORDER, DOUBLE, entry, fill, inner
from fedkmeans.kernels.numba.jit.nearest import decide, quick_square

# Relative error that is allowed in a squared distance of a row.
_DIGITS = 1e-10


@inner(fastmath=ANY_ORDER)
def turn(centroids, turned, squares):
    """Transpose centroids (k, m), and compute their squared lengths; returns the largest of these."""
    k, m = centroids.shape
    longest = 0.0
    for j in range(k):
        total = 0.0
        for f in range(m):
            total += centroids[j, f] * centroids[j, f]
        squares[j] = total
        longest = max(longest, total)
    for f in range(m):
        for j in range(k):
            turned[f, j] = centroids[j, f]
    return longest


@inner(fastmath=ANY_ORDER)
def sparse_values(X, p, turned, squares, values):
    """Compute ‖c‖² - 2xc of one row for all centroids; returns ‖x‖²."""
    k = len(values)
    e, stop = X.indptr[p], X.indptr[p + 1]
    length = 0.0
    for j in range(k):
        values[j] = squares[j]
    # Four numbers at a time, so that the values are read and written once for four terms.
    while e + 4 <= stop:
        f0, f1, f2, f3 = X.indices[e], X.indices[e + 1], X.indices[e + 2], X.indices[e + 3]
        x0, x1 = np.float64(X.data[e]), np.float64(X.data[e + 1])
        x2, x3 = np.float64(X.data[e + 2]), np.float64(X.data[e + 3])
        length += (x0 * x0 + x1 * x1) + (x2 * x2 + x3 * x3)
        x0, x1, x2, x3 = -2 * x0, -2 * x1, -2 * x2, -2 * x3
        for j in range(k):
            values[j] += (x0 * turned[f0, j] + x1 * turned[f1, j]) + (x2 * turned[f2, j] + x3 * turned[f3, j])
        e += 4
    while e < stop:
        f0, x0 = X.indices[e], np.float64(X.data[e])
        length += x0 * x0
        for j in range(k):
            values[j] -= 2 * x0 * turned[f0, j]
        e += 1
    return length


@inner()
def spread_row(X, p, spread, fill_in):
    """Write a row's numbers into their columns, or reset these to zero."""
    for e in range(X.indptr[p], X.indptr[p + 1]):
        spread[0, X.indices[e]] = np.float64(X.data[e]) if fill_in else 0.0


@inner()
def nearest_of_sparse(X, p, centroids, turned, longest, scratch):
    """Nearest centroid of one row, its squared distance, and a bound on the rounding error of that.

    Each value is a sum of up to m + 1 terms, whose absolute values add up to no more than
    ‖c‖² + 2‖x‖‖c‖ <= reach², and ‖c‖² itself one of m terms: no value is off by more than
    (2m + 8) roundings of reach². The plain formula is off by (m + 2) roundings of a squared distance,
    which is also at most reach². The margin covers two values and two such distances. A value and ‖x‖²
    together are off by (3m + 16) roundings, less than an eighth of the margin.
    """
    k, m = centroids.shape
    values = scratch.values[:k]
    length = sparse_values(X, p, turned, scratch.squares, values)
    best, second, label = np.inf, np.inf, 0
    for j in range(k):
        value = values[j]
        if value < best:
            best, second, label = value, best, j
        elif value < second:
            second = value
    reach = np.sqrt(length) + np.sqrt(longest)
    margin = 32 * (m + 8) * DOUBLE * reach * reach + 1e-300  # for numbers too small to have all digits
    # Written so that values that are not finite count as close.
    if not second - best > margin:
        spread_row(X, p, scratch.spread, True)
        limit = best + margin if margin < np.inf else np.inf
        label = decide(scratch.spread, 0, centroids, values.reshape(k, 1), 0, limit)
        spread_row(X, p, scratch.spread, False)
    return label, length + values[label], margin / 8


@inner()
def add_sparse_row(X, p, own, sums):
    """Add a row to a vector; product and sum are rounded one after the other, as for dense rows."""
    for e in range(X.indptr[p], X.indptr[p + 1]):
        sums[X.indices[e]] += own * np.float64(X.data[e])


@inner(fastmath=ANY_ORDER)
def two_squares(X, p, vector):
    """Σ(x - v)² and Σv² over the columns in which the row has numbers."""
    near, covered = 0.0, 0.0
    for e in range(X.indptr[p], X.indptr[p + 1]):
        number = vector[X.indices[e]]
        difference = np.float64(X.data[e]) - number
        near += difference * difference
        covered += number * number
    return near, covered


@inner()
def sparse_square(X, p, centroids, j, scratch):
    """Squared distance of a row to a centroid, with a relative error of at most `_DIGITS`."""
    near, covered = two_squares(X, p, centroids[j])
    whole = scratch.squares[j]
    total = near + max(whole - covered, 0.0)
    if 4 * (len(centroids[j]) + 8) * DOUBLE * whole <= _DIGITS * total:
        return total
    spread_row(X, p, scratch.spread, True)
    total = quick_square(scratch.spread, 0, centroids, j)
    spread_row(X, p, scratch.spread, False)
    return total


@entry()
def scan(X, weight, start, stop, centroids, labels, sums, counts, inertia):
    """See `scan_sparse`."""
    k, m = centroids.shape
    scratch = new_sparse_scratch(X, k, m, stop - start, False)
    scan_sparse(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia)


@inner()
def scan_sparse(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia):
    """The same as `clients.scan_dense`, for sparse rows."""
    k, m = centroids.shape
    turned = scratch.turned[: m * k].reshape(m, k)
    longest = turn(centroids, turned, scratch.squares)
    for p in range(start, stop):
        j, square, error = nearest_of_sparse(X, p, centroids, turned, longest, scratch)
        own = weight[p] if len(weight) else 1.0
        if len(labels):
            labels[p] = j
        if len(counts):
            counts[j] += own
            add_sparse_row(X, p, own, sums[j])
        if len(inertia):
            if not error <= _DIGITS * square:
                square = sparse_square(X, p, centroids, j, scratch)
            inertia[j] += own * square


@inner()
def load_sparse_start(X, p, start_row):
    """Make row p the start row; returns its squared length.

    `two_squares` adds it up in the same order, so that the distance between equal rows is zero.
    """
    fill(start_row[0], 0.0)
    spread_row(X, p, start_row, True)
    return two_squares(X, p, start_row[0])[1]


@inner()
def squares_to_sparse_starts(X, p, start_rows, lengths, squares):
    """Squared distances of row p to the start rows, up to rounding."""
    for t in range(len(start_rows)):
        near, covered = two_squares(X, p, start_rows[t])
        squares[t] = near + max(lengths[t] - covered, 0.0)
