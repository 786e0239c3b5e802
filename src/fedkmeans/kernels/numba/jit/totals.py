"""Compiled arithmetic on statistics: running totals of many clients, and each client's inertia.

`renew` gives the same bits as `fedkmeans.kernels.reference.totals.renew`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedkmeans.kernels.numba.jit.common import ANY_ORDER, entry, inner

# Where squares around a cluster's own mean are a smaller part of those around a common point, the
# difference of two large numbers loses too many digits, and the rows are read instead.
_LEAST_PART = 2.0**-10


@inner()
def plus(high, low, number):
    """Add a number to high + low; see `statistics.two_sum`."""
    total = high + number
    of_number = total - high
    rest = ((high - (total - of_number)) + (number - of_number)) + low
    result = total + rest
    of_rest = result - total
    return result, (total - (result - of_rest)) + (rest - of_rest)


@inner()
def is_same(factor, values, old):
    """Whether factor times values is what it was."""
    for f in range(len(values)):  # noqa: SIM110 - written out for the compiler
        if factor * values[f] != old[f]:
            return False
    return True


@inner()
def replace_row(high, low, old, factor, weight, values):
    """Replace the statistics of one cluster of one client, both in its own row and in the total."""
    m = len(values)
    if old[m] == 0:
        for f in range(m):
            number = factor * values[f]
            high[f], low[f] = plus(high[f], low[f], number)
            old[f] = number
    elif weight == 0:
        for f in range(m):
            high[f], low[f] = plus(high[f], low[f], -old[f])
            old[f] = 0.0
    else:
        for f in range(m):
            number = factor * values[f]
            above, below = plus(high[f], low[f], -old[f])
            high[f], low[f] = plus(above, below, number)
            old[f] = number
    for f, number in ((m, weight), (m + 1, 1.0 if weight > 0 else 0.0)):
        above, below = plus(high[f], low[f], -old[f])
        high[f], low[f] = plus(above, below, number)
        old[f] = number


@entry()
def renew(high, low, last, slots, new, first, stop):
    """See `fedkmeans.kernels.reference.totals.renew`; only clusters from `first` up to `stop`."""
    stack, places, factors, weights, same = new
    m = stack.shape[2]
    for a in range(len(slots)):
        for j in range(first, stop):
            old, weight, factor = last[slots[a], j], weights[a, j], factors[a, j]
            values = stack[places[a], j]
            if weight == old[m] and (weight == 0 or same[a, j] or is_same(factor, values, old)):
                continue
            replace_row(high[j], low[j], old, factor, weight, values)


@entry()
def renew_numbers(high, low, last, slots, new):
    """The same for single numbers of each client: new (A, c), last (N, c), total (c,)."""
    for c in range(new.shape[1]):
        for a in range(len(slots)):
            old = last[slots[a], c]
            if new[a, c] != old:
                above, below = plus(high[c], low[c], -old)
                high[c], low[c] = plus(above, below, new[a, c])
                last[slots[a], c] = new[a, c]


@inner()
def count_pending(high, low, pending, mode):
    """Bring what is counted of one cluster up to date."""
    if mode == 0:
        for f in range(len(high)):
            high[f] = low[f] = 0.0
    elif mode == 1:
        for f in range(len(high)):
            high[f], low[f] = plus(high[f], low[f], pending[f])


@inner()
def add_change(high, low, pending, numbers, total_high, total_low):
    """Find the change of one cluster and add it to the total; returns how many numbers changed."""
    n_changed = 0
    for f in range(len(numbers)):
        change = (numbers[f] - high[f]) - low[f]
        n_changed += change != 0
        pending[f] = change
        total_high[f], total_low[f] = plus(total_high[f], total_low[f], change)
    return n_changed


@entry()
def renew_deltas(state, slots, modes, new, total, first, stop):
    """See `fedkmeans.kernels.reference.totals.renew_deltas`; only clusters from `first` up to `stop`."""
    stack, places, factors, weights, same = new
    highs, lows, pending, settled = state
    m = stack.shape[2]
    numbers, zeros = np.empty(m + 2), np.zeros(m + 2)
    for a in range(len(slots)):
        for j in range(first, stop):
            i, weight, factor = slots[a], weights[a, j], factors[a, j]
            known = weight == settled[i, j] and (weight == 0 or same[a, j])
            if (modes[a] == 1 or modes[a] == 2) and known:
                continue
            values, high, low = stack[places[a], j], highs[i, j], lows[i, j]
            if modes[a] == 3:  # the arrays are still zero, and memory that nobody used yet is slow
                high, low = zeros, zeros
                if weight == 0:
                    settled[i, j] = 0.0
                    continue
            for f in range(m):
                numbers[f] = factor * values[f] if weight > 0 else 0.0
            numbers[m], numbers[m + 1] = weight, 1.0 if weight > 0 else 0.0
            count_pending(high, low, pending[i, j], modes[a])
            n_changed = add_change(high, low, pending[i, j], numbers, total[0, j], total[1, j])
            settled[i, j] = weight if n_changed == 0 else np.nan


class InertiaArrays(NamedTuple):
    """What is kept to find a client's inertia without reading its rows again.

    A cluster's inertia around the received centroid c is W + n ‖mean - c‖², where W is its inertia
    around its own mean and n its weight. W changes only if rows join or leave the cluster.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Labels at the last time; -1 before the first.
    changed : ndarray of shape (N, k), bool
        Whether rows joined or left a cluster since the last time.
    within, away : ndarray of shape (N, k)
        W and n ‖mean - c‖².
    middles : ndarray of shape (N, m)
        Mean of each client's rows, a common point for all its clusters.
    squares : ndarray of shape (n,)
        Squared distance of each row to it; negative if not computed yet.
    """

    labels: Any
    changed: Any
    within: Any
    away: Any
    middles: Any
    squares: Any


@inner(fastmath=ANY_ORDER)
def square_between(a, b):
    """Squared distance of two vectors of double precision."""
    total = 0.0
    for f in range(len(a)):
        total += (a[f] - b[f]) * (a[f] - b[f])
    return total


@inner(fastmath=ANY_ORDER)
def square_to(X, p, vector):
    """Squared distance of a row to a vector."""
    total = 0.0
    for f in range(len(vector)):
        difference = np.float64(X[p, f]) - vector[f]
        total += difference * difference
    return total


@inner()
def measure_rows(X, start, stop, middle, squares):
    """Fill in the mean of a client's rows and their squared distances to it."""
    m = len(middle)
    for f in range(m):
        middle[f] = 0.0
    for p in range(start, stop):
        for f in range(m):
            middle[f] += X[p, f]
    for f in range(m):
        middle[f] /= stop - start
    for p in range(start, stop):
        squares[p] = square_to(X, p, middle)


