"""First labels from bounds that are kept between rounds.

Centroids move little between rounds. An upper bound of the distance of each row to its own centroid and
lower bounds of its distances to all others are kept. When centroids move by some length, no distance
changes by more than this (the triangle inequality). Distances are computed only where the bounds cross.
"""

from __future__ import annotations

import numpy as np

from fedkmeans.kernels.numba.jit.common import (
    ANY_ORDER,
    DOUBLE,
    SINGLE,
    copy,
    entry,
    fill,
    inner,
    part_of_caller,
)
from fedkmeans.kernels.numba.jit.copies import FINER, coarse_distance, load_coarse, single_movements
from fedkmeans.kernels.numba.jit.distances import exact_square, quick_square
from fedkmeans.kernels.numba.jit.nearest import load_rows, nearest_by_product, rounding

# A coarse copy is used if the row is at least this many times farther from its centroid than from the copy.
_GOOD_COPY = 8.0
# If more than one in this many distances is open, computing them all is cheaper.
_FEW_OPEN = 8


@entry(fastmath=ANY_ORDER)
def movements(old, new, result):
    """Upper bounds of how far the centroids have moved."""
    k, m = new.shape
    for j in range(k):
        total = 0.0
        for f in range(m):
            total += (new[j, f] - old[j, f]) ** 2
        result[j] = np.sqrt(total) * (1 + (m + 8) * DOUBLE)


@inner(fastmath={"nsz"})
def relax(lower, upper, labels, moved, nearest):
    """Loosen the bounds by the movements of the centroids; `nearest` becomes the lowest lower bound."""
    k, n = lower.shape
    for p in range(n):
        nearest[p] = np.inf
    for j in range(k):
        length = moved[j]
        for p in range(n):
            bound = (lower[j, p] - length) * (1 - 4 * DOUBLE)
            lower[j, p] = bound
            nearest[p] = bound if bound < nearest[p] else nearest[p]
    for p in range(n):
        upper[p] = (upper[p] + moved[labels[p]]) * (1 + 4 * DOUBLE)


@inner()
def settle(copies, start, p, near, nearest, lower, upper, labels):
    """Find the nearest centroid of row start + p from coarse copies, where they are good enough.

    Distances between copies are exact; row and centroid are at most their `misses` away from the copies.

    Returns
    -------
    settled : bool
        If not, the bounds are tighter and still hold.
    n_computed : int
        Number of distances computed.
    """
    k, m = near.coarse.shape
    sure, unit = 1 + (m + 16) * 4 * DOUBLE, copies.spacing / FINER
    a, miss = np.int64(labels[p]), np.float64(copies.misses[start + p])
    if not miss * unit * _GOOD_COPY < upper[p]:
        return False, 0
    distance, error, n_computed = coarse_distance(copies, start + p, near, a), miss + near.misses[a], 1
    own = (distance - error) * unit * (2 - sure)
    upper[p] = min(upper[p], (distance + error) * unit * sure)
    if upper[p] * sure < nearest[p]:
        return True, n_computed
    best, label = upper[p], a
    # The lowest two bounds and the cluster of the lowest. The bounds of a row are far apart in memory, so
    # they are read once.
    lowest, next_lowest, closest = np.inf, np.inf, a
    for j in range(k):
        if j == a:
            continue
        bound = lower[j, p]
        if not upper[p] * sure < bound:
            distance, error = coarse_distance(copies, start + p, near, j), miss + near.misses[j]
            n_computed += 1
            bound = max(bound, (distance - error) * unit * (2 - sure))
            lower[j, p] = bound
            within = (distance + error) * unit * sure
            if within < best:
                best, label = within, j
        if bound < lowest:
            lowest, next_lowest, closest = bound, lowest, j
        elif bound < next_lowest:
            next_lowest = bound
    if label != a:
        lower[a, p], lower[label, p] = own, np.inf
        upper[p], labels[p] = best, label
        lowest = min(own, next_lowest if closest == label else lowest)
    nearest[p] = lowest
    return best * sure < nearest[p], n_computed


