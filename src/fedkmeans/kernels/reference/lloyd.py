"""Lloyd's steps on the data of one client: the plain version, which other kernels are tested against.

Data may have any real dtype or be sparse, and is read block by block. Centroids, sums and distances are in
double precision.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import LocalSummary
from fedkmeans.kernels.sparse import SparseRows, Table

# Numbers in one temporary array of differences; 2 MB fit into the cache of common processors.
_BLOCK_NUMBERS = 2**18
# Up to this many coordinate differences, subtracting is faster than a matrix product.
_SMALL = 2**14
_FEW_COLUMNS = 16


def blocks(n_rows: int, numbers_per_row: int) -> Iterator[slice]:
    """Cut rows into blocks so that one block makes about `_BLOCK_NUMBERS` numbers."""
    size = max(1, _BLOCK_NUMBERS // max(1, numbers_per_row))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def double_block(X: Table, rows: slice | IntArray) -> FloatArray:
    """Some rows as a new array in double precision.

    It is always in row order: with another memory layout sums over columns would round differently, and a
    data frame must give the same run as an array with the same numbers. Sparse rows become dense here, a
    block at a time.
    """
    if isinstance(X, SparseRows):
        return X[rows].dense(np.float64)
    return np.array(X[rows], dtype=np.float64, order="C")


def squared_distances(X: Table, centroids: FloatArray) -> FloatArray:
    """Squared distance of every row to every centroid, by definition.

    Parameters
    ----------
    X : ndarray of shape (n, m)
    centroids : ndarray of shape (k, m)

    Returns
    -------
    ndarray of shape (n, k)
    """
    distances = np.empty((len(X), len(centroids)))
    for rows in blocks(len(X), X.shape[1] + len(centroids)):
        block = double_block(X, rows)
        # One column after the other: the squares of a row are added in the same order for any number of
        # rows. So a row gets the same label in a client's shard as in the pooled data, and by any kernel
        # that adds the columns in their order.
        squares = np.zeros((len(block), len(centroids)))
        for column in range(X.shape[1]):
            difference = block[:, column, None] - centroids[:, column]
            difference *= difference
            squares += difference
        distances[rows] = squares
    return distances


def assign(X: Table, centroids: FloatArray) -> IntArray:
    """Label of the nearest centroid for every row; the first one wins a tie.

    The labels are always those of the plain formula, ``squared_distances(X, centroids).argmin(1)``.
    For large data a matrix product finds them faster, and the plain formula decides only those rows for
    which the rounding of the product could matter.

    Parameters
    ----------
    X : ndarray of shape (n, m)
    centroids : ndarray of shape (k, m)

    Returns
    -------
    labels : ndarray of shape (n,)
    """
    if len(X) * centroids.size <= _SMALL and X.shape[1] <= _FEW_COLUMNS:
        return np.asarray(squared_distances(X, centroids).argmin(axis=1))
    labels = np.empty(len(X), dtype=np.intp)
    # Distances do not change when everything is shifted, and have smaller rounding errors near the origin.
    shift = centroids.mean(axis=0)
    centred = centroids - shift
    squares = np.einsum("km,km->k", centred, centred)
    for rows in blocks(len(X), sum(centroids.shape)):
        block = double_block(X, rows)
        block -= shift
        # ‖x - c‖² without ‖x‖², which is the same for every centroid.
        values = squares - 2.0 * (block @ centred.T)
        labels[rows] = values.argmin(axis=1)
        unsure = _close_calls(values, block, squares)
        if len(unsure):
            plain = squared_distances(double_block(X, rows.start + unsure), centroids)
            labels[rows.start + unsure] = plain.argmin(axis=1)
    return labels


def _close_calls(values: FloatArray, block: FloatArray, squares: FloatArray) -> IntArray:
    """Rows whose two nearest centroids cannot be told apart because of rounding."""
    reach = np.sqrt(np.einsum("nm,nm->n", block, block)) + np.sqrt(squares.max())
    rounding = 8.0 * (block.shape[1] + 8) * np.finfo(np.float64).eps * reach**2
    within = values <= (values.min(axis=1) + 2.0 * rounding)[:, None]
    return np.flatnonzero(np.count_nonzero(within, axis=1) > 1)


def cluster_sums(
    X: Table, labels: IntArray, n_clusters: int, sample_weight: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Sum of the rows of each cluster, and their number (or weight).

    Returns
    -------
    sums : ndarray of shape (k, m)
    counts : ndarray of shape (k,)
    """
    counts = np.bincount(labels, weights=sample_weight, minlength=n_clusters).astype(np.float64)
    sums = np.zeros((n_clusters, X.shape[1]))
    for rows in blocks(len(X), X.shape[1]):
        block = double_block(X, rows)
        if sample_weight is not None:
            block *= sample_weight[rows, None]
        sums += _sums_in_order(block, labels[rows], n_clusters)
    return sums, counts


def _sums_in_order(block: FloatArray, labels: IntArray, n_clusters: int) -> FloatArray:
    """Sum of the rows of each cluster, added in their order, as in every kernel."""
    if block.shape[1] <= _FEW_COLUMNS:
        columns = [np.bincount(labels, weights=column, minlength=n_clusters) for column in block.T]
        return np.stack(columns, axis=1)
    sums = np.zeros((n_clusters, block.shape[1]))
    sorted_rows = block[np.argsort(labels, kind="stable")]
    edges = np.cumsum(np.bincount(labels, minlength=n_clusters))
    for total, rows in zip(sums, np.split(sorted_rows, edges[:-1]), strict=True):
        # Along the slow axis NumPy adds row after row; along the fast one it adds in pairs.
        np.add.reduce(rows, axis=0, out=total, initial=0.0)
    return sums


