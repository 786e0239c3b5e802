"""k-means on the data of one client, from scratch: what k-FED and FKM ask of a site.

Built on the same steps as the federated rounds, so that integer and single precision data are
never turned into double precision as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy.sparse.linalg import LinearOperator, svds

from fedkmeans.lloyd import (
    assign,
    blocks,
    cluster_sums,
    distances_to_own,
    double_block,
    means,
    relocate_empty,
    squared_distances,
)
from fedkmeans.records import CentroidSet
from fedkmeans.typing import DataArray, FloatArray, IntArray

# Columns up to which XᵀX is formed; beyond, a few products with vectors are cheaper.
_LARGEST_GRAM = 2048

LocalClustering: TypeAlias = Callable[
    [DataArray, int, np.random.Generator, int, int, FloatArray | None], FloatArray
]


def kmeans_plusplus(
    X: DataArray,
    n_clusters: int,
    rng: np.random.Generator,
    sample_weight: FloatArray | None = None,
    n_trials: int | None = None,
) -> FloatArray:
    """Choose rows as first centroids: greedy k-means++ (Arthur & Vassilvitskii 2007).

    Each draw tries `n_trials` rows, 2 + ln k as in scikit-learn unless said otherwise, and keeps the
    one that helps most.

    Returns
    -------
    ndarray of shape (n_clusters, m)
    """
    weight = np.ones(len(X)) if sample_weight is None else sample_weight
    shift = cluster_sums(X, np.zeros(len(X), dtype=np.intp), 1)[0][0] / len(X)
    n_trials = n_trials or 2 + int(np.log(n_clusters))
    first = rng.choice(len(X), p=weight / weight.sum())
    chosen = [int(first)]
    closest = _distances_to_rows(X, [chosen[0]], shift)[0]
    while len(chosen) < n_clusters:
        potential = np.cumsum(weight * closest)
        if potential[-1] <= 0:  # fewer different rows than clusters: any row is as good as another
            chosen.append(int(rng.integers(len(X))))
            continue
        draws = np.searchsorted(potential, rng.random(n_trials) * potential[-1], side="right")
        draws = np.minimum(draws, len(X) - 1)
        candidates = np.minimum(closest, _distances_to_rows(X, draws, shift))
        best = int(np.argmin(candidates @ weight))
        closest = candidates[best]
        chosen.append(int(draws[best]))
    return X[chosen].astype(np.float64)


def _distances_to_rows(X: DataArray, rows: IntArray | list[int], shift: FloatArray) -> FloatArray:
    """Squared distances of some rows to all rows, shape (len(rows), n), by matrix product.

    Rounding is harmless here: the distances only steer random draws. A row's distance to itself
    is exactly zero, so that it is not drawn twice.
    """
    targets = X[rows].astype(np.float64) - shift
    squares = np.einsum("tm,tm->t", targets, targets)
    distances = np.empty((len(targets), len(X)))
    for part in blocks(len(X), X.shape[1] + len(targets)):
        block = double_block(X, part)
        block -= shift
        own = np.einsum("nm,nm->n", block, block)
        distances[:, part] = squares[:, None] + own - 2.0 * (targets @ block.T)
    np.maximum(distances, 0.0, out=distances)
    distances[np.arange(len(targets)), rows] = 0.0
    return distances


def lloyd(
    X: DataArray, centroids: FloatArray, max_iter: int, sample_weight: FloatArray | None = None
) -> FloatArray:
    """Lloyd's steps until no label changes; empty clusters are relocated.

    Returns
    -------
    ndarray of shape (k, m)
    """
    before: IntArray | None = None
    for _ in range(max_iter):
        labels = assign(X, centroids)
        if before is not None and np.array_equal(labels, before):
            break
        before = labels
        sums, counts = cluster_sums(X, labels, len(centroids), sample_weight)
        _, sums, counts = relocate_empty(X, centroids, labels, sums, counts, sample_weight)
        centroids = means(sums, counts, otherwise=centroids)
    return centroids


def kmeans(
    X: DataArray,
    n_clusters: int,
    rng: np.random.Generator,
    n_init: int = 1,
    max_iter: int = 300,
    sample_weight: FloatArray | None = None,
) -> FloatArray:
    """Run k-means from `n_init` k-means++ starts and return the best centroids.

    Returns
    -------
    ndarray of shape (n_clusters, m)
    """
    best, best_inertia = None, np.inf
    for _ in range(n_init):
        centroids = lloyd(X, kmeans_plusplus(X, n_clusters, rng, sample_weight), max_iter, sample_weight)
        if n_init == 1:
            return centroids
        inertia = inertia_of(X, centroids, sample_weight)
        if best is None or inertia < best_inertia:
            best, best_inertia = centroids, inertia
    assert best is not None  # n_init is at least 1
    return best


def inertia_of(X: DataArray, centroids: FloatArray, sample_weight: FloatArray | None = None) -> float:
    """Sum of squared distances of all rows to their nearest centroid."""
    distances = distances_to_own(X, centroids, assign(X, centroids))
    return float(distances.sum() if sample_weight is None else distances @ sample_weight)


def awasthi_sheffet(
    X: DataArray,
    n_clusters: int,
    rng: np.random.Generator,
    n_init: int = 1,
    max_iter: int = 300,
    sample_weight: FloatArray | None = None,
) -> FloatArray:
    """Local clustering of k-FED as published (Awasthi & Sheffet 2012).

    Project on the top singular directions, cluster there, keep only points that are three times
    nearer to their own centre than to any other, and start Lloyd's steps from their means.

    Returns
    -------
    ndarray of shape (n_clusters, m)
    """
    directions = top_directions(X, n_clusters, rng)
    projected = np.empty((len(X), len(directions)))
    for rows in blocks(len(X), X.shape[1]):
        projected[rows] = double_block(X, rows) @ directions.T
    centres = kmeans(projected, n_clusters, rng, n_init, max_iter, sample_weight)
    distances = np.sqrt(squared_distances(projected, centres))
    nearest = distances.argmin(axis=1)
    own = distances[np.arange(len(X)), nearest]
    distances[np.arange(len(X)), nearest] = np.inf
    clear = 3.0 * own <= distances.min(axis=1)
    weight = clear.astype(np.float64) if sample_weight is None else clear * sample_weight
    sums, counts = cluster_sums(X, nearest, n_clusters, weight)
    # A centre with no clear points starts where it stood in the projected space.
    return lloyd(X, means(sums, counts, otherwise=centres @ directions), max_iter, sample_weight)


def top_directions(X: DataArray, n_directions: int, rng: np.random.Generator) -> FloatArray:
    """Top right singular vectors of X as rows, shape (min(n_directions, n, m), m).

    Needs memory for min(n, m)² numbers or a few vectors, never for the data in double precision.
    """
    n, m = X.shape
    wanted = min(n_directions, n, m)
    if n <= m:
        return np.asarray(np.linalg.svd(double_block(X, slice(None)), full_matrices=False)[2][:wanted])

    def transposed_times(u: FloatArray) -> FloatArray:
        parts = (double_block(X, rows).T @ u[rows] for rows in blocks(n, m))
        return np.asarray(sum(parts, start=np.zeros(m)))

    def times(v: FloatArray) -> FloatArray:
        return np.concatenate([double_block(X, rows) @ v for rows in blocks(n, m)])

    if m <= _LARGEST_GRAM:
        gram = np.zeros((m, m))
        for rows in blocks(n, m):
            block = double_block(X, rows)
            gram += block.T @ block
        return np.ascontiguousarray(np.linalg.eigh(gram)[1][:, ::-1][:, :wanted].T)
    operator = LinearOperator((n, m), matvec=times, rmatvec=transposed_times, dtype=np.float64)
    start = rng.standard_normal(m)
    return np.asarray(svds(operator, k=wanted, v0=start, return_singular_vectors="vh")[2][::-1])


LOCAL_CLUSTERINGS: dict[str, LocalClustering] = {"k-means": kmeans, "awasthi-sheffet": awasthi_sheffet}


def local_clusters(
    X: DataArray,
    n_clusters: int,
    method: str,
    rng: np.random.Generator,
    *,
    n_init: int,
    max_iter: int,
    min_cluster_size: int,
    sample_weight: FloatArray | None = None,
) -> CentroidSet:
    """Cluster one client's data and return only centroids of `min_cluster_size` rows or more.

    A client with few rows makes fewer clusters, and one with fewer than `min_cluster_size` sends
    none: a centroid of one row would be that row. Rows with weights count by their effective number
    (Σw)² / Σw², as a mean in which one row weighs nearly all is that row, too. The mean of the
    rows is taken here, and is the last of `max_iter` Lloyd steps.
    """
    whole = np.zeros(len(X), dtype=np.intp)
    wanted = min(n_clusters, int(_effective_sizes(whole, 1, sample_weight)[0] / min_cluster_size))
    if wanted == 0:
        return CentroidSet(np.empty((0, X.shape[1])), np.empty(0))
    centroids = LOCAL_CLUSTERINGS[method](X, wanted, rng, n_init, max_iter - 1, sample_weight)
    labels = assign(X, centroids)
    large = np.flatnonzero(_effective_sizes(labels, wanted, sample_weight) >= min_cluster_size)
    if not len(large):  # many small clusters: one large one says something, they may not
        labels, large = whole, np.array([0])
    sums, counts = cluster_sums(X, labels, wanted, sample_weight)
    sent = means(sums, counts, otherwise=centroids)[large]
    # Rows of clusters that are not sent still count, towards the nearest one that is.
    counts = np.bincount(assign(X, sent), weights=sample_weight, minlength=len(sent)).astype(np.float64)
    return CentroidSet(sent, counts)


def _effective_sizes(labels: IntArray, n_clusters: int, sample_weight: FloatArray | None) -> FloatArray:
    """Rows per cluster, or (Σw)² / Σw² where they have weights; shape (k,)."""
    if sample_weight is None:
        return np.bincount(labels, minlength=n_clusters).astype(np.float64)
    total = np.bincount(labels, weights=sample_weight, minlength=n_clusters)
    squares = np.bincount(labels, weights=sample_weight**2, minlength=n_clusters)
    # A hair above, so that n equal weights count as n whatever the rounding.
    return np.asarray(total**2 / np.maximum(squares, np.finfo(np.float64).tiny) * (1 + 1e-12))
