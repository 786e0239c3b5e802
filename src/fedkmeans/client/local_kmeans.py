"""Local clustering of a site for k-FED and FKM, with centroids that do not reveal single rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedkmeans._utils.threads import in_threads
from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels import Clustered, Kernel, Rows
from fedkmeans.kernels.reference.lloyd import (
    blocks,
    cluster_sums,
    distances_to_own,
    double_block,
    means,
    squared_distances,
)
from fedkmeans.kernels.sparse import SMALL, SparseRows, Table
from fedkmeans.protocol.messages import CentroidSet, LocalClusters

# Maximum number of columns for which XᵀX is computed; with more, products with vectors are cheaper.
_LARGEST_GRAM = 2048


def awasthi_sheffet(
    X: Table,
    n_clusters: int,
    rng: np.random.Generator,
    n_init: int,
    max_iter: int,
    sample_weight: FloatArray | None,
    kernel: Kernel,
) -> FloatArray:
    """Run the local clustering of the published k-FED (Awasthi & Sheffet 2012).

    Project the rows onto the top singular vectors and cluster the projections. Keep only points that
    are three times closer to their own centre than to any other, and start Lloyd from their means.

    Returns
    -------
    ndarray of shape (n_clusters, m)
    """
    directions = top_directions(X, n_clusters, rng)
    projected = _project(X, directions)
    centres = kernel.kmeans(projected, n_clusters, rng, n_init, max_iter, sample_weight)
    distances = np.sqrt(squared_distances(projected, centres))
    nearest = distances.argmin(axis=1)
    own = distances[np.arange(len(X)), nearest]
    distances[np.arange(len(X)), nearest] = np.inf
    clear = 3.0 * own <= distances.min(axis=1)
    weight = clear.astype(np.float64) if sample_weight is None else clear * sample_weight
    sums, counts = cluster_sums(X, nearest, n_clusters, weight)
    # A centre without such points starts from its position in the projected space.
    start = means(sums, counts, otherwise=centres @ directions)
    return kernel.lloyd(X, start, max_iter, sample_weight)


def _large_sparse(X: Table) -> Any:
    """Return sparse rows too large for a dense copy as a scipy matrix of doubles; otherwise None."""
    if isinstance(X, SparseRows) and X.size > SMALL:
        return X.matrix().astype(np.float64)
    return None


def _project(X: Table, directions: FloatArray) -> FloatArray:
    """Return the coordinates of the rows along directions (d, m), shape (n, d)."""
    matrix = _large_sparse(X)
    if matrix is not None:
        return np.asarray(matrix @ directions.T)
    projected = np.empty((len(X), len(directions)))
    for rows in blocks(len(X), X.shape[1]):
        projected[rows] = double_block(X, rows) @ directions.T
    return projected


def top_directions(X: Table, n_directions: int, rng: np.random.Generator) -> FloatArray:
    """Return the top right singular vectors of X as rows, shape (min(n_directions, n, m), m).

    Uses memory for min(n, m)² numbers or a few vectors, but never for many rows in double precision.
    """
    n, m = X.shape
    wanted = min(n_directions, n, m)
    matrix = _large_sparse(X)
    if n <= m and (matrix is None or n <= 2 * wanted):
        return np.asarray(np.linalg.svd(double_block(X, slice(None)), full_matrices=False)[2][:wanted])

    def transposed_times(u: FloatArray) -> FloatArray:
        parts = (double_block(X, rows).T @ u[rows] for rows in blocks(n, m))
        return np.asarray(sum(parts, start=np.zeros(m)))

    def times(v: FloatArray) -> FloatArray:
        return np.concatenate([double_block(X, rows) @ v for rows in blocks(n, m)])

    if m <= min(n, _LARGEST_GRAM):
        gram = np.zeros((m, m)) if matrix is None else (matrix.T @ matrix).toarray()
        for rows in blocks(n, m) if matrix is None else ():
            block = double_block(X, rows)
            gram += block.T @ block
        return np.ascontiguousarray(np.linalg.eigh(gram)[1][:, ::-1][:, :wanted].T)
    from scipy.sparse.linalg import LinearOperator, svds  # slow to import and rarely needed

    operator = matrix
    if matrix is None:
        operator = LinearOperator((n, m), matvec=times, rmatvec=transposed_times, dtype=np.float64)
    # For n <= m dense rows need no random start, so sparse rows must not use the client's generator either.
    start = rng.standard_normal(m) if n > m else np.random.default_rng(0).standard_normal(n)
    return np.asarray(svds(operator, k=wanted, v0=start, return_singular_vectors="vh")[2][::-1])


def local_clusters(
    rows: Rows,
    which: IntArray,
    query: LocalClusters,
    rngs: Sequence[np.random.Generator],
    min_cluster_sizes: Sequence[int],
    kernel: Kernel,
    n_threads: int = 1,
) -> list[CentroidSet]:
    """Cluster the rows of each client; return only centroids of at least `min_cluster_size` rows.

    A client with few rows makes fewer clusters, and a client with fewer than `min_cluster_size` rows
    sends none, because the centroid of one row is that row. Weighted rows count by their effective
    number (Σw)² / Σw², because a mean dominated by one row is close to that row.
    """
    wanted, limits = [], []
    for client, least in zip(which, min_cluster_sizes, strict=True):
        X, weight = rows.shard(client)
        size = len(X) if weight is None else _effective(weight.sum(), (weight**2).sum())
        wanted.append(min(query.n_clusters, int(size / least)))
        limits.append(max(query.max_rows, least * query.n_clusters))
    sets = [CentroidSet(np.empty((0, rows.X.shape[1])), np.empty(0))] * len(which)
    some = np.flatnonzero(wanted)
    large = rows.sizes[which[some]] > np.array(limits)[some]
    # Of large clients, few samples are in memory at a time.
    portions = [some[~large], *np.split(some[large], range(n_threads, large.sum(), n_threads))]
    for portion in filter(len, portions):
        table, clients, own = rows, which[portion], [rngs[place] for place in portion]
        sampled = bool(rows.sizes[clients[0]] > limits[portion[0]])
        if sampled:
            table = _samples(rows, clients, [limits[place] for place in portion], own, n_threads)
            clients = np.arange(len(portion))
        found = _cluster(table, clients, [wanted[place] for place in portion], own, query, kernel, n_threads)
        for place, (centroids, counts) in zip(portion, found, strict=True):
            X, weight = rows.shard(which[place])
            clustered = Clustered(centroids, None if sampled else counts)  # not the counts of a sample
            sets[place] = _publish(X, weight, clustered, min_cluster_sizes[place], kernel, n_threads)
    return sets


def _samples(
    rows: Rows, which: IntArray, sizes: Sequence[int], rngs: Sequence[np.random.Generator], n_threads: int
) -> Rows:
    """Draw rows of each client, with weights by which they stand for all its rows."""
    jobs = [(*rows.shard(client), n, rng) for client, n, rng in zip(which, sizes, rngs, strict=True)]
    drawn, weights = zip(*in_threads(lightweight_coreset, jobs, n_threads), strict=True)
    starts = rows.starts[which].repeat(sizes)
    return Rows(rows.X[starts + np.concatenate(drawn)], np.cumsum([0, *sizes]), np.concatenate(weights))


def lightweight_coreset(
    X: Table, sample_weight: FloatArray | None, n: int, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Draw n rows with replacement, for k-means (Bachem, Lucic & Krause 2018).

    Half of the probability is uniform. The other half is proportional to the squared distance from the
    mean, so that rows far away, which affect the inertia most, are not missed.

    Returns
    -------
    chosen : ndarray of shape (n,)
        Row numbers, ascending.
    weight : ndarray of shape (n,)
    """
    together = np.broadcast_to(np.intp(0), len(X))  # all rows in one cluster
    sums, counts = cluster_sums(X, together, 1, sample_weight)
    spread = distances_to_own(X, sums / counts[:, None], together)
    if sample_weight is not None:
        spread *= sample_weight
    total = spread.sum() or 1.0  # of equal rows it is zero
    weight: Any = 1.0 if sample_weight is None else sample_weight
    cumulative = np.cumsum(weight / counts + spread / total)
    chosen = np.searchsorted(cumulative, np.sort(rng.random(n)) * cumulative[-1], side="right")
    chosen = np.minimum(chosen, len(X) - 1)  # for rounding errors
    weight = np.broadcast_to(weight, len(X))[chosen]
    return chosen, weight * cumulative[-1] / (n * (weight / counts + spread[chosen] / total))