def distances_to_own(X: Table, centroids: FloatArray, labels: IntArray) -> FloatArray:
    """Squared distance of every row to the centroid of its own label, shape (n,)."""
    distances = np.empty(len(X))
    for rows in blocks(len(X), X.shape[1]):
        difference = double_block(X, rows) - centroids[labels[rows]]
        np.einsum("nm,nm->n", difference, difference, out=distances[rows])
    return distances


def inertia_per_cluster(
    X: Table, centroids: FloatArray, labels: IntArray, sample_weight: FloatArray | None = None
) -> FloatArray:
    """Sum of squared distances to the own centroid, per cluster, shape (k,)."""
    distances = distances_to_own(X, centroids, labels)
    if sample_weight is not None:
        distances *= sample_weight
    return np.bincount(labels, weights=distances, minlength=len(centroids)).astype(np.float64, copy=False)


def distance_between(a: FloatArray, b: FloatArray, room: FloatArray | None = None) -> float:
    """‖a - b‖ over all numbers; `room` is an array of the same shape that is overwritten.

    NumPy's norm is not used: it is a scalar product, whose rounding depends on the threads of a library.
    """
    difference = np.subtract(a, b, out=room)
    difference *= difference
    return float(np.sqrt(difference.sum()))


def means(sums: FloatArray, counts: FloatArray, otherwise: FloatArray) -> FloatArray:
    """Σ / n for clusters with points, `otherwise` for the others; all of shape (k, m)."""
    filled = counts > 0
    if filled.all():  # nearly always, and several times faster
        return np.asarray(sums / counts[:, None])
    result = otherwise.copy()
    np.divide(sums, counts[:, None], out=result, where=filled[:, None])
    return result


def relocate_empty(
    X: Table,
    centroids: FloatArray,
    labels: IntArray,
    sums: FloatArray,
    counts: FloatArray,
    sample_weight: FloatArray | None = None,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Give each empty cluster the row farthest from its centroid, as scikit-learn does.

    A row leaves its cluster only if the cluster keeps other rows, and only if the row is not at its
    centroid: otherwise the result would be another empty cluster.

    Returns
    -------
    labels : ndarray of shape (n,)
    sums : ndarray of shape (k, m)
    counts : ndarray of shape (k,)
        After the moves; the arrays that were passed if nothing moved.
    """
    empty = np.flatnonzero(counts == 0)
    if not len(empty):
        return labels, sums, counts
    distances = distances_to_own(X, centroids, labels)
    if sample_weight is not None:
        distances[sample_weight == 0] = 0.0  # a row without weight cannot fill a cluster
    n_rows = np.bincount(labels, minlength=len(centroids))
    labels = labels.copy()
    candidates = iter(np.argsort(-distances, kind="stable"))
    for cluster in empty:
        for row in candidates:
            if distances[row] > 0 and n_rows[labels[row]] > 1:
                n_rows[labels[row]] -= 1
                n_rows[cluster] += 1
                labels[row] = cluster
                break
    # Summed anew: subtracting rows from a sum would leave rounding errors.
    return labels, *cluster_sums(X, labels, len(centroids), sample_weight)


def local_update(
    X: Table,
    centroids: FloatArray,
    max_local: int,
    tol_local: float,
    empty_clusters: str = "keep",
    sample_weight: FloatArray | None = None,
    with_inertia: bool = True,
) -> LocalSummary:
    """Make up to `max_local` Lloyd steps from the global centroids (the paper's ``LocalUpdate``).

    Parameters
    ----------
    X : ndarray of shape (n, m)
    centroids : ndarray of shape (k, m)
        As received from the server.
    max_local : int
    tol_local : float
        Stop early when ‖ΔC_i‖_F is smaller.
    empty_clusters : {"keep", "relocate", "drop"}
        A cluster without points keeps its centroid (the paper), moves to a far point (scikit-learn), or is
        left out of the local steps (FKM).
    sample_weight : ndarray of shape (n,) or None
    with_inertia : bool
        Whether to compute the two inertias of the summary; otherwise they are NaN.

    Returns
    -------
    LocalSummary
    """
    labels, received_inertia = assign(X, centroids), float("nan")
    counts = np.bincount(labels, weights=sample_weight, minlength=len(centroids)).astype(np.float64)
    if with_inertia:
        received_inertia = float(inertia_per_cluster(X, centroids, labels, sample_weight).sum())
    # A dropped cluster is left out for the whole round: it cannot win points in a later local step.
    active = np.unique(labels) if empty_clusters == "drop" else np.arange(len(centroids))
    labels, local = np.searchsorted(active, labels), centroids[active]
    for step in range(max_local):
        if step:
            labels = assign(X, local)
        sums, last_counts = cluster_sums(X, labels, len(local), sample_weight)
        if empty_clusters == "relocate":
            labels, sums, last_counts = relocate_empty(X, local, labels, sums, last_counts, sample_weight)
        moved = means(sums, last_counts, otherwise=local)
        movement = distance_between(moved, local)
        local = moved
        if movement < tol_local:
            break
    inertia = np.full(len(local), np.nan)
    if with_inertia:
        inertia = inertia_per_cluster(X, local, labels, sample_weight)
    return LocalSummary(
        centroids=_spread(local, active, centroids.copy()),
        counts=counts,
        last_counts=_spread(last_counts, active, np.zeros(len(centroids))),
        inertia=_spread(inertia, active, np.zeros(len(centroids))),
        n_samples=float(len(X) if sample_weight is None else sample_weight.sum()),
        received_inertia=received_inertia,
    )


def _spread(values: FloatArray, active: IntArray, target: FloatArray) -> FloatArray:
    """Write the values of the active clusters to their places among all clusters."""
    target[active] = values
    return target
