"""First labels from bounds that are kept between rounds.

Centroids move little between rounds. An upper bound of the distance of each row to its own centroid and
lower bounds of its distances to all others are kept. When centroids move by some length, no distance
changes by more than this (the triangle inequality). Distances are computed only where the bounds cross.

Many rows do not fit into the processor's caches, and reading them takes longer than computing distances.
So distances are first computed from copies of rows as bytes: each number is rounded to the nearest of 256
evenly spaced ones, and how far this moves a row is known. Mostly they suffice.
"""

from __future__ import annotations

import numpy as np

from fedkmeans.kernels.numba.jit.buffers import most_rows, new_dense_scratch
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
from fedkmeans.kernels.numba.jit.nearest import (
    exact_square,
    focus,
    load_rows,
    nearest_by_product,
    quick_square,
    rounding,
)
from fedkmeans.kernels.numba.jit.structures import CentroidCopies

# A coarse copy is used if the row is at least this many times farther from its centroid than from the copy.
_GOOD_COPY = 8.0
# If more than one in this many distances is open, computing them all is cheaper.
_FEW_OPEN = 8


# The grid for centroids is this many times finer than that for rows.
FINER = 32
# Products of this many columns add up to less than 2³¹.
_COLUMNS = 1024


@entry(fastmath=ANY_ORDER)
def movements(old, new, result):
    """Upper bounds of how far the centroids have moved."""
    k, m = new.shape
    for j in range(k):
        total = 0.0
        for f in range(m):
            total += (new[j, f] - old[j, f]) ** 2
        result[j] = np.sqrt(total) * (1 + (m + 8) * DOUBLE)


@inner()
def keep_centroids(centroids, kept, errors):
    """Keep centroids in single precision, and upper bounds of how far this moves them."""
    k, m = centroids.shape
    for j in range(k):
        total = 0.0
        for f in range(m):
            kept[j, f] = centroids[j, f]
            total += (centroids[j, f] - np.float64(kept[j, f])) ** 2
        errors[j] = np.sqrt(total) * (1 + (m + 8) * DOUBLE)


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


@inner(fastmath=ANY_ORDER)
def coarsen(X, p, lowest, spacing, last, result):
    """Round each number of row p to the nearest of `lowest` + `spacing` times 0 to `last`.

    Returns an upper bound of the distance between the row and its rounded copy, in units of `spacing`, and
    the squared length of the copy.
    """
    m, per_spacing = len(result), 1.0 / spacing
    total, square = 0.0, np.int64(0)
    for f in range(m):
        number = (np.float64(X[p, f]) - lowest) * per_spacing
        # Written so that NaN becomes a number; the bound shows that the copy is useless.
        step = np.floor(number + 0.5) if number > 0.0 else 0.0
        step = step if step < last else np.float64(last)
        result[f] = np.int16(step)
        square += np.int64(step) * np.int64(step)
        total += (number - step) ** 2
    # Rounded up by more than these few operations can round down.
    return np.sqrt(total) * (1 + 1e-6) + 1e-9 * np.sqrt(m), square


@inner()
def copy_rows(X, start, stop, copies):
    """Make coarse copies of some rows."""
    for p in range(start, stop):
        miss, square = coarsen(X, p, copies.lowest, copies.spacing, 255, copies.rows[p])
        copies.misses[p], copies.squares[p] = miss * FINER, square * FINER**2


@inner()
def copy_centroids(centroids, copies):
    """Copies of centroids, on a finer grid than rows."""
    k, m = centroids.shape
    near = CentroidCopies(np.empty((k, m), np.int16), np.empty(k, np.int64), np.empty(k))
    for j in range(k):
        near.misses[j], near.squares[j] = coarsen(
            centroids, j, copies.lowest, copies.spacing / FINER, 255 * FINER, near.rows[j]
        )
    return near


@inner()
def coarse_distance(copies, p, near, j):
    """Distance between the copies of a row and a centroid; integer arithmetic loses no digit."""
    total, m = np.int64(0), near.rows.shape[1]
    for block in range(0, m, _COLUMNS):
        row, part = copies.rows[p, block : block + _COLUMNS], near.rows[j, block : block + _COLUMNS]
        product = np.int32(0)
        for f in range(len(row)):
            # Written so that the compiler uses the processor's instruction for such products.
            product = np.int32(product + np.int32(np.int32(row[f]) * np.int32(part[f])))
        total += product
    return np.sqrt(np.float64(copies.squares[p] + near.squares[j] - 2 * FINER * total))


