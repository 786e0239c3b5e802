"""The fast kernel's compiled part: the same labels and sums as the plain version, to the last bit.

How it can be fast and exact: nearest centroids are found by something cheap whose error is known (a
single precision matrix product, a bound by the triangle inequality, the Gram matrix of a client's
rows). Where the two nearest are closer than that error, and only there, the plain formula decides:
squares added one after the other, `exact_square`. Sums are taken in the order of the rows, as in
`fedkmeans.kernels.reference.lloyd`, so that means are the same numbers, too.

Everything that is compiled stands in this file: compiled code is cached by the file it stands in,
and would not notice a change in another one.

Rows have weights, ones if nobody gave any, but for `scan`, where reading ones would take time.

Names used throughout: n rows, k clusters, m columns; i a client, p a row, j a cluster, f a column.
Arrays by cluster and row have shape (k, n): the innermost loops run over rows, where the processor
can do several at once. Functions write into arrays that they are given; what they return is little.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload

from fedkmeans.kernels.numba.compiling import kept, watch_compiling

# What Python calls is compiled once for each kind of data and kept on disk; what only these functions
# call is compiled into them, without what Python would need to call it. Long functions with a single
# caller become part of it before anything is compiled: else their code is optimised twice.
entry = partial(kept, nogil=True, error_model="numpy")
inner = partial(njit, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
part_of_caller = partial(inner, inline="always")
watch_compiling(__name__)

# Sums may be added in any order here, but NaN is still NaN.
_ANY_ORDER = {"reassoc", "contract", "nsz", "arcp"}
# For numbers that are known to be finite.
_FINITE = _ANY_ORDER | {"nnan", "ninf"}

_SINGLE = 2.0**-24  # relative rounding error of single precision
_FAINT = 2.0**-70  # of sums of squares in single precision, what squares of less than this add may be lost
_DOUBLE = 2.0**-53
# Terms of a row's distances (k·m) up to which the plain formula is the fastest, too.
FEW_TERMS = 64
# Columns from which centroids are better multiplied to rows from the right.
_MANY_COLUMNS = 64
# Numbers in the buffers of one block, in single precision: they should stay close to the processor. And
# rows of a block, no power of two: numbers that far apart would drive each other out of its cache.
_BLOCK_NUMBERS, _BLOCK_ROWS = 200_000, 496

# Squared length of a centroid, in units of their squared distance, up to which nothing need be shifted.
_NOT_FAR = 16.0
# Squared lengths with which single precision does well without a factor.
_MODERATE = 1e-10, 1e10

# How many times finer centroids are told than coarse rows; columns whose products add up to less than 2³¹.
_FINER, _COLUMNS = 32, 1024
# How many times farther than from its coarse copy a row must be from its centroid, for the copy to be used.
_GOOD_COPY = 8.0

# One open distance in so many is when computing them all becomes cheaper.
_FEW_OPEN = 8

# Squared lengths from which a Gram matrix has all its digits.
_LEAST_SCALE = 1e-250

# The setting of answers with one local step; others have larger numbers.
ONE_STEP = 1

# What a cluster's local centroid is: as received, the mean of its rows, or the mean of rows it lost.
AS_RECEIVED, MEAN, FROZEN = 0, 1, 2


@inner()
def copy(source, target):
    """Copy a vector; written out, as compiled slices bring much along for errors that cannot occur."""
    for q in range(len(target)):
        target[q] = source[q]


@inner()
def fill(target, value):
    """Fill a vector."""
    for q in range(len(target)):
        target[q] = value


# --- distances ---------------------------------------------------------------------------------


@inner()
def exact_square(X, p, centroids, j):
    """Squared distance as the plain version has it: one term after the other."""
    total = 0.0
    for f in range(centroids.shape[1]):
        difference = np.float64(X[p, f]) - centroids[j, f]
        total += difference * difference
    return total


@inner(fastmath=_ANY_ORDER)
def quick_square(X, p, centroids, j):
    """The same to (m + 2) roundings, several terms at once."""
    total = 0.0
    for f in range(centroids.shape[1]):
        difference = np.float64(X[p, f]) - centroids[j, f]
        total += difference * difference
    return total


@inner()
def decide(X, p, centroids, values, q, limit):
    """Nearest of the centroids j with values[j, q] <= limit, as the plain version would have it."""
    k, m = centroids.shape
    best, label = np.inf, 0
    for j in range(k):
        if not values[j, q] > limit:
            square = quick_square(X, p, centroids, j)
            if square < best:
                best, label = square, j
    # Few come this far, so that they may be computed once more.
    close = best * (1 + 8 * (m + 8) * _DOUBLE)
    best = np.inf
    for j in range(k):
        if not values[j, q] > limit and quick_square(X, p, centroids, j) <= close:
            square = exact_square(X, p, centroids, j)
            if square < best:
                best, label = square, j
    return label


# --- scanning rows: nearest centroid, sums and counts ------------------------------------------


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
        Rows turned into columns, for the plain formula; of length zero if that is not to be used.
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


@inner()
def focus(centroids, scaled, squares, shift):
    """Shift and scale the centroids so that single precision serves best; returns the factor.

    Distances do not change when everything is shifted. The factor is a power of two, which
    rounds nothing, and makes the longest shifted centroid at most one long.
    """
    k, m = centroids.shape
    for f in range(m):
        total = 0.0
        for j in range(k):
            total += centroids[j, f]
        shift[f] = total / k  # rounded to the precision of the data
    longest = 0.0
    for j in range(k):
        total = 0.0
        for f in range(m):
            total += (centroids[j, f] - np.float64(shift[f])) ** 2
        longest = max(longest, total)
    factor = 1.0
    if longest > 0:
        factor = 2.0 ** -np.ceil(0.5 * np.log2(longest))
    for j in range(k):
        total = 0.0
        for f in range(m):
            number = (centroids[j, f] - np.float64(shift[f])) * factor
            scaled[j, f] = number
            total += number * number
        squares[j] = total
    return factor


@inner(fastmath=_ANY_ORDER)
def load_rows(X, start, n, shift, factor, rows, lengths):
    """Rows from `start` on in single precision, shifted and scaled, and their squared lengths."""
    for q in range(n):
        total = np.float32(0)
        for f in range(X.shape[1]):
            number = np.float32((X[start + q, f] - shift[f]) * factor)
            rows[q, f] = number
            total += number * number
        lengths[q] = total


def rows_as_they_are(X, start, n, rows):
    """Rows in single precision need no copy; for others `rows`. Chosen when it is compiled for one."""
    return X[start : start + n] if X.dtype == np.float32 else rows


@overload(rows_as_they_are)
def _choose_rows(X, start, n, rows):
    if X.dtype == types.float32:
        return lambda X, start, n, rows: X[start : start + n]
    return lambda X, start, n, rows: rows


@inner(fastmath=_ANY_ORDER)
def square_lengths(rows, lengths):
    """Squared lengths of rows in single precision."""
    for q in range(len(rows)):
        total = np.float32(0)
        for f in range(rows.shape[1]):
            total += rows[q, f] * rows[q, f]
        lengths[q] = total


@inner()
def round_centroids(centroids, scaled, squares):
    """The centroids in single precision, neither shifted nor scaled, where that serves well.

    That is where they are not much longer than they are apart, and nothing can overflow. Returns the
    length of the longest; 0 where they must be shifted.
    """
    k, m = centroids.shape
    longest, apart = 0.0, 0.0
    for j in range(k):
        total, difference = 0.0, 0.0
        for f in range(m):
            scaled[j, f] = centroids[j, f]
            total += centroids[j, f] ** 2
            difference += (centroids[j, f] - centroids[0, f]) ** 2
        squares[j] = total
        longest, apart = max(longest, total), max(apart, difference)
    if _MODERATE[0] < longest < _MODERATE[1] and longest < _NOT_FAR * apart:
        return np.sqrt(longest)
    return 0.0


@inner()
def multiply(rows, scaled, scratch):
    """Products of the k shifted and scaled centroids with n such rows, shape (k, n)."""
    (n, m), k = rows.shape, len(scaled)
    values = scratch.values[: n * k].reshape(k, n)
    if m < _MANY_COLUMNS:
        np.dot(scaled, rows.T, values)
    else:
        # The matrix product is faster this way round, by more than turning its result takes.
        by_row = scratch.products[: n * k].reshape(n, k)
        np.dot(rows, scaled.T, by_row)
        for q in range(n):
            for j in range(k):
                values[j, q] = by_row[q, j]
    return values


@inner(fastmath=_FINITE)
def two_lowest(values, squares, best, second, label):
    """Turn products (k, n) into ‖c‖² - 2xc and find the lowest two and where the lowest is, per row."""
    k, n = values.shape
    for q in range(n):
        best[q] = np.float32(np.inf)
        second[q] = np.float32(np.inf)
        label[q] = 0
    for j in range(k):
        square = squares[j]
        for q in range(n):
            value = square - np.float32(2) * values[j, q]
            values[j, q] = value
            second[q] = min(second[q], max(value, best[q]))
            label[q] = np.int32(j) if value < best[q] else label[q]
            best[q] = min(best[q], value)


@inner()
def rounding(m, length, longest):
    """Bound on the error of a value ‖c‖² - 2xc in single precision, for this ‖x‖ and ‖c‖ <= `longest`.

    And on that of the plain formula, which is larger for rows that are immensely far from all centroids.
    """
    reach = length + longest
    return 2 * (m + 8) * (_SINGLE * longest * reach + _DOUBLE * reach * reach)


@inner()
def nearest_by_product(X, start, centroids, rows, lengths, scaled, squares, longest, scratch):
    """Nearest centroid of the rows from `start` on, by matrix product; exact where it is close.

    `rows` and `scaled` are those rows and the centroids, shifted and scaled, in single precision,
    `lengths` and `squares` their squared lengths. No such centroid is longer than `longest`, which must
    be a moderate number: what overflows are then products of rows that are marked by their length.
    """
    best, second, label = scratch.best, scratch.second, scratch.label
    n, m = rows.shape
    values = multiply(rows, scaled, scratch)
    two_lowest(values, squares, best, second, label)
    for q in range(n):
        margin = 2 * rounding(m, np.sqrt(np.float64(lengths[q])), longest)
        # Written so that what is not finite counts as close.
        if not second[q] - best[q] > margin:
            limit = best[q] + margin if lengths[q] < 1e30 else np.inf
            label[q] = decide(X, start + q, centroids, values, q, limit)
    return values


@inner()
def nearest_by_definition(X, start, n, centroids, scratch):
    """Nearest centroid of the rows from `start` on by the plain formula, many rows at once."""
    label, columns, square, best = scratch.label, scratch.columns, scratch.square, scratch.lowest
    k, m = centroids.shape
    for f in range(m):
        for q in range(n):
            columns[f * n + q] = X[start + q, f]
    for q in range(n):
        best[q] = np.inf
        label[q] = 0
    for j in range(k):
        for f in range(m):
            number = centroids[j, f]
            column = columns[f * n : (f + 1) * n]
            if f == 0:
                for q in range(n):
                    difference = column[q] - number
                    square[q] = difference * difference
            else:
                for q in range(n):
                    difference = column[q] - number
                    square[q] += difference * difference
        for q in range(n):
            label[q] = np.int32(j) if square[q] < best[q] else label[q]
            best[q] = square[q] if square[q] < best[q] else best[q]


@inner()
def add_rows(X, start, n, label, sums, counts):
    """Add rows to the sums and counts of their clusters, in their order."""
    for q in range(n):
        j = label[q]
        counts[j] += 1.0
        for f in range(X.shape[1]):
            sums[j, f] += np.float64(X[start + q, f])


@inner()
def add_long_rows(X, start, n, label, order, ends, sums, counts):
    """The same, one cluster after the other: its sum then stays close to the processor.

    `order` (n,) and `ends` (k,) are room.
    """
    fill(ends, 0)
    for q in range(n):
        ends[label[q]] += 1
    for j in range(1, len(ends)):
        ends[j] += ends[j - 1]
    for q in range(n - 1, -1, -1):  # each cluster's rows stay in their order
        j = label[q]
        ends[j] -= 1
        order[ends[j]] = start + q
    for j in range(len(ends)):
        e, stop = ends[j], n if j == len(ends) - 1 else ends[j + 1]
        counts[j] += stop - e
        # Four at a time: the sums are then read and written once for four terms.
        while e + 4 <= stop:
            p0, p1, p2, p3 = order[e], order[e + 1], order[e + 2], order[e + 3]
            for f in range(X.shape[1]):
                x0, x1, x2, x3 = np.float64(X[p0, f]), np.float64(X[p1, f]), X[p2, f], X[p3, f]
                sums[j, f] = (((sums[j, f] + x0) + x1) + np.float64(x2)) + np.float64(x3)
            e += 4
        while e < stop:
            p0 = order[e]
            for f in range(X.shape[1]):
                sums[j, f] += np.float64(X[p0, f])
            e += 1


@inner()
def add_weighted_rows(X, start, n, weight, label, sums, counts):
    """The same for rows with weights; product and sum are rounded one after the other."""
    for q in range(n):
        j, own = label[q], weight[start + q]
        counts[j] += own
        for f in range(X.shape[1]):
            sums[j, f] += own * np.float64(X[start + q, f])


@inner()
def add_inertia(X, start, n, weight, label, centroids, inertia):
    """Add squared distances to the own centroid, per cluster."""
    for q in range(n):
        own = weight[start + q] if len(weight) else 1.0
        j = np.int64(label[q])
        inertia[j] += own * quick_square(X, start + q, centroids, j)


@entry()
def scan(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia):
    """One pass over rows: labels, sums, counts and squared distances to the own centroid.

    Each output is filled only if it has room: pass an array of length zero to leave it out.
    `weight` of length zero means ones.
    """
    size, label, (k, m) = scratch.size, scratch.label, centroids.shape
    few = len(scratch.columns) > 0
    scaled, squares, lengths = scratch.scaled[:k], scratch.squares, scratch.lengths
    longest, factor = 0.0, 1.0
    if not few and scratch.shift.itemsize == 4:
        longest = round_centroids(centroids, scaled, squares)
    if not few and longest == 0:
        factor = focus(centroids, scaled, squares, scratch.shift)
    factor = scratch.shift.dtype.type(factor)
    for block in range(start, stop, size):
        n = min(size, stop - block)
        if few:
            nearest_by_definition(X, block, n, centroids, scratch)
        else:
            rows = scratch.rows[: n * m].reshape(n, m)
            if longest > 0:
                rows = rows_as_they_are(X, block, n, rows)
                square_lengths(rows, lengths)
            else:
                load_rows(X, block, n, scratch.shift, factor, rows, lengths)
            reach = longest if longest > 0 else 1.0
            nearest_by_product(X, block, centroids, rows, lengths, scaled, squares, reach, scratch)
        if len(labels):
            for q in range(n):
                labels[block + q] = label[q]
        if len(counts) and len(weight):
            add_weighted_rows(X, block, n, weight, label, sums, counts)
        elif len(counts) and X.shape[1] >= _MANY_COLUMNS:
            add_long_rows(X, block, n, label, scratch.order, scratch.ends[: len(centroids)], sums, counts)
        elif len(counts):
            add_rows(X, block, n, label, sums, counts)
        if len(inertia):
            add_inertia(X, block, n, weight, label, centroids, inertia)


def scan_table(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia):
    """`scan`, or `scan_sparse` for sparse rows: chosen when it is compiled for one of them.

    What stands here is for code that is not compiled (NUMBA_DISABLE_JIT), to look into it.
    """
    chosen = scan_sparse if isinstance(X, tuple) else scan
    chosen(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia)


@overload(scan_table)
def _choose_scan(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia):
    chosen = scan_sparse if isinstance(X, types.BaseTuple | tuple) else scan

    def call(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia):
        chosen(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia)

    return call


@entry()
def scan_clients(
    X, weight, starts, which, slots, received, max_local, tol_local, drop, scratch, room,
    means, status, counts, last_counts, inertia, received_inertia,
):  # fmt: skip
    """Local steps of several clients, each step a scan of the client's rows.

    Client which[a] has the rows from starts[which[a]] on and writes to place slots[a] of the outputs.
    The last two are filled only if they have room.
    """
    k, m = received.shape
    local, sums, count, own, active = room.local, room.means, room.count, room.squares, room.n_rows
    no_labels, no_inertia = scratch.label[:0], own[:0]
    for a in range(len(which)):
        start, stop, place = starts[which[a]], starts[which[a] + 1], slots[a]
        n_active = k
        for j in range(k):
            active[j] = j
            copy(received[j], local[j])
        for step in range(max_local):
            for j in range(k):
                fill(sums[j], 0.0)
            fill(count, 0.0)
            fill(own, 0.0)
            scan_table(
                X, weight, start, stop, local[:n_active], scratch, no_labels, sums, count,
                own if len(inertia) else no_inertia,
            )  # fmt: skip
            if step == 0:
                copy(count, counts[place])
                if len(inertia):
                    received_inertia[place] = 0.0
                    for j in range(k):
                        received_inertia[place] += own[j]
                if drop:
                    n_active = 0
                    for j in range(k):
                        if count[j] > 0:
                            active[n_active] = j
                            copy(received[j], local[n_active])
                            copy(sums[j], sums[n_active])
                            count[n_active], own[n_active] = count[j], own[j]
                            n_active += 1
            movement = 0.0
            for j in range(n_active):
                if count[j] > 0:
                    away = 0.0
                    for f in range(m):
                        mean = sums[j, f] / count[j]
                        away += (mean - local[j, f]) ** 2
                        local[j, f] = mean
                    movement += away
                    own[j] -= count[j] * away  # Σ‖x - mean‖² from distances to where the centroid was
            if np.sqrt(movement) < tol_local:
                break
        for j in range(k):
            copy(received[j], means[place, j])
            status[place, j] = MEAN
            last_counts[place, j] = 0.0
            if len(inertia):
                inertia[place, j] = 0.0
        for q in range(n_active):
            copy(local[q], means[place, active[q]])
            last_counts[place, active[q]] = count[q]
            if len(inertia):
                inertia[place, active[q]] = max(own[q], 0.0)


@inner()
def local_centroid(received, means, status, i, j):
    """Client i's centroid of cluster j."""
    return received[j] if status[i, j] == AS_RECEIVED else means[i, j]


