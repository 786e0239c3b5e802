"""Distances of rows to centroids by matrix products, accurate also for rows close to a centroid."""

from __future__ import annotations

import numpy as np

from fedkmeans._utils.typing import FloatArray
from fedkmeans.kernels.reference.lloyd import blocks, distances_to_own, double_block
from fedkmeans.kernels.sparse import SparseRows, Table

# Squared distances that are a smaller part of ‖x‖² + ‖c‖² are computed from differences: of these the
# matrix product would lose more than six of sixteen digits.
_SMALL_PART = 1e-6


def distances(X: Table, centroids: FloatArray) -> FloatArray:
    """Distance of every row to every centroid, with a relative error below 1e-7.

    Parameters
    ----------
    X : ndarray or SparseRows of shape (n, m)
    centroids : ndarray of shape (k, m)

    Returns
    -------
    ndarray of shape (n, k)
        Zero where a row equals a centroid.
    """
    k, m = centroids.shape
    sparse = isinstance(X, SparseRows)
    # Dense rows are shifted to the middle of the centroids, which makes the products smaller.
    shift = np.zeros(m) if sparse else centroids.mean(axis=0)
    shifted = centroids - shift
    lengths = np.einsum("km,km->k", shifted, shifted)
    found = np.empty((len(X), k))
    for rows in blocks(len(X), k if sparse else k + m):
        if isinstance(X, SparseRows):
            matrix = X[rows].matrix().astype(np.float64)
            products, squares = matrix @ shifted.T, matrix.multiply(matrix).sum(axis=1)
        else:
            block = double_block(X, rows)
            block -= shift
            products, squares = block @ shifted.T, np.einsum("nm,nm->n", block, block)
        sizes = squares[:, None] + lengths
        part = sizes - 2.0 * products
        near, which = np.nonzero(~(part > _SMALL_PART * sizes))
        if len(near):
            part[near, which] = distances_to_own(X[rows][near], centroids, which)
        np.sqrt(part, out=found[rows])
    return found
