"""Gram matrices of a client's rows, and distances to means of these rows.

After the first local step all centroids are means of the client's own rows, and only products of rows
with rows are needed: with K = X Xᵀ and the sums T_jp = Σ_{q∈j} K_qp,
    ‖x_p - mean_j‖² - K_pp = Σ_{p∈j} T_jp / n_j² - 2 T_jp / n_j.
If a row changes its cluster, two rows of T change by a row of K. K is computed from centred rows, scaled
so that no row is longer than one, and kept in single precision.
"""

from __future__ import annotations

import numpy as np

from fedkmeans.kernels.numba.jit.common import (
    ANY_ORDER,
    AS_RECEIVED,
    DOUBLE,
    FINITE,
    FROZEN,
    MEAN,
    entry,
    fill,
    inner,
)


@inner(fastmath=ANY_ORDER)
def gram_matrix(X, gram, lengths, rows, mean):
    """Fill the Gram matrix (n, n) of a client's centred rows, and the rows' squared lengths.

    Returns by what squares were divided, and the length of the longest row before centring. `rows` (n, m)
    and `mean` (m,) are buffers for the centred rows and their centre.
    """
    n, m = X.shape
    fill(mean, 0.0)
    reach = 0.0
    for p in range(n):
        total = 0.0
        for f in range(m):
            number = np.float64(X[p, f])
            mean[f] += number
            total += number * number
        reach = max(reach, total)
    for f in range(m):
        mean[f] /= n
    scale = 0.0
    for p in range(n):
        total = 0.0
        for f in range(m):
            number = np.float64(X[p, f]) - mean[f]
            rows[p, f] = number
            total += number * number
        lengths[p] = total
        scale = max(scale, total)
    if scale == 0.0:
        scale = 1.0
    # Half of the matrix by matrix products, in blocks; the other half is its mirror image.
    size = 32
    products = np.empty(size * n)
    back = 1.0 / scale
    for block in range(0, n, size):
        n_rows, n_columns = min(size, n - block), n - block
        part = products[: n_rows * n_columns].reshape(n_rows, n_columns)
        np.dot(rows[block : block + n_rows], rows[block:n].T, part)
        for q in range(n_rows):
            for p in range(n_columns):
                number = part[q, p] * back
                gram[block + q, block + p] = number
                gram[block + p, block + q] = number
    for p in range(n):
        lengths[p] /= scale
    return scale, np.sqrt(reach)


@inner()
def gram_error(n, m, scale, reach, unit, heaviest):
    """Bound on the error of ‖x - mean‖² - ‖x‖² from the Gram matrix, in units of `scale`.

    It covers the precision of K, `unit`, the double precision of everything else, and the roundings of
    the plain version in its distances and means, which are as long as rows that are not centred. A heavy
    row that leaves a cluster leaves a rounding error behind; `heaviest` is the largest weight divided by
    the smallest.
    """
    mean = 2 * (n + 2) * DOUBLE * reach / np.sqrt(scale)
    left_behind = 8 * n * DOUBLE * heaviest
    return 6 * unit + 32 * (n + m + 8) * DOUBLE + left_behind + 4 * mean + mean * mean


@entry()
def prepare_gram(X, gram, lengths, unit, heaviest):
    """Fill a Gram matrix; returns its scale and its error (see `structures.Gram`)."""
    n, m = X.shape
    scale, reach = gram_matrix(X, gram, lengths, np.empty((n, m)), np.empty(m))
    return scale, gram_error(n, m, scale, reach, unit, heaviest)


@inner()
def move_row(gram, p, weight, sums, old, new):
    """Move row p from one cluster to another in the sums T (k, n)."""
    for q in range(gram.shape[0]):
        change = weight * np.float64(gram[p, q])
        sums[old, q] -= change
        sums[new, q] += change


@inner()
def sum_gram(gram, weight, labels, sums):
    """Compute T anew: T_j is the sum of the rows of K that belong to cluster j."""
    n = gram.shape[0]
    for j in range(len(sums)):
        fill(sums[j], 0.0)
    for p in range(n):
        j = labels[p]
        own = weight[p]
        for q in range(n):
            sums[j, q] += own * np.float64(gram[p, q])


@inner()
def mean_of(X, weight, labels, j, count, result):
    """Mean of a cluster's rows, added in their order as in the plain version."""
    fill(result, 0.0)
    for p in range(len(labels)):
        if labels[p] == j:
            own = weight[p]
            for f in range(len(result)):
                result[f] += own * np.float64(X[p, f])
    for f in range(len(result)):
        result[f] /= count


@inner(fastmath=FINITE)
def two_lowest_means(sums, factors, squares, frozen, status, best, second, label):
    """Lowest two of ‖mean‖² - 2x·mean per row, over all clusters that are not as received.

    The products x·mean are `sums` times `factors`, or `frozen` for a cluster that lost its rows.
    """
    k, n = sums.shape
    for p in range(n):
        best[p] = 1e300
        second[p] = 1e300
        label[p] = 0
    for j in range(k):
        if status[j] == AS_RECEIVED:
            continue
        products, factor, square = sums[j], factors[j], squares[j]
        if status[j] == FROZEN:
            products, factor = frozen[j], 1.0
        for p in range(n):
            value = square - 2 * factor * products[p]
            second[p] = min(second[p], max(value, best[p]))
            label[p] = np.int32(j) if value < best[p] else label[p]
            best[p] = min(best[p], value)


@inner()
def square_means(weight, labels, status, count, sums, factors, squares):
    """‖mean‖² of each cluster that has rows, and one over its weight."""
    for j in range(len(count)):
        if status[j] == MEAN:
            squares[j] = 0.0
            factors[j] = 1.0 / count[j]
    for p in range(len(labels)):
        own = weight[p]
        squares[labels[p]] += own * sums[labels[p], p]
    for j in range(len(count)):
        if status[j] == MEAN:
            squares[j] *= factors[j] * factors[j]