@inner()
def tighten(X, start, p, centroids, nearest, lower, upper, labels, squares):
    """Find the nearest centroid of row start + p if the bounds leave open which it is.

    Returns
    -------
    n_computed : int
        Number of distances computed.
    """
    k, m = centroids.shape
    sure = 1 + (m + 16) * 4 * DOUBLE
    a, n_computed = np.int64(labels[p]), 1
    best, label = quick_square(X, start + p, centroids, a), a
    within = np.sqrt(best) * sure
    upper[p] = within
    if within < nearest[p]:
        return n_computed
    fill(squares, np.inf)
    squares[a] = best
    for j in range(k):
        if j != a and not within < lower[j, p]:
            n_computed += 1
            squares[j] = quick_square(X, start + p, centroids, j)
            distance = np.sqrt(squares[j])
            lower[j, p] = distance * (2 - sure)
            if squares[j] < best:
                best, label, within = squares[j], j, distance * sure
    limit, n_close = best * sure, 0
    for j in range(k):
        n_close += squares[j] <= limit
    if n_close > 1:
        exact = np.inf
        for j in range(k):
            if squares[j] <= limit:
                square = exact_square(X, start + p, centroids, j)
                if square < exact:
                    exact, label = square, j
    if label != a:
        lower[a, p] = np.sqrt(squares[a]) * (2 - sure)
        lower[label, p] = np.inf
        labels[p] = label
    upper[p] = np.sqrt(squares[label]) * sure
    return n_computed


@part_of_caller()
def measure(X, start, stop, centroids, copies, near, scratch, lower, upper, labels):
    """Compute labels and bounds of a client's rows anew, by matrix product."""
    size, label, errors = scratch.size, scratch.label, scratch.square
    k, m = centroids.shape
    back, longest = 1.0 / np.float64(copies.factor), 1.0
    for j in range(k):
        longest = max(longest, near.lengths[j])
    for block in range(start, stop, size):
        n, first = min(size, stop - block), block - start
        rows, lengths = scratch.rows[: n * m].reshape(n, m), scratch.lengths[:n]
        load_rows(X, block, n, copies.shift, copies.factor, rows, lengths)
        values = nearest_by_product(
            X, block, centroids, rows, lengths, near.scaled, near.squares, longest, scratch
        )  # fmt: skip
        for q in range(n):
            length = np.float64(lengths[q])
            # The error of the value and of the squared length that is added to it. If anything is not
            # finite, the bounds say nothing.
            errors[q] = 2 * rounding(m, np.sqrt(length), longest) + 2 * (m + 8) * SINGLE * length
            distance = np.sqrt(np.float64(values[label[q], q]) + length + errors[q]) * back
            upper[first + q] = distance if distance < 1e300 else np.inf
            if not length < 1e30:
                errors[q] = np.inf
        for j in range(k):
            for q in range(n):
                square = np.float64(values[j, q]) + np.float64(lengths[q]) - errors[q]
                distance = np.sqrt(square if square > 0 else 0.0) * back
                lower[j, first + q] = distance if distance < 1e300 else 0.0
        for q in range(n):
            labels[first + q] = label[q]
            lower[label[q], first + q] = np.inf


@entry()
def follow_labels(data, which, received, latest, copies, near, bounds, scratch, workspace):
    """First labels of several clients, from the bounds of their previous query.

    `near` are the received centroids in the form that `copies` needs. They are those of the query after
    the `latest`, and already among `bounds.past_centroids`. The previous labels go to bounds.before.
    """
    X, (k, m) = data.X, received.shape
    n_past, moved_since = len(bounds.past_centroids), -1
    nearest, moved = workspace.nearest, workspace.moved
    sure, back = 1 + (m + 16) * 4 * DOUBLE, 1.0 / np.float64(copies.factor)
    for a in range(len(which)):
        i = which[a]
        query = bounds.last_query[i]
        start, stop = data.starts[i], data.starts[i + 1]
        n = stop - start
        labels, upper = bounds.labels[start:stop], bounds.upper[start:stop]
        lower = bounds.lower[start * k : stop * k].reshape(k, n)
        copy(labels, bounds.before[start:stop])
        renew = query < 0 or query <= latest + 1 - n_past
        if not copies.filled[i]:
            load_coarse(X, start, n, copies)
            copies.filled[i] = True
        if not renew:
            if query != moved_since:
                single_movements(bounds.past_centroids[query % n_past], near, back, moved)
                moved_since = query
            relax(lower, upper, labels, moved, nearest)
            n_computed = 0
            for p in range(n):
                if not upper[p] * sure < nearest[p]:
                    settled, n_more = settle(copies, start, p, near, nearest, lower, upper, labels)
                    n_computed += n_more
                    if not settled:
                        n_computed += tighten(
                            X, start, p, received, nearest, lower, upper, labels, workspace.squares
                        )  # fmt: skip
                    # If many are open, computing all distances together is cheaper.
                    if n_computed * _FEW_OPEN > n * k:
                        renew = True
                        break
        if renew:
            measure(X, start, stop, received, copies, near, scratch, lower, upper, labels)