@entry()
def add_up(weights, slots, received, means, status, first, last, weighted_sum, plain_sum):
    """Add Σ ω c and Σ c over clients, for clusters `first` to `last`, in the order of the clients."""
    m, n = received.shape[1], len(slots)
    for j in range(first, last):
        a = 0
        # Four at a time: the sums are then read and written once for four terms.
        while a + 4 <= n:
            w0, w1, w2, w3 = weights[a, j], weights[a + 1, j], weights[a + 2, j], weights[a + 3, j]
            c0 = local_centroid(received, means, status, slots[a], j)
            c1 = local_centroid(received, means, status, slots[a + 1], j)
            c2 = local_centroid(received, means, status, slots[a + 2], j)
            c3 = local_centroid(received, means, status, slots[a + 3], j)
            for f in range(m):
                x0, x1, x2, x3 = c0[f], c1[f], c2[f], c3[f]
                weighted_sum[j, f] = (((weighted_sum[j, f] + w0 * x0) + w1 * x1) + w2 * x2) + w3 * x3
                plain_sum[j, f] = (((plain_sum[j, f] + x0) + x1) + x2) + x3
            a += 4
        while a < n:
            own, centroid = weights[a, j], local_centroid(received, means, status, slots[a], j)
            for f in range(m):
                weighted_sum[j, f] += own * centroid[f]
                plain_sum[j, f] += centroid[f]
            a += 1


