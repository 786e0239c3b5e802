"""Running totals of the statistics of many clients: the plain version.

A total is kept as high + low, two doubles for each number (see `two_sum`), so that statistics which
are taken off again leave nothing behind.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import DeltaArrays, NewStatistics


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the rounded sum of numbers or arrays, and exactly what the rounding took off."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def plus(high: Any, low: Any, number: Any) -> tuple[Any, Any]:
    """Add a number or an array to the total high + low."""
    total, rest = two_sum(high, number)
    return two_sum(total, rest + low)


def renew(high: FloatArray, low: FloatArray, last: FloatArray, slots: IntArray, new: NewStatistics) -> None:
    """Take the last statistics of A clients off a total and add new ones, client after client.

    A cluster whose statistics did not change is left alone. The weight and the number of holders
    follow the sums as two more columns.

    Parameters
    ----------
    high, low : ndarray of shape (k, m + 2)
        The total; changed in place.
    last : ndarray of shape (N, k, m + 2)
        Last statistics of all clients; changed in place. Zeros where there are none.
    slots : ndarray of shape (A,)
        Places of the clients in `last`.
    new : NewStatistics
    """
    m = new.values.shape[2]
    for a, slot in enumerate(slots):
        mine, weight = last[slot], new.weight[a]
        rows = np.flatnonzero((weight != mine[:, m]) | ((weight > 0) & ~new.same[a]))
        numbers = np.zeros((len(rows), m + 2))
        held = weight[rows] > 0
        some = rows[held]
        numbers[held, :m] = new.factor[a, some, None] * new.values[new.places[a], some]
        numbers[:, m], numbers[:, m + 1] = weight[rows], held
        differ = (numbers != mine[rows]).any(axis=1)
        rows, numbers = rows[differ], numbers[differ]
        high[rows], low[rows] = plus(*plus(high[rows], low[rows], -mine[rows]), numbers)
        mine[rows] = numbers


def renew_deltas(
    state: DeltaArrays, slots: IntArray, modes: Any, new: NewStatistics, total: FloatArray
) -> None:
    """Find what changed at A clients, and add it to a total, client after client.

    Parameters
    ----------
    state : DeltaArrays
        Changed in place.
    slots : ndarray of shape (A,)
        Places of the clients in `state`.
    modes : ndarray of shape (A,)
        0 if nothing of the client was counted, 1 if its pending change was, 2 if that was not; 3 is
        like 0, for a client whose arrays are still zero.
    new : NewStatistics
    total : ndarray of shape (2, k, m + 2)
        High and low part; changed in place.
    """
    m = new.values.shape[2]
    for a, (slot, mode) in enumerate(zip(slots, modes, strict=True)):
        high, low, pending = state.high[slot], state.low[slot], state.pending[slot]
        numbers, held = np.zeros_like(high), new.weight[a] > 0
        numbers[held, :m] = new.factor[a, held, None] * new.values[new.places[a], held]
        numbers[:, m], numbers[:, m + 1] = new.weight[a], held
        if mode == 0:
            high[:], low[:] = 0.0, 0.0
        elif mode == 1:
            high[:], low[:] = plus(high, low, pending)
        pending[:] = numbers - high - low
        state.settled[slot] = np.where(pending.any(axis=1), np.nan, new.weight[a])
        total[0], total[1] = plus(total[0], total[1], pending)


def renew_numbers(
    high: FloatArray, low: FloatArray, last: FloatArray, slots: IntArray, new: FloatArray
) -> None:
    """The same for single numbers of each client: new (A, c), last (N, c), total (c,)."""
    for slot, numbers in zip(slots, new, strict=True):
        differ = np.flatnonzero(numbers != last[slot])
        pair = plus(high[differ], low[differ], -last[slot, differ])
        high[differ], low[differ] = plus(*pair, numbers[differ])
        last[slot, differ] = numbers[differ]
