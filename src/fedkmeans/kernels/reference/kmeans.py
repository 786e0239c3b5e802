"""k-means on the rows of one client: the plain version.

It uses the same steps as the federated rounds, so that integer and single precision data are never
converted to double precision as a whole.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.reference.lloyd import (
    assign,
    blocks,
    cluster_sums,
    distances_to_own,
    double_block,
    means,
    relocate_empty,
)
from fedkmeans.kernels.sparse import Table

# A value is better if it is lower than this times the other: smaller differences may be rounding.
BETTER = 1 - 1e-10


def kmeans_plusplus(
    X: Table,
    n_clusters: int,
    rng: np.random.Generator,
    sample_weight: FloatArray | None = None,
    n_trials: int | None = None,
) -> FloatArray:
    """Choose rows as first centroids: greedy k-means++ (Arthur & Vassilvitskii 2007).

    Each draw tries `n_trials` rows, by default 2 + ln k as in scikit-learn, and keeps the one that reduces
    the inertia most.

    Returns
    -------
    ndarray of shape (n_clusters, m)
    """
    weight = np.ones(len(X)) if sample_weight is None else sample_weight
    shift = cluster_sums(X, np.zeros(len(X), dtype=np.intp), 1)[0][0] / len(X)
    chosen, uniforms = first_draws(weight, n_clusters, rng, n_trials)
    closest = _distances_to_rows(X, chosen, shift)[0]
    for uniform in uniforms:
        potential = np.cumsum(weight * closest)
        # If there are fewer different rows than clusters, any row will do.
        draws = np.array([int(uniform[0] * len(X))])
        if potential[-1] > 0:
            draws = np.searchsorted(potential, uniform * potential[-1], side="right")
            draws = np.minimum(draws, len(X) - 1)
        candidates = np.minimum(closest, _distances_to_rows(X, draws, shift))
        best = lowest(candidates @ weight)
        closest = candidates[best]
        chosen.append(int(draws[best]))
    return double_block(X, np.array(chosen))


def lowest(values: FloatArray) -> int:
    """Place of the lowest value; the first of those that differ only by rounding.

    Two rows that are each other's nearest reduce the inertia equally, and rounding must not decide.
    """
    best = 0
    for place in range(1, len(values)):
        if values[place] < BETTER * values[best]:
            best = place
    return best


def first_draws(
    weight: FloatArray, n_clusters: int, rng: np.random.Generator, n_trials: int | None = None
) -> tuple[list[int], FloatArray]:
    """Draw all random numbers of k-means++: the first row, and numbers in [0, 1) for each further trial.

    Returns
    -------
    chosen : list of one int
    uniforms : ndarray of shape (n_clusters - 1, n_trials)
    """
    n_trials = n_trials or 2 + int(np.log(n_clusters))
    first = rng.choice(len(weight), p=weight / weight.sum())
    return [int(first)], rng.random((n_clusters - 1, n_trials))


def _distances_to_rows(X: Table, rows: IntArray | list[int], shift: FloatArray) -> FloatArray:
    """Squared distances of some rows to all rows, shape (len(rows), n), by matrix product.

    Rounding is harmless here: the distances only affect random draws. Distances that may be only rounding
    error become zero, so that a row is not drawn twice.
    """
    targets = double_block(X, np.asarray(rows)) - shift
    noise = same_row(X.shape[1])
    squares = np.einsum("tm,tm->t", targets, targets)
    distances = np.empty((len(targets), len(X)))
    for part in blocks(len(X), X.shape[1] + len(targets)):
        block = double_block(X, part)
        block -= shift
        own = np.einsum("nm,nm->n", block, block)
        total = squares[:, None] + own
        between = total - 2.0 * (targets @ block.T)
        between[between <= noise * total] = 0.0
        distances[:, part] = between
    return distances


def same_row(m: int) -> float:
    """Squared distances up to this part of the rows' squared lengths count as zero."""
    return 8.0 * (m + 8) * float(np.finfo(np.float64).eps)


def lloyd(
    X: Table,
    centroids: FloatArray,
    max_iter: int,
    sample_weight: FloatArray | None = None,
    step: Callable[[FloatArray], tuple[IntArray, FloatArray, FloatArray]] | None = None,
) -> FloatArray:
    """Lloyd's steps until no label changes; empty clusters are relocated.

    `step` may find labels, means and counts in another way.

    Returns
    -------
    ndarray of shape (k, m)
    """

    def plain_step(centroids: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        labels = assign(X, centroids)
        sums, counts = cluster_sums(X, labels, len(centroids), sample_weight)
        return labels, means(sums, counts, otherwise=centroids), counts

    before: IntArray | None = None
    for _ in range(max_iter):
        labels, moved, counts = (step or plain_step)(centroids)
        if before is not None and np.array_equal(labels, before):
            break
        if not counts.all():
            sums, counts = cluster_sums(X, labels, len(centroids), sample_weight)
            _, sums, counts = relocate_empty(X, centroids, labels, sums, counts, sample_weight)
            moved = means(sums, counts, otherwise=centroids)
        before, centroids = labels, moved
    return centroids


def kmeans(
    X: Table,
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
    return best_of(
        n_init,
        lambda: lloyd(X, kmeans_plusplus(X, n_clusters, rng, sample_weight), max_iter, sample_weight),
        lambda centroids: inertia_of(X, centroids, sample_weight),
    )


def best_of(n_init: int, run: Callable[[], FloatArray], inertia: Callable[[FloatArray], float]) -> FloatArray:
    """Run `n_init` times and return the centroids with the lowest inertia, the first of equals."""
    best = run()
    best_inertia = inertia(best) if n_init > 1 else 0.0
    for _ in range(1, n_init):
        centroids = run()
        found = inertia(centroids)
        if found < BETTER * best_inertia:
            best, best_inertia = centroids, found
    return best


def inertia_of(X: Table, centroids: FloatArray, sample_weight: FloatArray | None = None) -> float:
    """Sum of squared distances of all rows to their nearest centroid."""
    distances = distances_to_own(X, centroids, assign(X, centroids))
    return float(distances.sum() if sample_weight is None else distances @ sample_weight)