# --- following the centroids from round to round -----------------------------------------------
#
# Between rounds the centroids move little. For each row an upper bound of the distance to its own
# centroid and lower bounds of those to all others are kept; when centroids move by some length, no
# distance changes by more than that (the triangle inequality). Distances are computed only where
# the bounds cross.


@entry(fastmath=_ANY_ORDER)
def movements(old, new, result):
    """How far each centroid has moved, rounded up."""
    k, m = new.shape
    for j in range(k):
        total = 0.0
        for f in range(m):
            total += (new[j, f] - old[j, f]) ** 2
        result[j] = np.sqrt(total) * (1 + (m + 8) * _DOUBLE)


@inner(fastmath={"nsz"})
def relax(lower, upper, labels, moved, nearest):
    """Loosen the bounds by how far the centroids have moved; `nearest` is the lowest lower bound."""
    k, n = lower.shape
    for p in range(n):
        nearest[p] = np.inf
    for j in range(k):
        length = moved[j]
        for p in range(n):
            bound = (lower[j, p] - length) * (1 - 4 * _DOUBLE)
            lower[j, p] = bound
            nearest[p] = bound if bound < nearest[p] else nearest[p]
    for p in range(n):
        upper[p] = (upper[p] + moved[labels[p]]) * (1 + 4 * _DOUBLE)


class RowCopies(NamedTuple):
    """Copies of all rows that are read faster: in single precision, and coarser still.

    Attributes
    ----------
    rows : ndarray of shape (n, m), single precision
        Shifted and scaled.
    lengths : ndarray of shape (n,), single precision
        Their squared lengths.
    shift : ndarray of shape (m,)
        Of the data's precision.
    factor : number
        Of the data's precision; a power of two.
    filled : ndarray of shape (N,)
        Whether a client's rows are there yet.
    coarse, coarse_squares : ndarray of shape (n, m), bytes, and (n,), integers
        The nearest of 256 evenly spaced numbers, counted from 0, and the squared lengths of such rows.
    misses : ndarray of shape (n,), single precision
        No row is farther from its coarse copy. Lengths like this are in units of spacing/_FINER.
    lowest, spacing : float
        Of these numbers.
    """

    rows: Any
    lengths: Any
    shift: Any
    factor: Any
    filled: Any
    coarse: Any
    coarse_squares: Any
    misses: Any
    lowest: float
    spacing: float


class NearCentroids(NamedTuple):
    """Centroids as they are needed beside the rows of a `RowCopies`.

    Attributes
    ----------
    scaled, squares : ndarray of shape (k, m) and (k,), single precision
        Shifted and scaled, and their squared lengths.
    lengths : ndarray of shape (k,)
    coarse, coarse_squares : ndarray of shape (k, m) and (k,), integers
        Beside coarse rows, in units of spacing/_FINER, and their squared lengths.
    misses : ndarray of shape (k,)
        No centroid is farther from its coarse copy, in the same units.
    """

    scaled: Any
    squares: Any
    lengths: Any
    coarse: Any
    coarse_squares: Any
    misses: Any


@entry(fastmath=_ANY_ORDER)
def place_centroids(centroids, copies, result):
    """Fill a `NearCentroids`."""
    k, m = centroids.shape
    factor = np.float64(copies.factor)
    for j in range(k):
        total = 0.0
        for f in range(m):
            number = (centroids[j, f] - np.float64(copies.shift[f])) * factor
            result.scaled[j, f] = number
            total += number * number
        result.lengths[j], result.squares[j] = np.sqrt(total), total
        result.misses[j], result.coarse_squares[j] = coarsen(
            centroids, j, copies.lowest, copies.spacing / _FINER, 255 * _FINER, result.coarse[j]
        )


@inner(fastmath=_ANY_ORDER)
def coarsen(X, p, lowest, spacing, last, result):
    """The nearest of the numbers `lowest` + `spacing` times 0 to `last`, for each number of row p.

    Returns
    -------
    miss : float
        The row is not farther from these numbers, in units of `spacing`.
    square : int
        Their squared length, in the same units.
    """
    m, per_spacing = len(result), 1.0 / spacing
    total, square = 0.0, np.int64(0)
    for f in range(m):
        number = (np.float64(X[p, f]) - lowest) * per_spacing
        # Written so that what is not a number becomes one: its miss says that it is of no use.
        step = np.floor(number + 0.5) if number > 0.0 else 0.0
        step = step if step < last else np.float64(last)
        result[f] = np.int16(step)
        square += np.int64(step) * np.int64(step)
        total += (number - step) ** 2
    # Rounded up, by more than these few operations can have been rounded down.
    return np.sqrt(total) * (1 + 1e-6) + 1e-9 * np.sqrt(m), square


@inner()
def load_coarse(X, start, n, copies):
    """Coarse copies of the rows from `start` on."""
    for p in range(start, start + n):
        miss, square = coarsen(X, p, copies.lowest, copies.spacing, 255, copies.coarse[p])
        copies.misses[p] = miss * _FINER
        copies.coarse_squares[p] = square * _FINER**2


@inner(fastmath=_ANY_ORDER)
def single_movements(old, near, back, result):
    """How far each centroid has moved since it was `old`, rounded up, of centroids that were rounded."""
    k, m = old.shape
    for j in range(k):
        total = np.float32(0)
        for f in range(m):
            difference = near.scaled[j, f] - old[j, f]
            total += difference * difference
        distance = np.sqrt(np.float64(total)) * (1 + (m + 8) * _SINGLE) + _FAINT * np.sqrt(m)
        result[j] = (distance + 8 * _SINGLE * (near.lengths[j] + distance)) * back