def _cluster(
    rows: Rows,
    which: IntArray,
    wanted: Sequence[int],
    rngs: Sequence[np.random.Generator],
    query: LocalClusters,
    kernel: Kernel,
    n_threads: int,
) -> Sequence[Clustered]:
    """Make `wanted` clusters of the rows of each client, without the last step."""
    n_init, max_iter = query.n_init, query.max_iter - 1  # `_publish` makes the last step
    if query.method == "k-means":
        return kernel.kmeans_each(rows, which, wanted, rngs, n_init, max_iter, n_threads)

    def work(client: int, k: int, rng: np.random.Generator) -> Clustered:
        X, weight = rows.shard(client)
        return Clustered(awasthi_sheffet(X, k, rng, n_init, max_iter, weight, kernel))

    return in_threads(work, list(zip(which, wanted, rngs, strict=True)), n_threads)


def _publish(
    X: Table,
    sample_weight: FloatArray | None,
    clustered: Clustered,
    min_cluster_size: int,
    kernel: Kernel,
    n_threads: int,
) -> CentroidSet:
    """Make the last Lloyd step and drop centroids of fewer than `min_cluster_size` rows."""
    centroids, counts = clustered
    if counts is not None and sample_weight is None and (counts >= min_cluster_size).all():
        return CentroidSet(centroids, counts)  # the last step would change nothing
    sums, counts = kernel.lloyd_step(X, centroids, sample_weight, n_threads)
    moved = means(sums, counts, otherwise=centroids)
    sizes = counts
    if sample_weight is not None:
        sizes = _effective(counts, kernel.lloyd_step(X, centroids, sample_weight**2)[1])
    large = sizes >= min_cluster_size
    if large.all() and np.array_equal(moved, centroids):  # converged
        return CentroidSet(moved, counts)
    sent = moved[large]
    if not len(sent):  # all clusters are too small: send the mean of all rows
        sent = (sums.sum(axis=0) / counts.sum())[None, :]
    # Rows of dropped clusters count towards the nearest centroid that is sent.
    return CentroidSet(sent, kernel.lloyd_step(X, sent, sample_weight, n_threads)[1])


def _effective(total: Any, squares: Any) -> Any:
    """Return (Σw)² / Σw², the effective number of rows with weights."""
    # Slightly increased, so that n equal weights count as at least n despite rounding.
    return total**2 / np.maximum(squares, np.finfo(np.float64).tiny) * (1 + 1e-12)
