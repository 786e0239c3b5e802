"""Buffers that compiled functions write to, one set per thread."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedkmeans.kernels.numba.jit.common import FEW_TERMS

# Numbers in the single precision buffers of one block, which should stay in the processor's cache.
_BLOCK_NUMBERS = 200_000
# Rows of a block. Not a power of two: numbers at such distances would evict each other from the cache.
_BLOCK_ROWS = 496


class Scratch(NamedTuple):
    """Buffers for `scan`; see `new_scratch`.

    Attributes
    ----------
    size : int
        Rows of a block.
    rows : ndarray of shape (size * m,), single precision
        Shifted and scaled.
    products, values : ndarray of shape (size * k,), single precision
        Products of rows and centroids, by row and by centroid.
    lengths, best, second : ndarray of shape (size,), single precision
        Squared lengths of rows; their lowest two values.
    label, order : ndarray of shape (size,)
    ends : ndarray of shape (k,)
    columns : ndarray of shape (size * m,)
        Transposed rows for the plain formula; length zero if it is not used.
    square, lowest : ndarray of shape (size,)
        Squared distances to one centroid and to the nearest.
    scaled, squares : ndarray of shape (k, m) and (k,), single precision
        The centroids, shifted and scaled, and their squared lengths.
    shift : ndarray of shape (m,)
        Of the data's precision.
    """

    size: int
    rows: Any
    products: Any
    values: Any
    lengths: Any
    best: Any
    second: Any
    label: Any
    order: Any
    ends: Any
    columns: Any
    square: Any
    lowest: Any
    scaled: Any
    squares: Any
    shift: Any


def new_scratch(k, m, n, dtype):
    """Buffers for n rows of this dtype."""
    size = max(1, min(n, _BLOCK_ROWS, max(16, _BLOCK_NUMBERS // (m + k))))
    few = k * m <= FEW_TERMS
    single = np.float32
    return Scratch(
        size=size,
        rows=np.empty(0 if few else size * m, single),
        products=np.empty(0 if few else size * k, single),
        values=np.empty(0 if few else size * k, single),
        lengths=np.empty(size, single),
        best=np.empty(size, single),
        second=np.empty(size, single),
        label=np.empty(size, np.int32),
        order=np.empty(size, np.int64),
        ends=np.empty(k, np.int64),
        columns=np.empty(size * m if few else 0),
        square=np.empty(size),
        lowest=np.empty(size),
        scaled=np.empty((0 if few else k, m), single),
        squares=np.empty(k, single),
        shift=np.empty(m, single if dtype == single else np.float64),
    )


class SparseScratch(NamedTuple):
    """Buffers for `scan_sparse`; see `new_sparse_scratch`.

    Attributes
    ----------
    label : ndarray of shape (0,)
        Passed as the labels where none are wanted.
    turned : ndarray of shape (m * k,)
        The centroids, by column.
    squares, values : ndarray of shape (k,)
        ‖c‖², and ‖c‖² - 2xc for one row.
    spread : ndarray of shape (1, m)
        Buffer for one row with its zeros; all zeros between uses.
    """

    label: Any
    turned: Any
    squares: Any
    values: Any
    spread: Any


def new_sparse_scratch(k, m):
    """Buffers for up to k centroids."""
    return SparseScratch(
        label=np.empty(0, np.int32),
        turned=np.empty(m * k),
        squares=np.empty(k),
        values=np.empty(k),
        spread=np.zeros((1, m)),
    )


class Workspace(NamedTuple):
    """Buffers for the local steps of one client; see `new_workspace`.

    Attributes
    ----------
    sums, frozen : ndarray of shape (k * n,)
        T (see `gram`); products of rows with the means of clusters that lost their rows.
    best, second : ndarray of shape (n,)
        Lowest two values of each row.
    nearest : ndarray of shape (n,)
        Lowest lower bound of each row.
    label, final : ndarray of shape (n,)
        New labels; the labels of the last local step of the previous answer.
    count, factors, squares : ndarray of shape (k,)
        Weight of each cluster, one over it, ‖mean‖².
    n_rows : ndarray of shape (k,)
    local, ready : ndarray of shape (k, m) and (k,)
        Local centroids as in the plain version, and whether they are up to date.
    means : ndarray of shape (k, m)
    status, dirty : ndarray of shape (k,)
    vector : ndarray of shape (m,)
    moved : ndarray of shape (k,)
        Distances by which the centroids have moved.
    """

    sums: Any
    frozen: Any
    best: Any
    second: Any
    nearest: Any
    label: Any
    final: Any
    count: Any
    factors: Any
    squares: Any
    n_rows: Any
    local: Any
    ready: Any
    means: Any
    status: Any
    dirty: Any
    vector: Any
    moved: Any


def new_workspace(k, m, n, with_gram=False):
    """Buffers for clients with up to n rows."""
    n_steps = n if with_gram else 0
    return Workspace(
        sums=np.empty(k * n_steps),
        frozen=np.empty(k * n_steps),
        best=np.empty(n_steps),
        second=np.empty(n_steps),
        nearest=np.empty(n),
        label=np.empty(n_steps, np.int32),
        final=np.empty(n, np.int32),
        count=np.empty(k),
        factors=np.empty(k),
        squares=np.empty(k),
        n_rows=np.empty(k, np.int64),
        local=np.empty((k, m)),
        ready=np.empty(k, np.bool_),
        means=np.empty((k, m)),
        status=np.empty(k, np.int8),
        dirty=np.empty(k, np.bool_),
        vector=np.empty(m),
        moved=np.empty(k),
    )