@inner()
def coarse_distance(copies, p, near, j):
    """Distance between coarse copies, from integers, of which no digit is lost."""
    total, m = np.int64(0), near.coarse.shape[1]
    for block in range(0, m, _COLUMNS):
        row, centroid = copies.coarse[p, block : block + _COLUMNS], near.coarse[j, block : block + _COLUMNS]
        product = np.int32(0)
        for f in range(len(row)):
            # Written so that the processor's instruction for such products is found.
            product = np.int32(product + np.int32(np.int32(row[f]) * np.int32(centroid[f])))
        total += product
    twice = 2 * _FINER * total
    return np.sqrt(np.float64(copies.coarse_squares[p] + near.coarse_squares[j] - twice))


@inner()
def settle(copies, start, p, near, nearest, lower, upper, labels):
    """Find the nearest centroid of row start + p from coarse copies, where these can be trusted.

    How far apart the copies are is known to the last digit; row and centroid are within `misses` of theirs.

    Returns
    -------
    settled : bool
        If not, the bounds are tighter and hold all the same.
    n_computed : int
        Distances it took.
    """
    k, m = near.coarse.shape
    sure, unit = 1 + (m + 16) * 4 * _DOUBLE, copies.spacing / _FINER
    a, miss = np.int64(labels[p]), np.float64(copies.misses[start + p])
    if not miss * unit * _GOOD_COPY < upper[p]:
        return False, 0
    distance, error, n_computed = coarse_distance(copies, start + p, near, a), miss + near.misses[a], 1
    own = (distance - error) * unit * (2 - sure)
    upper[p] = min(upper[p], (distance + error) * unit * sure)
    if upper[p] * sure < nearest[p]:
        return True, n_computed
    best, label = upper[p], a
    # The lowest two bounds, and whose the lowest is: the bounds of a row lie far apart, and are read once.
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
    """Find the nearest centroid of row start + p where its bounds leave open which it is.

    Returns
    -------
    n_computed : int
        Distances it took.
    """
    k, m = centroids.shape
    sure = 1 + (m + 16) * 4 * _DOUBLE
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
    """Labels and bounds of a client's rows from scratch, by matrix product."""
    size, label, errors = scratch.size, scratch.label, scratch.square
    k, m = centroids.shape
    back, longest = 1.0 / np.float64(copies.factor), 1.0
    for j in range(k):
        longest = max(longest, near.lengths[j])
    for block in range(start, stop, size):
        n, first = min(size, stop - block), block - start
        rows, lengths = copies.rows[block : block + n], copies.lengths[block : block + n]
        values = nearest_by_product(
            X, block, centroids, rows, lengths, near.scaled, near.squares, longest, scratch
        )  # fmt: skip
        for q in range(n):
            length = np.float64(lengths[q])
            # Of the value, and of the squared length that is added to it; where anything is not
            # finite, the bounds say nothing.
            errors[q] = 2 * rounding(m, np.sqrt(length), longest) + 2 * (m + 8) * _SINGLE * length
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


# --- local steps on the Gram matrix ------------------------------------------------------------
#
# After the first local step all centroids are means of the client's own rows, and products of rows
# with rows are all that is needed: with K = X Xᵀ and the sums T_jp = Σ_{q∈j} K_qp,
#     ‖x_p - mean_j‖² - K_pp = Σ_{p∈j} T_jp / n_j² - 2 T_jp / n_j.
# When a row changes its cluster, two rows of T change by a row of K. K is taken of centred rows,
# scaled so that no row is longer than one, and kept in single precision.


@inner(fastmath=_ANY_ORDER)
def gram_matrix(X, start, stop, gram, lengths, rows, mean):
    """Fill the Gram matrix (n, n) of a client's centred rows, and the rows' squared lengths.

    `rows` and `mean` are room for the centred rows and for their centre.

    Returns
    -------
    scale : float
        By which squares were divided.
    reach : float
        Length of the longest row as it is, not centred.
    """
    n, m = stop - start, X.shape[1]
    fill(mean, 0.0)
    reach = 0.0
    for p in range(n):
        total = 0.0
        for f in range(m):
            number = np.float64(X[start + p, f])
            mean[f] += number
            total += number * number
        reach = max(reach, total)
    for f in range(m):
        mean[f] /= n
    scale = 0.0
    for p in range(n):
        total = 0.0
        for f in range(m):
            number = np.float64(X[start + p, f]) - mean[f]
            rows[p, f] = number
            total += number * number
        lengths[p] = total
        scale = max(scale, total)
    if scale == 0.0:
        scale = 1.0
    # Half of the matrix by matrix products, in blocks; the other half is the same.
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

    The precision of K, `unit`, double precision of everything else, and the plain version's own
    roundings: of its distances and of its means, which are as large as rows that are not centred. When
    a heavy row leaves a cluster it leaves rounding behind; `heaviest` is the largest weight in units of
    the smallest.
    """
    mean = 2 * (n + 2) * _DOUBLE * reach / np.sqrt(scale)
    left_behind = 8 * n * _DOUBLE * heaviest
    return 6 * unit + 32 * (n + m + 8) * _DOUBLE + left_behind + 4 * mean + mean * mean


@inner()
def move_row(gram, p, weight, sums, old, new):
    """Let row p change its cluster in the sums T (k, n)."""
    for q in range(gram.shape[0]):
        change = weight * np.float64(gram[p, q])
        sums[old, q] -= change
        sums[new, q] += change


@inner()
def sum_gram(gram, weight, start, labels, sums):
    """T from the start: T_j = Σ over the rows of cluster j of their rows of K."""
    n = gram.shape[0]
    for j in range(len(sums)):
        fill(sums[j], 0.0)
    for p in range(n):
        j = labels[p]
        own = weight[start + p]
        for q in range(n):
            sums[j, q] += own * np.float64(gram[p, q])


@inner()
def mean_of(X, weight, start, labels, j, count, result):
    """The mean of a cluster's rows, added in their order as the plain version does."""
    fill(result, 0.0)
    for p in range(len(labels)):
        if labels[p] == j:
            own = weight[start + p]
            for f in range(len(result)):
                result[f] += own * np.float64(X[start + p, f])
    for f in range(len(result)):
        result[f] /= count


@inner(fastmath=_FINITE)
def two_lowest_means(sums, factors, squares, frozen, status, best, second, label):
    """Lowest two of ‖mean‖² - 2x·mean per row over all clusters that are not as received.

    `sums` times `factors`, or `frozen` for a cluster that lost its rows, are the products x·mean.
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


class Room(NamedTuple):
    """Buffers for the local steps of one client; see `new_room`.

    Attributes
    ----------
    sums, frozen : ndarray of shape (k * n,)
        T; products of rows with the means of clusters that lost their rows.
    best, second : ndarray of shape (n,)
        Lowest two values of each row.
    nearest : ndarray of shape (n,)
        Lowest lower bound of each row.
    label, final : ndarray of shape (n,)
        New labels; the labels of the last local step of the last time.
    count, factors, squares : ndarray of shape (k,)
        Weight of each cluster, one over it, ‖mean‖².
    n_rows : ndarray of shape (k,)
    local, ready : ndarray of shape (k, m) and (k,)
        Local centroids as the plain version has them, and where they are up to date.
    means : ndarray of shape (k, m)
    status, dirty : ndarray of shape (k,)
    vector : ndarray of shape (m,)
    moved : ndarray of shape (k,)
        How far centroids have moved.
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


