"""Delta states of clients that share a table, in stacked arrays that are updated in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.client.delta_state import DeltaState
from fedkmeans.kernels import Kernel
from fedkmeans.kernels.base import DeltaArrays
from fedkmeans.kernels.reference.totals import plus
from fedkmeans.protocol.statistics import ClusterStatistics, RunningTotal, StackedStatistics

# The acknowledgement says that nothing was counted, that the pending delta was, or that it was not.
RESET, ADD, KEEP = 0, 1, 2


class DeltaStack:
    """Delta states of N clients, with k clusters and m columns, for one running total."""

    def __init__(self, n_clients: int, k: int, m: int) -> None:
        high, low, pending = np.zeros((3, n_clients, k, m + 2))
        self.rows = DeltaArrays(high, low, pending, np.zeros((n_clients, k), dtype=np.bool_))
        self.numbers = np.zeros((3, n_clients, 2))  # inertia and n_samples of high, low, pending
        self.counted_in: list[str | None] = [None] * n_clients
        self.pending_in = [""] * n_clients
        self.stamps = np.full(n_clients, -2, dtype=np.int64)

    def state_of(self, client: int) -> DeltaState:
        """Return a copy of the state of one client."""
        high, low, pending = (
            ClusterStatistics(rows[:, :-2], rows[:, -2], rows[:, -1], float(numbers[0]), float(numbers[1]))
            for rows, numbers in zip(
                (rows[client].copy() for rows in self.rows[:3]), self.numbers[:, client], strict=True
            )
        )
        counted = RunningTotal(high, low)
        return DeltaState(counted, self.counted_in[client], pending, self.pending_in[client])

    def load(self, client: int, state: DeltaState) -> None:
        """Copy the state of one client into the stack."""
        parts = (state.counted.high, state.counted.low, state.pending)
        for rows, numbers, part in zip(self.rows[:3], self.numbers, parts, strict=True):
            rows[client] = np.column_stack([part.weighted_sum, part.weight, part.holders])
            numbers[client] = part.inertia, part.n_samples
        self.rows.settled[client] = False
        self.counted_in[client], self.pending_in[client] = state.counted_in, state.pending_in
        self.stamps[client] = -2

    def renew(
        self, slots: IntArray, modes: Any, places: IntArray, statistics: StackedStatistics, kernel: Kernel
    ) -> RunningTotal:
        """Compute the deltas of the clients `slots`, store them as pending, and return their sum.

        `places` are the indices of these clients in `statistics`.
        """
        new, stamp = statistics.new(places, self.stamps[slots])
        k, columns = self.rows.high.shape[1:]
        total = np.zeros((2, k, columns))
        kernel.renew_deltas(self.rows, slots, modes, new, total, statistics.n_threads)
        numbers = np.column_stack([statistics.inertia[places], statistics.n_samples[places]])
        total_numbers = self._renew_numbers(slots, modes, numbers, kernel)
        self.stamps[slots] = stamp
        return RunningTotal.of_rows(total, total_numbers)

    def _renew_numbers(self, slots: IntArray, modes: Any, new: FloatArray, kernel: Kernel) -> FloatArray:
        high, low, pending = self.numbers[:, slots]
        added = plus(high, low, np.where(modes[:, None] == ADD, pending, 0.0))
        high, low = (np.where(modes[:, None] == RESET, 0.0, part) for part in added)
        pending = new - high - low
        self.numbers[:, slots] = high, low, pending
        total = np.zeros((2, 2))
        kernel.renew_numbers(total[0], total[1], np.zeros_like(new), np.arange(len(slots)), pending)
        return total


@dataclass(frozen=True, slots=True)
class StackedDelta:
    """The state of one client in a stack."""

    stack: DeltaStack
    client: int

    def state(self) -> DeltaState:
        """Return a copy of the state as a `DeltaState`."""
        return self.stack.state_of(self.client)


def mode_of(stack: DeltaStack, client: int, acknowledged: str | None) -> int | None:
    """Return the meaning of an acknowledgement; None if the client does not know the exchange."""
    if acknowledged is None:
        return RESET
    if acknowledged == stack.pending_in[client]:
        return ADD
    return KEEP if acknowledged == stack.counted_in[client] else None
