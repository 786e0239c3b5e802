"""Buffers that compiled functions write to, one set per call."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from fedkmeans.kernels.numba.jit.common import FEW_TERMS, chosen_by_type, inner, is_single, is_sparse

# Numbers in the single precision buffers of one block, which should stay in the processor's cache.
_BLOCK_NUMBERS = 200_000
# Rows of a block. Not a power of two: numbers at such distances would evict each other from the cache.
_BLOCK_ROWS = 496


Scratch = namedtuple(
    "Scratch",
    "size rows products values scaled squares lengths best second label order ends columns square lowest "
    "shift",
)


@inner()
def new_dense_scratch(X, k, m, n, only_products):
    """Buffers for blocks of dense rows, n in all.

    Few terms are left to the plain formula, unless `only_products`. Then the buffers for products have
    length zero, otherwise `columns`.
    """
    few = not only_products and k * m <= FEW_TERMS
    size = max(1, min(n, _BLOCK_ROWS, max(16, _BLOCK_NUMBERS // (m + k))))
    n_products, n_scaled, n_plain = (0, 0, size) if few else (size, k, 0)
    return Scratch(
        size=size,  # rows of a block
        rows=np.empty(n_products * m, np.float32),  # shifted and scaled
        products=np.empty(n_products * k, np.float32),  # of rows and centroids, by row
        values=np.empty(n_products * k, np.float32),  # the same by centroid
        scaled=np.empty((n_scaled, m), np.float32),  # the centroids, shifted and scaled
        squares=np.empty(k, np.float32),  # their squared lengths
        lengths=np.empty(size, np.float32),  # squared lengths of rows
        best=np.empty(size, np.float32),  # the lowest value of each row
        second=np.empty(size, np.float32),  # the second lowest
        label=np.empty(size, np.int32),
        order=np.empty(size, np.int64),
        ends=np.empty(k, np.int64),
        columns=np.empty(n_plain * m),  # transposed rows
        square=np.empty(size),  # squared distances to one centroid
        lowest=np.empty(size),  # to the nearest
        shift=empty_like_data(X, m),
    )


@inner()
def empty_single(X, m):
    """A vector in single precision."""
    return np.empty(m, np.float32)


@inner()
def empty_double(X, m):
    """A vector in double precision."""
    return np.empty(m, np.float64)


empty_like_data = chosen_by_type(is_single, empty_single, empty_double)
SparseScratch = namedtuple("SparseScratch", "label turned squares values spread")


@inner()
def new_sparse_scratch(X, k, m, n, only_products):
    """The same for sparse rows."""
    return SparseScratch(
        label=np.empty(0, np.int32),  # passed as the labels where none are wanted
        turned=np.empty(m * k),  # the centroids, by column
        squares=np.empty(k),  # ‖c‖²
        values=np.empty(k),  # ‖c‖² - 2xc for one row
        spread=np.zeros((1, m)),  # one row with its zeros; all zeros between uses
    )


new_scratch = chosen_by_type(is_sparse, new_sparse_scratch, new_dense_scratch)
Workspace = namedtuple(
    "Workspace",
    "sums frozen best second lengths label final count factors squares n_rows local ready means status dirty "
    "vector",
)


@inner()
def new_workspace(k, m, n):
    """Buffers for the local steps of clients with up to n rows."""
    return Workspace(
        sums=np.empty(k * n),  # T (see `gram`)
        frozen=np.empty(k * n),  # products of rows with the means of clusters that lost their rows
        best=np.empty(n),  # the lowest value of each row
        second=np.empty(n),  # the second lowest
        lengths=np.empty(n),  # squared lengths of rows
        label=np.empty(n, np.int32),  # new labels
        final=np.empty(n, np.int32),  # labels of the last local step of the previous answer
        count=np.empty(k),  # weight of each cluster
        factors=np.empty(k),  # one over it
        squares=np.empty(k),  # ‖mean‖²
        n_rows=np.empty(k, np.int64),
        local=np.empty((k, m)),  # local centroids as in the plain version
        ready=np.empty(k, np.bool_),  # whether these are up to date
        means=np.empty((k, m)),
        status=np.empty(k, np.int8),
        dirty=np.empty(k, np.bool_),
        vector=np.empty(m),
    )


@inner()
def most_rows(starts, which):
    """Rows of the largest of some clients."""
    most = 0
    for a in range(len(which)):
        most = max(most, starts[which[a] + 1] - starts[which[a]])
    return most
