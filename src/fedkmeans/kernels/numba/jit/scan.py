"""One pass over dense rows: nearest centroids, sums and counts."""

from __future__ import annotations

import numpy as np

from fedkmeans.kernels.numba.jit.common import MANY_COLUMNS, entry, fill, inner
from fedkmeans.kernels.numba.jit.distances import quick_square
from fedkmeans.kernels.numba.jit.nearest import (
    focus,
    load_rows,
    nearest_by_definition,
    nearest_by_product,
    round_centroids,
    rows_as_they_are,
    square_lengths,
)


@inner()
def add_rows(X, start, n, label, sums, counts):
    """Add rows to the sums and counts of their clusters, in their order."""
    for q in range(n):
        j = label[q]
        counts[j] += 1.0
        for f in range(X.shape[1]):
            sums[j, f] += np.float64(X[start + q, f])


@inner()
def add_long_rows(X, start, n, label, order, ends, sums, counts):
    """The same, one cluster after the other, so that its sum stays in the processor's cache.

    `order` (n,) and `ends` (k,) are buffers.
    """
    fill(ends, 0)
    for q in range(n):
        ends[label[q]] += 1
    for j in range(1, len(ends)):
        ends[j] += ends[j - 1]
    for q in range(n - 1, -1, -1):  # the rows of each cluster keep their order
        j = label[q]
        ends[j] -= 1
        order[ends[j]] = start + q
    for j in range(len(ends)):
        e, stop = ends[j], n if j == len(ends) - 1 else ends[j + 1]
        counts[j] += stop - e
        # Four rows at a time, so that the sums are read and written once for four terms.
        while e + 4 <= stop:
            p0, p1, p2, p3 = order[e], order[e + 1], order[e + 2], order[e + 3]
            for f in range(X.shape[1]):
                x0, x1, x2, x3 = np.float64(X[p0, f]), np.float64(X[p1, f]), X[p2, f], X[p3, f]
                sums[j, f] = (((sums[j, f] + x0) + x1) + np.float64(x2)) + np.float64(x3)
            e += 4
        while e < stop:
            p0 = order[e]
            for f in range(X.shape[1]):
                sums[j, f] += np.float64(X[p0, f])
            e += 1


@inner()
def add_weighted_rows(X, start, n, weight, label, sums, counts):
    """The same for rows with weights; product and sum are rounded one after the other."""
    for q in range(n):
        j, own = label[q], weight[start + q]
        counts[j] += own
        for f in range(X.shape[1]):
            sums[j, f] += own * np.float64(X[start + q, f])


@inner()
def add_inertia(X, start, n, weight, label, centroids, inertia):
    """Add squared distances to the own centroid, per cluster."""
    for q in range(n):
        own = weight[start + q] if len(weight) else 1.0
        j = np.int64(label[q])
        inertia[j] += own * quick_square(X, start + q, centroids, j)


@entry()
def scan(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia):
    """One pass over rows: labels, sums, counts and squared distances to the own centroid.

    To leave an output out, pass an array of length zero. A `weight` of length zero means ones.
    """
    size, label, (k, m) = scratch.size, scratch.label, centroids.shape
    few = len(scratch.columns) > 0
    scaled, squares, lengths = scratch.scaled[:k], scratch.squares, scratch.lengths
    longest, factor = 0.0, 1.0
    if not few and scratch.shift.itemsize == 4:
        longest = round_centroids(centroids, scaled, squares)
    if not few and longest == 0:
        factor = focus(centroids, scaled, squares, scratch.shift)
    factor = scratch.shift.dtype.type(factor)
    for block in range(start, stop, size):
        n = min(size, stop - block)
        if few:
            nearest_by_definition(X, block, n, centroids, scratch)
        else:
            rows = scratch.rows[: n * m].reshape(n, m)
            if longest > 0:
                rows = rows_as_they_are(X, block, n, rows)
                square_lengths(rows, lengths)
            else:
                load_rows(X, block, n, scratch.shift, factor, rows, lengths)
            reach = longest if longest > 0 else 1.0
            nearest_by_product(X, block, centroids, rows, lengths, scaled, squares, reach, scratch)
        if len(labels):
            for q in range(n):
                labels[block + q] = label[q]
        if len(counts) and len(weight):
            add_weighted_rows(X, block, n, weight, label, sums, counts)
        elif len(counts) and X.shape[1] >= MANY_COLUMNS:
            add_long_rows(X, block, n, label, scratch.order, scratch.ends[: len(centroids)], sums, counts)
        elif len(counts):
            add_rows(X, block, n, label, sums, counts)
        if len(inertia):
            add_inertia(X, block, n, weight, label, centroids, inertia)
