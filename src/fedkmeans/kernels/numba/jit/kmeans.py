"""k-means on the rows of one client: k-means++ on any rows, and all steps on Gram matrices."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from fedkmeans.kernels.numba.jit.common import (
    ANY_ORDER,
    DOUBLE,
    FROZEN,
    MEAN,
    copy,
    entry,
    fill,
    inner,
    part_of_caller,
)
from fedkmeans.kernels.numba.jit.distances import quick_square
from fedkmeans.kernels.numba.jit.gram import (
    gram_error,
    gram_matrix,
    mean_of,
    move_row,
    square_means,
    sum_gram,
    two_lowest_means,
)
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


def load_start(X, p, start_row):
    """Copy row p to `start_row`; returns what `squares_to_starts` needs as its length."""
    return _choose_load_start(X, p, start_row)(X, p, start_row)


@overload(load_start)
def _choose_load_start(X, p, start_row):
    if isinstance(X, types.BaseTuple | tuple):
        return lambda X, p, start_row: load_sparse_start(X, p, start_row)

    def load(X, p, start_row):
        for f in range(X.shape[1]):
            start_row[0, f] = X[p, f]
        return 0.0

    return load


def squares_to_starts(X, p, start_rows, lengths, squares):
    """Compute the squared distances of row p to the start rows."""
    _choose_squares_to_starts(X, p, start_rows, lengths, squares)(X, p, start_rows, lengths, squares)


@overload(squares_to_starts)
def _choose_squares_to_starts(X, p, start_rows, lengths, squares):
    chosen = squares_to_sparse_starts if isinstance(X, types.BaseTuple | tuple) else squares_to_dense_starts
    return lambda X, p, start_rows, lengths, squares: chosen(X, p, start_rows, lengths, squares)


@inner(fastmath=ANY_ORDER)
def squares_to_dense_starts(X, p, start_rows, lengths, squares):
    """The same for dense rows, four at a time, so that the row's numbers are read less often."""
    t = 0
    while t + 4 <= len(start_rows):
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for f in range(X.shape[1]):
            number = np.float64(X[p, f])
            d0, d1 = number - start_rows[t, f], number - start_rows[t + 1, f]
            d2, d3 = number - start_rows[t + 2, f], number - start_rows[t + 3, f]
            s0 += d0 * d0
            s1 += d1 * d1
            s2 += d2 * d2
            s3 += d3 * d3
        squares[t], squares[t + 1], squares[t + 2], squares[t + 3] = s0, s1, s2, s3
        t += 4
    while t < len(start_rows):
        squares[t] = quick_square(X, p, start_rows, t)
        t += 1


@entry()
def plusplus(X, weight, uniforms, better, chosen, closest, distances, start_rows):
    """Choose rows as the plain version's `kmeans_plusplus` does; the first is already chosen.

    `distances` (n_trials, n), `closest` (n,) and `start_rows` (n_trials, m) are buffers.
    """
    n, n_trials = len(weight), len(start_rows)
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


@inner()
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

    The last means, counts and labels go to workspace.local, workspace.count and workspace.final.

    Returns
    -------
    done : bool
        False if it is a close call which centroid is the nearest, if a cluster is empty, or if labels
        still change in the last step. All are rare, and the caller then uses another method.
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


@inner()
def inertia_of_labels(X, weight, labels, centroids):
    """Sum of squared distances to the centroids of given labels."""
    inertia = 0.0
    for p in range(len(X)):
        inertia += weight[p] * quick_square(X, p, centroids, np.int64(labels[p]))
    return inertia


@entry()
def gram_kmeans(data, which, draws, noise, better, max_iter, buffers, workspace, result):
    """k-means on the rows of several clients, each from several starts, by Gram matrices.

    The first row of each start s of client which[a] is in result.chosen[a, s]; the others are added. The
    best start goes to the other arrays of the result. If nothing was chosen, result.chosen[a, 0, 0] is -1.
    """
    m = data.X.shape[1]
    for a in range(len(which)):
        start, stop, k = data.starts[which[a]], data.starts[which[a] + 1], draws.n_clusters[a]
        n, X, weight = stop - start, data.X[start:stop], data.weight[start:stop]
        products, lengths = buffers.products[: n * n].reshape(n, n), workspace.nearest[:n]
        least, most = np.inf, 0.0
        for p in range(n):
            least, most = min(least, weight[p]), max(most, weight[p])
        scale, reach = gram_matrix(
            X, products, lengths, buffers.rows[: n * m].reshape(n, m), workspace.vector
        )
        gram = Gram(products, lengths, scale, gram_error(n, m, scale, reach, DOUBLE, most / least))
        if scale < _LEAST_SCALE:  # squares have lost their digits, so nothing is chosen by them
            result.done[a], result.chosen[a, 0, 0] = False, -1
            continue
        lowest, n_init = np.inf, result.chosen.shape[1]
        for s in range(n_init):
            chosen = result.chosen[a, s, :k]
            gram_plusplus(
                gram, weight, draws.uniforms[a, s], draws.n_trials[a], noise, better, chosen,
                buffers.closest[:n], buffers.closest[n : 2 * n],
            )  # fmt: skip
            result.done[a] = result.done[a] and gram_lloyd(X, weight, gram, chosen, max_iter, workspace)
            inertia = 0.0
            if n_init > 1 and result.done[a]:
                inertia = inertia_of_labels(X, weight, workspace.final, workspace.local)
            if result.done[a] and inertia < better * lowest:
                lowest = inertia
                for j in range(k):
                    copy(workspace.local[j], result.centroids[a, j])
                    result.counts[a, j] = workspace.count[j]