@inner()
def find_changes(labels, start, stop, cache, changed):
    """Mark the clusters that rows joined or left; returns whether there are any."""
    any_changed = False
    for j in range(len(changed)):
        changed[j] = False
    for p in range(start, stop):
        if labels[p] != cache.labels[p]:
            any_changed = True
            changed[labels[p]] = True
            if cache.labels[p] >= 0:
                changed[cache.labels[p]] = True
            cache.labels[p] = labels[p]
    return any_changed


@inner()
def inertia_within(X, weight, start, stop, j, around, count, mean, middle, cache):
    """Inertia of a cluster around its own mean; `around` is its inertia around the middle."""
    within = around - count * square_between(mean, middle)
    if within > _LEAST_PART * around:
        return within
    within = 0.0
    for p in range(start, stop):
        if cache.labels[p] == j:
            within += weight[p] * square_to(X, p, mean)
    return within


@entry()
def received_inertia(data, which, received, moved, labels, results, cache):
    """Bring the cache of some clients up to date after one local step.

    `moved` (A, k) says whether a centroid is another one than the client received the last time.
    """
    X, weight, starts = data
    counts, means = results.counts, results.means
    k = len(received)
    around = np.empty(k)
    for a in range(len(which)):
        i = which[a]
        start, stop = starts[i], starts[i + 1]
        changed, middle = cache.changed[i], cache.middles[i]
        if cache.squares[start] < 0:
            measure_rows(X, start, stop, middle, cache.squares)
        if find_changes(labels, start, stop, cache, changed):
            for j in range(k):
                around[j] = 0.0
            for p in range(start, stop):
                around[labels[p]] += weight[p] * cache.squares[p]
        for j in range(k):
            count = counts[i, j]
            if count == 0:
                cache.within[i, j] = cache.away[i, j] = 0.0
                continue
            if changed[j]:
                cache.within[i, j] = inertia_within(
                    X, weight, start, stop, j, around[j], count, means[i, j], middle, cache
                )
            if changed[j] or moved[a, j]:
                cache.away[i, j] = count * square_between(means[i, j], received[j])
