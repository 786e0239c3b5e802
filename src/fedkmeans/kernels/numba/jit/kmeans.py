"""k-means on the rows of one client: k-means++ on any rows, and all steps on Gram matrices."""

from __future__ import annotations

import numpy as np

from fedkmeans.kernels.numba.jit.buffers import most_rows, new_workspace
from fedkmeans.kernels.numba.jit.common import (
    DOUBLE,
    FROZEN,
    MEAN,
    chosen_by_type,
    copy,
    entry,
    fill,
    inner,
    is_sparse,
    part_of_caller,
)
from fedkmeans.kernels.numba.jit.gram import (
    gram_error,
    gram_matrix,
    mean_of,
    move_row,
    square_means,
    sum_gram,
    two_lowest_means,
)
from fedkmeans.kernels.numba.jit.nearest import quick_square
from fedkmeans.kernels.numba.jit.sparse import load_sparse_start, squares_to_sparse_starts
from fedkmeans.kernels.numba.jit.structures import Gram

# Squared lengths below this have lost digits, and so has their Gram matrix.
_LEAST_SCALE = 1e-250


@inner()
def distance_by_gram(gram, p, q, noise):
    """Squared distance of two rows; zero if it may be only rounding error."""
    total = gram.lengths[p] + gram.lengths[q]
    between = total - 2 * gram.products[p, q]
    return between if between > noise * total else 0.0


@inner()
def load_dense_start(X, p, start_row):
    """Copy row p to `start_row`; returns what `squares_to_starts` needs as its length."""
    for f in range(X.shape[1]):
        start_row[0, f] = X[p, f]
    return 0.0


@inner()
def squares_to_dense_starts(X, p, start_rows, lengths, squares):
    """Squared distances of row p to the start rows."""
    for t in range(len(start_rows)):
        squares[t] = quick_square(X, p, start_rows, t)


load_start = chosen_by_type(is_sparse, load_sparse_start, load_dense_start)
squares_to_starts = chosen_by_type(is_sparse, squares_to_sparse_starts, squares_to_dense_starts)


@entry()
def plusplus(X, m, weight, uniforms, better, chosen):
    """Choose rows as the plain version's `kmeans_plusplus` does; the first is already chosen."""
    n, n_trials = len(weight), uniforms.shape[1]
    closest, distances, start_rows = np.empty(n), np.empty((n_trials, n)), np.empty((n_trials, m))
    draws, lengths = np.empty(n_trials, np.int64), np.empty(n_trials)
    left, squares = np.empty(n_trials), np.empty(n_trials)
    lengths[0] = load_start(X, chosen[0], start_rows[:1])
    for p in range(n):
        squares_to_starts(X, p, start_rows[:1], lengths[:1], squares)
        closest[p] = squares[0]
    for c in range(len(uniforms)):
        total = 0.0
        for p in range(n):
            total += weight[p] * closest[p]
        if not total > 0:  # fewer different rows than clusters: any row will do
            chosen[c + 1] = int(uniforms[c, 0] * n)
            continue
        for t in range(n_trials):
            draw, reached = 0, weight[0] * closest[0]
            while draw < n - 1 and reached <= uniforms[c, t] * total:
                draw += 1
                reached += weight[draw] * closest[draw]
            draws[t], left[t] = draw, 0.0
            lengths[t] = load_start(X, draw, start_rows[t : t + 1])
        for p in range(n):
            # A row at its nearest centre cannot get nearer.
            if closest[p] > 0:
                squares_to_starts(X, p, start_rows, lengths, squares)
            for t in range(n_trials):
                near = min(closest[p], squares[t]) if closest[p] > 0 else 0.0
                distances[t, p] = near
                left[t] += weight[p] * near
        trial = 0
        for t in range(1, n_trials):
            if left[t] < better * left[trial]:
                trial = t
        chosen[c + 1] = draws[trial]
        copy(distances[trial], closest)


@part_of_caller()
def gram_plusplus(gram, weight, uniforms, n_trials, noise, better, chosen, closest, potential):
    """The same from a Gram matrix; `closest` (n,) and `potential` (n,) are buffers."""
    n = len(closest)
    for p in range(n):
        closest[p] = distance_by_gram(gram, p, chosen[0], noise)
    for c in range(len(chosen) - 1):
        total = 0.0
        for p in range(n):
            total += weight[p] * closest[p]
            potential[p] = total
        best, row = np.inf, int(uniforms[c, 0] * n)
        for t in range(n_trials if total > 0 else 0):
            draw = 0
            while draw < n - 1 and potential[draw] <= uniforms[c, t] * total:
                draw += 1
            left = 0.0
            for p in range(n):
                near = min(closest[p], distance_by_gram(gram, p, draw, noise))
                left += weight[p] * near
            if left < better * best:
                best, row = left, draw
        chosen[c + 1] = row
        for p in range(n):
            closest[p] = min(closest[p], distance_by_gram(gram, p, row, noise))


