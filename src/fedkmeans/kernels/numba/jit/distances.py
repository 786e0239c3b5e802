"""Squared distances: by the plain formula, and faster where rounding does not matter."""

from __future__ import annotations

import numpy as np

from fedkmeans.kernels.numba.jit.common import ANY_ORDER, DOUBLE, inner


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