def new_room(k, m, n, with_gram=False):
    """Buffers for clients with up to n rows."""
    n_steps = n if with_gram else 0
    return Room(
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


@inner()
def place_of(X, weight, start, labels, j, status, count, received, means, local, ready):
    """Where a cluster's local centroid is, as the plain version has it: in `local`."""
    if not ready[j]:
        if status[j] == MEAN:
            mean_of(X, weight, start, labels, j, count[j], local[j])
        elif status[j] == FROZEN:
            copy(means[j], local[j])
        else:
            copy(received[j], local[j])
        ready[j] = True


@inner()
def first_movement_is_small(X, weight, start, labels, received, count, tol_local, probe, vector):
    """Say whether the first step moves all centroids by less than `tol_local` in all.

    Mostly one cluster is enough to see that it does not: the one with the fewest rows, whose mean
    is kept in `probe`.

    Returns
    -------
    small : bool
    cluster : int
    """
    k = len(count)
    smallest = np.int64(-1)
    for j in range(k):
        if count[j] > 0 and (smallest < 0 or count[j] < count[smallest]):
            smallest = j
    mean_of(X, weight, start, labels, smallest, count[smallest], probe)
    if np.sqrt(square_between(probe, received[smallest])) >= tol_local:
        return False, smallest
    total = 0.0
    for j in range(k):
        if count[j] > 0:
            mean_of(X, weight, start, labels, j, count[j], vector)
            total += square_between(vector, received[j])
    return np.sqrt(total) < tol_local, smallest


@inner()
def square_between(a, b):
    """Squared distance of two vectors."""
    total = 0.0
    for f in range(len(a)):
        total += (a[f] - b[f]) ** 2
    return total


@inner()
def square_means(weight, start, labels, status, count, sums, factors, squares):
    """‖mean‖² of each cluster that has rows, and one over its weight."""
    for j in range(len(count)):
        if status[j] == MEAN:
            squares[j] = 0.0
            factors[j] = 1.0 / count[j]
    for p in range(len(labels)):
        own = weight[start + p]
        squares[labels[p]] += own * sums[labels[p], p]
    for j in range(len(count)):
        if status[j] == MEAN:
            squares[j] *= factors[j] * factors[j]


@inner()
def consider_received(X, start, received, status, lower, lengths, scale, error, best, second, label, limit):
    """Let clusters that are where they were received compete for the rows, too.

    Their distances are computed only where the lower bounds do not rule them out. `limit` (n,) is room.
    """
    sure = 1 + (X.shape[1] + 16) * 4 * _DOUBLE
    for p in range(len(best)):
        limit[p] = (best[p] + lengths[p] + 3 * error) * scale
    for j in range(len(received)):
        if status[j] != AS_RECEIVED:
            continue
        n_near = 0  # mostly none; this is seen for many rows at once
        for p in range(len(best)):
            n_near += not lower[j, p] * lower[j, p] > limit[p]
        if n_near == 0:
            continue
        for p in range(len(best)):
            if not lower[j, p] * lower[j, p] > (best[p] + lengths[p] + 3 * error) * scale:
                square = quick_square(X, start + p, received, j)
                lower[j, p] = np.sqrt(square) * (2 - sure)
                value = square / scale - lengths[p]
                second[p] = min(second[p], max(value, best[p]))
                if value < best[p]:
                    best[p], label[p] = value, j


@inner()
def decide_by_means(
    X, weight, start, p, labels, status, count, received, means, local, ready,
    sums, factors, squares, frozen, lengths, scale, limit, lower, drop,
):  # fmt: skip
    """Nearest local centroid of a row by the plain formula, among those whose value is within `limit`."""
    best, label = np.inf, 0
    for j in range(len(received)):
        if status[j] == MEAN:
            value = squares[j] - 2 * factors[j] * sums[j, p]
        elif status[j] == FROZEN:
            value = squares[j] - 2 * frozen[j, p]
        elif drop:
            continue
        else:
            value = lower[j, p] * lower[j, p] / scale - lengths[p]
        if not value > limit:
            place_of(X, weight, start, labels, j, status, count, received, means, local, ready)
            square = exact_square(X, start + p, local, j)
            if square < best:
                best, label = square, j
    return label


@part_of_caller()
def gram_steps(
    X, weight, start, received, max_local, tol_local, drop, gram, lengths, scale, error,
    first_sums, first, lower, counts, final, status, last_counts, means, reach, probe, room,
):  # fmt: skip
    """Local steps of one client from its first labels on; labels and counts of the last step.

    Returns
    -------
    filled : bool
        Whether a cluster without rows at first won some later: then the steps depend on where the
        received centroids are, not only on the first labels.
    probe_cluster : int
    """
    k, n = first_sums.shape
    count, factors, squares, n_rows = room.count, room.factors, room.squares, room.n_rows
    local, ready = room.local, room.ready
    sums, frozen = room.sums[: k * n].reshape(k, n), room.frozen[: k * n].reshape(k, n)
    best, second, label = room.best[:n], room.second[:n], room.label[:n]
    for j in range(k):
        copy(first_sums[j], sums[j])
    copy(first, final)
    copy(counts, count)
    fill(reach, 0.0)
    for j in range(k):
        status[j] = MEAN if count[j] > 0 else AS_RECEIVED
        ready[j] = False
    filled, probe_cluster = False, -1
    if tol_local > 0:
        small, probe_cluster = first_movement_is_small(
            X, weight, start, first, received, count, tol_local, probe, room.vector
        )  # fmt: skip
        if small:
            copy(count, last_counts)
            return True, probe_cluster  # the next time it may be large
    for _ in range(1, max_local):
        square_means(weight, start, final, status, count, sums, factors, squares)
        two_lowest_means(sums, factors, squares, frozen, status, best, second, label)
        if not drop:
            consider_received(
                X, start, received, status, lower, lengths, scale, error, best, second, label,
                room.nearest[:n],
            )  # fmt: skip
        fill(n_rows, 0)
        n_changed = 0
        for p in range(n):
            if not second[p] - best[p] > 2 * error:
                label[p] = decide_by_means(
                    X, weight, start, p, final, status, count, received, means, local, ready,
                    sums, factors, squares, frozen, lengths, scale, best[p] + 2 * error, lower, drop,
                )  # fmt: skip
            reach[p] = max(reach[p], (best[p] + lengths[p] + 3 * error) * scale)
            n_rows[label[p]] += 1
            n_changed += label[p] != final[p]
        if n_changed == 0:
            break
        for j in range(k):
            if status[j] == MEAN and n_rows[j] == 0:
                mean_of(X, weight, start, final, j, count[j], means[j])
                room.status[j] = FROZEN  # what was there is overwritten, should it win rows again
                for p in range(n):
                    frozen[j, p] = sums[j, p] * factors[j]
        moving = (
            tol_local <= 0
            or surely_moves(
                weight, start, final, label, n_rows, sums, factors, squares, scale, error, tol_local
            )
            or means_move(
                X, weight, start, final, label, status, n_rows, received, means, tol_local, room
            )
        )  # fmt: skip
        for p in range(n):
            if label[p] != final[p]:
                own = weight[start + p]
                move_row(gram, p, own, sums, final[p], label[p])
                ready[final[p]] = False
                ready[label[p]] = False
        fill(count, 0.0)
        for p in range(n):
            final[p] = label[p]
            count[label[p]] += weight[start + p]
        for j in range(k):
            if n_rows[j] > 0:
                filled = filled or status[j] == AS_RECEIVED
                status[j] = MEAN
            elif status[j] == MEAN:
                status[j] = FROZEN
                fill(sums[j], 0.0)
        if not moving:
            break
    copy(count, last_counts)
    return filled, probe_cluster


@inner()
def surely_moves(weight, start, old, new, n_rows, sums, factors, squares, scale, error, tol_local):
    """See from the Gram matrix that a centroid moves by more than `tol_local`, where that is beyond doubt.

    A cluster has the mean a before and b afterwards: |a·b - a·a| is at most ‖b - a‖, as no row is longer
    than one.
    """
    for p in range(len(old)):
        j = old[p]
        if new[p] != j and n_rows[j] > 0:
            product, count = 0.0, 0.0
            for q in range(len(new)):
                if new[q] == j:
                    product += weight[start + q] * sums[j, q]
                    count += weight[start + q]
            difference = abs(product * factors[j] / count - squares[j])
            return difference > 4 * error and difference * np.sqrt(scale) > 4 * tol_local
    return False


@inner()
def movement_of(X, weight, start, old, new, j, status, received, means, room):
    """Squared length by which a cluster's local centroid moves when labels change from old to new."""
    count = 0.0
    for p in range(len(new)):
        if new[p] == j:
            count += weight[start + p]
    place_of(X, weight, start, old, j, status, room.count, received, means, room.local, room.ready)
    mean_of(X, weight, start, new, j, count, room.vector)
    return square_between(room.vector, room.local[j])


@inner()
def means_move(X, weight, start, old, new, status, n_rows, received, means, tol_local, room):
    """Say whether centroids move by `tol_local` or more when the labels change from old to new.

    Mostly one cluster that lost or won rows is enough to see it, the one with the fewest.
    """
    changed, k = room.dirty, len(n_rows)
    fill(changed, False)
    for p in range(len(old)):
        if old[p] != new[p]:
            changed[old[p]] = n_rows[old[p]] > 0
            changed[new[p]] = True
    smallest = np.int64(new[0])
    for j in range(k):
        if changed[j] and (not changed[smallest] or n_rows[j] < n_rows[smallest]):
            smallest = j
    total = movement_of(X, weight, start, old, new, smallest, status, received, means, room)
    for j in range(k):
        if np.sqrt(total) >= tol_local:
            return True
        if changed[j] and j != smallest:
            total += movement_of(X, weight, start, old, new, j, status, received, means, room)
    return np.sqrt(total) >= tol_local


class TrailArrays(NamedTuple):
    """What is remembered of the clients of one run; client i's rows are those from starts[i] on.

    Attributes
    ----------
    labels, final : ndarray of shape (n,)
        Labels of the first and of the last local step.
    before : ndarray of shape (n,)
        First labels of the time before.
    upper : ndarray of shape (n,)
        No row is farther from its own centroid.
    lower, sums : ndarray of shape (n * k,)
        For each client, from start * k on, an array (k, n_i): no row is nearer to the centroid (infinity
        for its own); and T.
    reach : ndarray of shape (n,)
        Squared: no row was farther from its local centroid in any step.
    means, status : ndarray of shape (N, k, m) and (N, k)
    counts, last_counts : ndarray of shape (N, k)
    probes, probe_clusters : ndarray of shape (N, m) and (N,)
        The mean of one cluster after the first step.
    known : ndarray of shape (N,)
        The setting of the last answer, 0 if there was none.
    again : ndarray of shape (N,)
        Whether the last answer depends on more than the first labels.
    n_moves : ndarray of shape (N,)
        Rows that changed their cluster in T since it was summed, -1 if it is not up to date.
    stations : ndarray of shape (S, k, m), single precision
        The centroids of the last S times that anybody was asked, number t at place t mod S, as in
        `NearCentroids`.
    seen : ndarray of shape (N,)
        The number of the station at which each client was last asked, -1 if it never was.
    """

    labels: Any
    final: Any
    before: Any
    upper: Any
    lower: Any
    sums: Any
    reach: Any
    means: Any
    status: Any
    counts: Any
    last_counts: Any
    probes: Any
    probe_clusters: Any
    known: Any
    again: Any
    n_moves: Any
    stations: Any
    seen: Any


class GramArrays(NamedTuple):
    """Gram matrices, one after the other in `pool` from `offsets` on, and what belongs to them.

    `lengths` (n,) are squared lengths of centred rows; `scales` (N,) are 0 where there is no matrix yet;
    `errors` (N,) see `gram_error`.
    """

    pool: Any
    offsets: Any
    lengths: Any
    scales: Any
    errors: Any


# --- a round of many clients -------------------------------------------------------------------


@inner()
def renew_means(X, weight, start, before, final, was, status, last_counts, means, dirty):
    """Take the means of clusters whose rows are not what they were, and only of those."""
    k = len(status)
    for j in range(k):
        dirty[j] = status[j] == MEAN and was[j] != MEAN
    for p in range(len(final)):
        if before[p] != final[p]:
            if before[p] >= 0:
                dirty[before[p]] = status[before[p]] == MEAN
            dirty[final[p]] = True
    for j in range(k):
        if dirty[j]:
            fill(means[j], 0.0)
    for p in range(len(final)):
        j = final[p]
        if dirty[j]:
            own = weight[start + p]
            for f in range(X.shape[1]):
                means[j, f] += own * np.float64(X[start + p, f])
    for j in range(k):
        if dirty[j]:
            for f in range(X.shape[1]):
                means[j, f] /= last_counts[j]


@inner()
def answer_stands(n, received, status, lower, reach, drop, tol_local, probe_cluster, probe):
    """Say whether local steps would go as they went, now that the received centroids have moved a little.

    They do not depend on these, unless a cluster without rows could win some, or the first step
    could be a small one.
    """
    if not drop:
        for j in range(len(received)):
            if status[j] == AS_RECEIVED:
                for p in range(n):
                    if not lower[j, p] * lower[j, p] > reach[p]:
                        return False
    if tol_local > 0:
        return np.sqrt(square_between(probe, received[probe_cluster])) >= tol_local
    return True


@entry()
def follow_labels(X, starts, which, received, latest, copies, near, trail, scratch, room):
    """First labels of several clients, from the bounds of the last time.

    `near` are the received centroids as `copies` needs them, and the station after the `latest`, whose
    place it takes among `trail.stations` already. The labels of the last time go to trail.before.
    """
    k, m = received.shape
    nearest, moved, n_stations, moved_since = room.nearest, room.moved, len(trail.stations), -1
    sure, back = 1 + (m + 16) * 4 * _DOUBLE, 1.0 / np.float64(copies.factor)
    for a in range(len(which)):
        i = which[a]
        station = trail.seen[i]
        start, stop = starts[i], starts[i + 1]
        n = stop - start
        labels, upper = trail.labels[start:stop], trail.upper[start:stop]
        lower = trail.lower[start * k : stop * k].reshape(k, n)
        copy(labels, trail.before[start:stop])
        renew = station < 0 or station <= latest + 1 - n_stations
        if not copies.filled[i]:
            load_rows(
                X, start, n, copies.shift, copies.factor, copies.rows[start:stop],
                copies.lengths[start:stop],
            )  # fmt: skip
            load_coarse(X, start, n, copies)
            copies.filled[i] = True
        if not renew:
            if station != moved_since:
                single_movements(trail.stations[station % n_stations], near, back, moved)
                moved_since = station
            relax(lower, upper, labels, moved, nearest)
            n_computed = 0
            for p in range(n):
                if not upper[p] * sure < nearest[p]:
                    settled, n_more = settle(copies, start, p, near, nearest, lower, upper, labels)
                    n_computed += n_more
                    if not settled:
                        n_computed += tighten(
                            X, start, p, received, nearest, lower, upper, labels, room.squares
                        )  # fmt: skip
                    # One by one; where there are many, all of them together are cheaper.
                    if n_computed * _FEW_OPEN > n * k:
                        renew = True
                        break
        if renew:
            measure(X, start, stop, received, copies, near, scratch, lower, upper, labels)


@inner()
def count_changes(trail, start, stop):
    """Rows whose first label is not what it was the last time."""
    n_changed = 0
    for p in range(start, stop):
        n_changed += trail.before[p] != trail.labels[p]
    return n_changed


@inner()
def count_first(weight, start, stop, labels, counts):
    """Weight of each cluster by the first labels."""
    fill(counts, 0.0)
    for p in range(start, stop):
        counts[labels[p]] += weight[p]


@entry()
def follow_step(X, weight, starts, which, trail, room):
    """The answers of several clients that make one local step, after `follow_labels`."""
    for a in range(len(which)):
        i = which[a]
        start, stop = starts[i], starts[i + 1]
        n_changed = count_changes(trail, start, stop)
        if n_changed == 0 and trail.known[i] == ONE_STEP:
            continue
        before = last_labels(trail, i, start, stop, room)
        count_first(weight, start, stop, trail.labels, trail.counts[i])
        copy(trail.labels[start:stop], trail.final[start:stop])
        copy(trail.counts[i], trail.last_counts[i])
        for j in range(len(room.status)):
            room.status[j] = trail.status[i, j]
            trail.status[i, j] = MEAN if trail.counts[i, j] > 0 else AS_RECEIVED
        renew_means(
            X, weight, start, before, trail.final[start:stop], room.status, trail.status[i],
            trail.last_counts[i], trail.means[i], room.dirty,
        )  # fmt: skip
        trail.known[i] = ONE_STEP
        if n_changed:
            trail.n_moves[i] = -1  # T is of other labels now


@inner()
def last_labels(trail, i, start, stop, room):
    """Labels of which the means are: those of the last local step of the last time, or none."""
    before = room.final[: stop - start]
    copy(trail.final[start:stop], before)
    if trail.known[i] == 0:
        fill(before, np.int32(-1))
    return before


@entry()
def follow_steps(
    X, weight, starts, which, received, max_local, tol_local, drop, setting, grams, trail, room
):  # fmt: skip
    """The answers of several clients that make several local steps, after `follow_labels`."""
    k = len(received)
    for a in range(len(which)):
        i = which[a]
        start, stop = starts[i], starts[i + 1]
        n, status = stop - start, trail.status[i]
        lower, reach = trail.lower[start * k : stop * k].reshape(k, n), trail.reach[start:stop]
        n_changed = count_changes(trail, start, stop)
        if (
            n_changed == 0
            and trail.known[i] == setting
            and not trail.again[i]
            and answer_stands(
                n, received, status, lower, reach, drop, tol_local, trail.probe_clusters[i], trail.probes[i]
            )
        ):
            continue
        first, final = trail.labels[start:stop], trail.final[start:stop]
        before = last_labels(trail, i, start, stop, room)
        copy(status, room.status)
        count_first(weight, start, stop, trail.labels, trail.counts[i])
        offset, lengths = grams.offsets[i], grams.lengths[start:stop]
        gram = grams.pool[offset : offset + n * n].reshape(n, n)
        sums = trail.sums[start * k : stop * k].reshape(k, n)
        if trail.n_moves[i] < 0 or trail.n_moves[i] + n_changed > n:
            sum_gram(gram, weight, start, first, sums)
            trail.n_moves[i] = 0
        else:
            for p in range(n):
                if trail.before[start + p] != first[p]:
                    own = weight[start + p]
                    move_row(gram, p, own, sums, trail.before[start + p], first[p])
            trail.n_moves[i] += n_changed
        trail.again[i], trail.probe_clusters[i] = gram_steps(
            X, weight, start, received, max_local, tol_local, drop, gram, lengths,
            grams.scales[i], grams.errors[i], sums, first, lower, trail.counts[i], final, status,
            trail.last_counts[i], trail.means[i], reach, trail.probes[i], room,
        )  # fmt: skip
        renew_means(
            X, weight, start, before, final, room.status, status, trail.last_counts[i], trail.means[i],
            room.dirty,
        )  # fmt: skip
        trail.known[i] = setting


@entry()
def score_clients(X, weight, starts, which, received, trail, scores):
    """Squared distances to the received centroids in all, for several clients, after `follow_labels`."""
    for a in range(len(which)):
        i = which[a]
        start, stop = starts[i], starts[i + 1]
        scores[a] = 0.0
        for p in range(start, stop):
            scores[a] += weight[p] * quick_square(X, p, received, np.int64(trail.labels[p]))
        if count_changes(trail, start, stop):
            trail.known[i], trail.n_moves[i] = 0, -1  # the last answer was to other labels


@entry()
def inertia_of_clients(
    X, weight, starts, which, received, first, final, means, inertia, received_inertia
):  # fmt: skip
    """Squared distances per cluster to the local centroids, and in all to the received ones."""
    for a in range(len(which)):
        i = which[a]
        fill(inertia[i], 0.0)
        received_inertia[i] = 0.0
        for p in range(starts[i], starts[i + 1]):
            own = weight[p]
            received_inertia[i] += own * quick_square(X, p, received, np.int64(first[p]))
            inertia[i, final[p]] += own * quick_square(X, p, means[i], np.int64(final[p]))


# --- k-means on the Gram matrix ----------------------------------------------------------------


@entry()
def prepare_gram(X, start, stop, gram, lengths, rows, mean, unit, heaviest):
    """Fill a Gram matrix; returns by what squares were divided, and the error to reckon with."""
    scale, reach = gram_matrix(X, start, stop, gram, lengths, rows, mean)
    return scale, gram_error(stop - start, X.shape[1], scale, reach, unit, heaviest)


@inner()
def distance_by_gram(gram, lengths, p, q, noise):
    """Squared distance of two rows; what may be nothing but rounding is zero."""
    total = lengths[p] + lengths[q]
    between = total - 2 * gram[p, q]
    return between if between > noise * total else 0.0


def load_start(X, p, start_row):
    """Make row p the one that distances are measured to; returns what `square_to_start` wants to know."""
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
    """Fill in the squared distances of row p to the start rows."""
    _choose_squares_to_starts(X, p, start_rows, lengths, squares)(X, p, start_rows, lengths, squares)


@overload(squares_to_starts)
def _choose_squares_to_starts(X, p, start_rows, lengths, squares):
    chosen = squares_to_sparse_starts if isinstance(X, types.BaseTuple | tuple) else squares_to_dense_starts
    return lambda X, p, start_rows, lengths, squares: chosen(X, p, start_rows, lengths, squares)


@inner(fastmath=_ANY_ORDER)
def squares_to_dense_starts(X, p, start_rows, lengths, squares):
    """The same for dense rows, four at a time: the row's numbers are then read less often."""
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
    """Choose rows by k-means++ as `clustering.kmeans_plusplus` does; the first is chosen already.

    `distances` (n_trials, n), `closest` (n,) and `start_rows` (n_trials, m) are room.
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
        if not total > 0:  # fewer different rows than clusters: any is as good as another
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
            # What is at its nearest centre already cannot come nearer.
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
def gram_plusplus(
    gram, lengths, weight, start, uniforms, n_trials, noise, better, chosen, closest, potential
):  # fmt: skip
    """Choose rows by k-means++ as `clustering.kmeans_plusplus` does; the first is chosen already."""
    n = len(lengths)
    for p in range(n):
        closest[p] = distance_by_gram(gram, lengths, p, chosen[0], noise)
    for c in range(len(chosen) - 1):
        total = 0.0
        for p in range(n):
            total += weight[start + p] * closest[p]
            potential[p] = total
        best, row = np.inf, int(uniforms[c, 0] * n)
        for t in range(n_trials if total > 0 else 0):
            draw = 0
            while draw < n - 1 and potential[draw] <= uniforms[c, t] * total:
                draw += 1
            left = 0.0
            for p in range(n):
                near = min(closest[p], distance_by_gram(gram, lengths, p, draw, noise))
                left += weight[start + p] * near
            if left < better * best:
                best, row = left, draw
        chosen[c + 1] = row
        for p in range(n):
            closest[p] = min(closest[p], distance_by_gram(gram, lengths, p, row, noise))


@part_of_caller()
def gram_lloyd(X, weight, start, gram, lengths, error, chosen, max_iter, count, centroids, room):
    """Lloyd's steps from the chosen rows until no label changes; the last means go to `centroids`.

    Returns whether that worked out: not where it is close which centroid is the nearest, not if a
    cluster is empty, and not if labels still change in the end. All are rare, and whoever called goes
    another way then. Labels are in room.final.
    """
    k, n = len(chosen), len(lengths)
    factors, squares, status = room.factors[:k], room.squares[:k], room.status[:k]
    sums, frozen = room.sums[: k * n].reshape(k, n), room.frozen[: k * n].reshape(k, n)
    best, second, label, before = room.best[:n], room.second[:n], room.label[:n], room.final[:n]
    for j in range(k):
        # A row that is a centroid is like the mean of a cluster that has lost its rows.
        status[j], squares[j] = FROZEN, lengths[chosen[j]]
        for p in range(n):
            frozen[j, p] = gram[chosen[j], p]
    for step in range(max_iter):
        two_lowest_means(sums, factors, squares, frozen, status, best, second, label)
        n_changed = 0
        fill(count, 0.0)
        for p in range(n):
            if not second[p] - best[p] > 2 * error:
                return False
            count[label[p]] += weight[start + p]
            n_changed += step == 0 or label[p] != before[p]
        if n_changed == 0:
            for j in range(k):
                mean_of(X, weight, start, before, j, count[j], centroids[j])
            return True
        for j in range(k):
            if count[j] == 0:
                return False
            status[j] = MEAN
        if step == 0:
            sum_gram(gram, weight, start, label, sums)
        for p in range(n):
            if step > 0 and label[p] != before[p]:
                move_row(gram, p, weight[start + p], sums, before[p], label[p])
            before[p] = label[p]
        square_means(weight, start, before, status, count, sums, factors, squares)
    return False


@entry()
def gram_kmeans(
    X, weight, starts, which, wanted, n_trials, uniforms, noise, better, max_iter, products, rows, closest,
    room, chosen, centroids, counts, done,
):  # fmt: skip
    """k-means on the rows of several clients, each from several starts, by Gram matrices.

    Client which[a] makes wanted[a] clusters. The first row of each of its starts s is in
    chosen[a, s], where the others go; of the starts, the best goes to centroids[a] and counts[a].
    done[a] says whether that worked out; see `gram_lloyd`. If nothing was chosen, chosen[a, 0, 0] is -1.
    `products` (n * n,), `rows` (n * m,) and
    `closest` (2 n,) are room, n being the rows of the largest client.
    """
    m = X.shape[1]
    for a in range(len(which)):
        start, stop, k = starts[which[a]], starts[which[a] + 1], wanted[a]
        n = stop - start
        gram, lengths = products[: n * n].reshape(n, n), room.nearest[:n]
        least, most = np.inf, 0.0
        for p in range(start, stop):
            least, most = min(least, weight[p]), max(most, weight[p])
        scale, reach = gram_matrix(X, start, stop, gram, lengths, rows[: n * m].reshape(n, m), room.vector)
        error = gram_error(n, m, scale, reach, _DOUBLE, most / least)
        if scale < _LEAST_SCALE:  # squares have lost their digits, and nothing is chosen by them
            done[a], chosen[a, 0, 0] = False, -1
            continue
        count, local, lowest = room.count[:k], room.local[:k], np.inf
        for s in range(chosen.shape[1]):
            gram_plusplus(
                gram, lengths, weight, start, uniforms[a, s], n_trials[a], noise, better,
                chosen[a, s, :k], closest[:n], closest[n : 2 * n],
            )  # fmt: skip
            done[a] = done[a] and gram_lloyd(
                X, weight, start, gram, lengths, error, chosen[a, s, :k], max_iter, count, local, room
            )
            inertia = 0.0
            if chosen.shape[1] > 1 and done[a]:
                for p in range(n):
                    inertia += weight[start + p] * quick_square(X, start + p, local, np.int64(room.final[p]))
            if done[a] and inertia < better * lowest:
                lowest = inertia
                for j in range(k):
                    copy(local[j], centroids[a, j])
                    counts[a, j] = count[j]


# --- sparse rows -------------------------------------------------------------------------------
#
# The numbers of row p are data[e] in the columns indices[e] for e from indptr[p] up to indptr[p + 1].
# Products of a row with all centroids take as many terms as the row has numbers, in double precision
# and with the centroids turned, (m, k), so that the innermost loop runs over clusters. A row is spread
# to all m columns only where it is close which centroid is the nearest, or where the short way to its
# squared distance would round too much.

# To which part of it a row's squared distance must be right.
_DIGITS = 1e-10


class Csr(NamedTuple):
    """Sparse rows, as compiled code takes them in the place of an array (n, m)."""

    data: Any
    indices: Any
    indptr: Any


class SparseScratch(NamedTuple):
    """Buffers for `scan_sparse`; see `new_sparse_scratch`.

    Attributes
    ----------
    label : ndarray of shape (0,)
        Stands for labels that are not wanted.
    turned : ndarray of shape (m * k,)
        The centroids, by column.
    squares, values : ndarray of shape (k,)
        ‖c‖², and ‖c‖² - 2xc for one row.
    spread : ndarray of shape (1, m)
        Room for one row with its zeros; all zeros in between.
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


@inner(fastmath=_ANY_ORDER)
def turn(centroids, turned, squares):
    """Centroids (k, m) by column, and their squared lengths; returns the longest's."""
    k, m = centroids.shape
    longest = 0.0
    for j in range(k):
        total = 0.0
        for f in range(m):
            total += centroids[j, f] * centroids[j, f]
        squares[j] = total
        longest = max(longest, total)
    for f in range(m):
        for j in range(k):
            turned[f, j] = centroids[j, f]
    return longest


@inner(fastmath=_ANY_ORDER)
def sparse_values(X, p, turned, squares, values):
    """Fill in ‖c‖² - 2xc of one row for all centroids; returns ‖x‖²."""
    k = len(values)
    e, stop = X.indptr[p], X.indptr[p + 1]
    length = 0.0
    for j in range(k):
        values[j] = squares[j]
    # Four at a time: the values are then read and written once for four terms.
    while e + 4 <= stop:
        f0, f1, f2, f3 = X.indices[e], X.indices[e + 1], X.indices[e + 2], X.indices[e + 3]
        x0, x1 = np.float64(X.data[e]), np.float64(X.data[e + 1])
        x2, x3 = np.float64(X.data[e + 2]), np.float64(X.data[e + 3])
        length += (x0 * x0 + x1 * x1) + (x2 * x2 + x3 * x3)
        x0, x1, x2, x3 = -2 * x0, -2 * x1, -2 * x2, -2 * x3
        for j in range(k):
            values[j] += (x0 * turned[f0, j] + x1 * turned[f1, j]) + (x2 * turned[f2, j] + x3 * turned[f3, j])
        e += 4
    while e < stop:
        f0, x0 = X.indices[e], np.float64(X.data[e])
        length += x0 * x0
        for j in range(k):
            values[j] -= 2 * x0 * turned[f0, j]
        e += 1
    return length


@inner()
def spread_row(X, p, spread):
    """Write a row's numbers into their columns."""
    for e in range(X.indptr[p], X.indptr[p + 1]):
        spread[0, X.indices[e]] = X.data[e]


@inner()
def clear_row(X, p, spread):
    """Make it all zeros again."""
    for e in range(X.indptr[p], X.indptr[p + 1]):
        spread[0, X.indices[e]] = 0.0


@inner()
def nearest_of_sparse(X, p, centroids, turned, longest, scratch):
    """Nearest centroid of one row, its squared distance to rounding, and how much that may be.

    Each value is a sum of up to m + 1 terms, whose absolute values add up to no more than
    ‖c‖² + 2‖x‖‖c‖ <= reach², and ‖c‖² itself one of m terms: no value is off by more than
    (2m + 8) roundings of reach². The plain formula is off by (m + 2) roundings of a squared distance,
    which is at most reach², too. The margin is for two values, two such distances, and to spare. A value
    and ‖x‖² together are off by (3m + 16) roundings, less than an eighth of it.

    Returns
    -------
    label : int
    square, error : float
    """
    k, m = centroids.shape
    values = scratch.values[:k]
    length = sparse_values(X, p, turned, scratch.squares, values)
    best, second, label = np.inf, np.inf, 0
    for j in range(k):
        value = values[j]
        if value < best:
            best, second, label = value, best, j
        elif value < second:
            second = value
    reach = np.sqrt(length) + np.sqrt(longest)
    margin = 32 * (m + 8) * _DOUBLE * reach * reach + 1e-300  # for what is too small to have all digits
    # Written so that what is not finite counts as close.
    if not second - best > margin:
        spread_row(X, p, scratch.spread)
        limit = best + margin if margin < np.inf else np.inf
        label = decide(scratch.spread, 0, centroids, values.reshape(k, 1), 0, limit)
        clear_row(X, p, scratch.spread)
    return label, length + values[label], margin / 8


@inner()
def add_sparse_row(X, p, own, sums):
    """Add a row to a vector; product and sum are rounded one after the other, as for dense rows."""
    for e in range(X.indptr[p], X.indptr[p + 1]):
        sums[X.indices[e]] += own * np.float64(X.data[e])


@inner(fastmath=_ANY_ORDER)
def two_squares(X, p, vector):
    """Σ(x - v)² and Σv² over the columns in which the row has numbers."""
    near, covered = 0.0, 0.0
    for e in range(X.indptr[p], X.indptr[p + 1]):
        number = vector[X.indices[e]]
        difference = np.float64(X.data[e]) - number
        near += difference * difference
        covered += number * number
    return near, covered


@inner()
def sparse_square(X, p, centroids, j, scratch):
    """Squared distance of a row to a centroid, as exact as `_DIGITS` says."""
    near, covered = two_squares(X, p, centroids[j])
    whole = scratch.squares[j]
    total = near + max(whole - covered, 0.0)
    if 4 * (len(centroids[j]) + 8) * _DOUBLE * whole <= _DIGITS * total:
        return total
    spread_row(X, p, scratch.spread)
    total = quick_square(scratch.spread, 0, centroids, j)
    clear_row(X, p, scratch.spread)
    return total


@entry()
def scan_sparse(X, weight, start, stop, centroids, scratch, labels, sums, counts, inertia):
    """The same as `scan`, for sparse rows."""
    k, m = centroids.shape
    turned = scratch.turned[: m * k].reshape(m, k)
    longest = turn(centroids, turned, scratch.squares)
    for p in range(start, stop):
        j, square, error = nearest_of_sparse(X, p, centroids, turned, longest, scratch)
        own = weight[p] if len(weight) else 1.0
        if len(labels):
            labels[p] = j
        if len(counts):
            counts[j] += own
            add_sparse_row(X, p, own, sums[j])
        if len(inertia):
            if not error <= _DIGITS * square:
                square = sparse_square(X, p, centroids, j, scratch)
            inertia[j] += own * square


@inner()
def load_sparse_start(X, p, start_row):
    """Make row p the start row; returns its squared length.

    By the very sum that `two_squares` takes, so that the distance of equal rows comes out as zero.
    """
    fill(start_row[0], 0.0)
    spread_row(X, p, start_row)
    return two_squares(X, p, start_row[0])[1]


@inner()
def squares_to_sparse_starts(X, p, start_rows, lengths, squares):
    """Squared distances of row p to the start rows, to rounding."""
    for t in range(len(start_rows)):
        near, covered = two_squares(X, p, start_rows[t])
        squares[t] = near + max(lengths[t] - covered, 0.0)