@part_of_caller()
def gram_lloyd(X, weight, gram, chosen, max_iter, workspace):
    """Lloyd's steps from the chosen rows until no label changes.

    The last means, counts and labels go to workspace.local, workspace.count and workspace.final. Returns
    False if it is a close call which centroid is the nearest, if a cluster is empty, or if labels still
    change in the last step. All are rare, and the caller then uses another method.
    """
    k, n, count = len(chosen), len(X), workspace.count[: len(chosen)]
    factors, squares, status = workspace.factors[:k], workspace.squares[:k], workspace.status[:k]
    sums, frozen = workspace.sums[: k * n].reshape(k, n), workspace.frozen[: k * n].reshape(k, n)
    best, second = workspace.best[:n], workspace.second[:n]
    label, before = workspace.label[:n], workspace.final[:n]
    for j in range(k):
        # A row that is a centroid is treated like the mean of a cluster that has lost its rows.
        status[j], squares[j] = FROZEN, gram.lengths[chosen[j]]
        for p in range(n):
            frozen[j, p] = gram.products[chosen[j], p]
    for step in range(max_iter):
        two_lowest_means(sums, factors, squares, frozen, status, best, second, label)
        n_changed = 0
        fill(count, 0.0)
        for p in range(n):
            if not second[p] - best[p] > 2 * gram.error:
                return False
            count[label[p]] += weight[p]
            n_changed += step == 0 or label[p] != before[p]
        if n_changed == 0:
            for j in range(k):
                mean_of(X, weight, before, j, count[j], workspace.local[j])
            return True
        for j in range(k):
            if count[j] == 0:
                return False
            status[j] = MEAN
        if step == 0:
            sum_gram(gram.products, weight, label, sums)
        for p in range(n):
            if step > 0 and label[p] != before[p]:
                move_row(gram.products, p, weight[p], sums, before[p], label[p])
            before[p] = label[p]
        square_means(weight, before, status, count, sums, factors, squares)
    return False


@part_of_caller()
def inertia_of_labels(X, weight, labels, centroids):
    """Sum of squared distances to the centroids of given labels."""
    inertia = 0.0
    for p in range(len(X)):
        inertia += weight[p] * quick_square(X, p, centroids, np.int64(labels[p]))
    return inertia


@entry()
def gram_kmeans(data, which, draws, noise, better, max_iter, result):
    """k-means on the rows of several clients, each from several starts, by Gram matrices.

    The best start of client which[a] goes to place a of the result.
    """
    m, most = data.X.shape[1], most_rows(data.starts, which)
    all_products, rows, closest = np.empty(most * most), np.empty(most * m), np.empty(2 * most)
    chosen = np.empty(result.counts.shape[1], np.int64)
    workspace = new_workspace(len(chosen), m, most)
    for a in range(len(which)):
        start, stop, k = data.starts[which[a]], data.starts[which[a] + 1], draws.n_clusters[a]
        n, X, weight = stop - start, data.X[start:stop], data.weight[start:stop]
        products, lengths = all_products[: n * n].reshape(n, n), workspace.lengths[:n]
        scale, reach = gram_matrix(X, products, lengths, rows[: n * m].reshape(n, m), workspace.vector)
        lightest, heaviest = np.inf, 0.0
        for p in range(n):
            lightest, heaviest = min(lightest, weight[p]), max(heaviest, weight[p])
        error = gram_error(n, m, scale, reach, DOUBLE, heaviest / lightest)
        gram = Gram(products, lengths, scale, error)
        lowest, n_init = np.inf, draws.firsts.shape[1]
        for s in range(n_init):
            chosen[0] = draws.firsts[a, s]
            gram_plusplus(
                gram, weight, draws.uniforms[a, s], draws.n_trials[a], noise, better, chosen[:k],
                closest[:n], closest[n : 2 * n],
            )  # fmt: skip
            # Below the least scale, squares have lost their digits.
            if scale < _LEAST_SCALE or not gram_lloyd(X, weight, gram, chosen[:k], max_iter, workspace):
                result.done[a] = False
                break
            inertia = 0.0
            if n_init > 1:
                inertia = inertia_of_labels(X, weight, workspace.final, workspace.local)
            if inertia < better * lowest:
                lowest = inertia
                for j in range(k):
                    copy(workspace.local[j], result.centroids[a, j])
                    result.counts[a, j] = workspace.count[j]