@inner()
def settle(copies, start, p, near, nearest, lower, upper, labels):
    """Find the nearest centroid of row start + p from coarse copies, where they are good enough.

    Row and centroid are at most their `misses` away from the copies. Returns whether the label is found,
    otherwise the bounds are tighter and still hold; and how many distances it took.
    """
    k, m = near.rows.shape
    sure, unit = 1 + (m + 16) * 4 * DOUBLE, copies.spacing / FINER
    a, miss = np.int64(labels[p]), copies.misses[start + p]
    if not miss * unit * _GOOD_COPY < upper[p]:
        return False, 0
    distance, error, n_computed = coarse_distance(copies, start + p, near, a), miss + near.misses[a], 1
    own = (distance - error) * unit * (2 - sure)
    upper[p] = min(upper[p], (distance + error) * unit * sure)
    if upper[p] * sure < nearest[p]:
        return True, n_computed
    best, label, lowest = upper[p], a, np.inf
    for j in range(k):
        if j != a and not upper[p] * sure < lower[j, p]:
            distance, error = coarse_distance(copies, start + p, near, j), miss + near.misses[j]
            n_computed += 1
            lower[j, p] = max(lower[j, p], (distance - error) * unit * (2 - sure))
            if (distance + error) * unit * sure < best:
                best, label = (distance + error) * unit * sure, j
    if label != a:
        lower[a, p], lower[label, p] = own, np.inf
        upper[p], labels[p] = best, label
    for j in range(k):
        if j != label:
            lowest = min(lowest, lower[j, p])
    nearest[p] = lowest
    return best * sure < lowest, n_computed


@inner()
def tighten(X, start, p, centroids, nearest, lower, upper, labels, squares):
    """Find the nearest centroid of a row if the bounds leave it open; returns how many distances it took."""
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
def measure(X, start, stop, centroids, factor, scratch, lower, upper, labels):
    """Compute labels and bounds of a client's rows anew, by matrix product; see `focus` for the factor."""
    size, label, errors = scratch.size, scratch.label, scratch.square
    k, m = centroids.shape
    back = 1.0 / np.float64(factor)
    for block in range(start, stop, size):
        n, first = min(size, stop - block), block - start
        rows, lengths = scratch.rows[: n * m].reshape(n, m), scratch.lengths[:n]
        load_rows(X, block, n, scratch.shift, factor, rows, lengths)
        values = nearest_by_product(
            X, block, centroids, rows, lengths, scratch.scaled, scratch.squares, 1.0, scratch
        )
        for q in range(n):
            length = np.float64(lengths[q])
            # The error of the value and of the squared length that is added to it. If anything is not
            # finite, the bounds say nothing.
            errors[q] = 2 * rounding(m, np.sqrt(length), 1.0) + 2 * (m + 8) * SINGLE * length
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
def follow_labels(data, which, received, latest, copies, bounds):
    """First labels of several clients, from the bounds of their previous query.

    The received centroids are those of the query after the `latest`. The previous labels go to
    bounds.before.
    """
    X, (k, m) = data.X, received.shape
    n_past, moved_since, largest = len(bounds.past_centroids), -1, most_rows(data.starts, which)
    scratch = new_dense_scratch(X, k, m, largest, True)
    factor = scratch.shift.dtype.type(0)
    nearest, moved, squares = np.empty(largest), np.empty(k), np.empty(k)
    sure, near = 1 + (m + 16) * 4 * DOUBLE, copy_centroids(received, copies)
    place = (latest + 1) % n_past
    keep_centroids(received, bounds.past_centroids[place], bounds.past_errors[place])
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
            copy_rows(X, start, stop, copies)
            copies.filled[i] = True
        if not renew:
            if query != moved_since:
                movements(bounds.past_centroids[query % n_past], received, moved)
                for j in range(k):
                    moved[j] += bounds.past_errors[query % n_past, j]
                moved_since = query
            relax(lower, upper, labels, moved, nearest)
            n_computed = 0
            for p in range(n):
                if not upper[p] * sure < nearest[p]:
                    settled, n_more = settle(copies, start, p, near, nearest, lower, upper, labels)
                    n_computed += n_more
                    if not settled:
                        n_computed += tighten(X, start, p, received, nearest, lower, upper, labels, squares)
                    # If many are open, computing all distances together is cheaper.
                    if n_computed * _FEW_OPEN > n * k:
                        renew = True
                        break
        if renew:
            if factor == 0:  # the first that is computed anew
                found = focus(received, scratch.scaled, scratch.squares, scratch.shift, False)
                factor = scratch.shift.dtype.type(found[0])
            measure(X, start, stop, received, factor, scratch, lower, upper, labels)
