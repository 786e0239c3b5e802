"""The contributions of clients to a running total that is updated with deltas.

The server stores only the sum, so each client must remember its own contribution. A reply can be lost,
so a client does not know whether the server counted its latest delta. It therefore stores both the sum
of the deltas known to be counted and the latest delta. Each query names the exchange in which the server
last counted the client, which resolves the latest delta. Every exchange has a unique name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkmeans._utils.typing import IntArray
from fedkmeans.kernels import find_kernel
from fedkmeans.kernels.base import DeltaArrays
from fedkmeans.protocol.field_types import register
from fedkmeans.protocol.statistics import ClusterStatistics, RunningTotal, StackedStatistics

# What an acknowledgement means: nothing was counted, the pending delta was, it was not, nothing was and
# nothing was ever sent, or the exchange is unknown.
_RESET, _ADD, _KEEP, _FIRST, _LOST = 0, 1, 2, 3, -1


@dataclass(frozen=True, slots=True)
class DeltaState:
    """The deltas that a client has sent for one running total, as sites store them on disk.

    Attributes
    ----------
    counted : RunningTotal
        Sum of the deltas known to be counted: the contribution of the client to the total.
    counted_in : str or None
        Exchange of the latest counted delta.
    pending : ClusterStatistics
        The latest delta; it is not known yet whether the server counted it.
    pending_in : str
        Exchange of the pending delta.
    """

    counted: RunningTotal
    counted_in: str | None
    pending: ClusterStatistics
    pending_in: str


register(DeltaState)  # it is encoded like a message


class DeltaStates:
    """The states of the N clients of a table for one running total, in arrays."""

    def __init__(self, n_clients: int, k: int, m: int) -> None:
        self.rows = DeltaArrays.nothing(n_clients, k, m)
        # Inertia and n_samples, like the sums of a single cluster with a weight of one.
        self.numbers = DeltaArrays.nothing(n_clients, k=1, m=2)
        self.known, self.used = np.zeros((2, n_clients), dtype=np.bool_)  # `used`: not all zero
        self.counted_in, self.pending_in = np.full((2, n_clients), None, dtype=object)
        self.stamps = np.full(n_clients, -2, dtype=np.int64)  # of the statistics that were last seen

    def __getstate__(self) -> dict[str, Any]:
        # Stamps are unique only within a process.
        return {**self.__dict__, "stamps": np.full_like(self.stamps, -2)}

    @property
    def shape(self) -> tuple[int, int]:
        """Number of clusters and number of columns."""
        k, columns = self.rows.high.shape[1:]
        return k, columns - 2

    def state_of(self, client: int) -> DeltaState:
        """Return a copy of the state of one client."""
        counted = RunningTotal(self._part(0, client), self._part(1, client))
        return DeltaState(counted, self.counted_in[client], self.pending_of(client), self.pending_in[client])

    def pending_of(self, client: int) -> ClusterStatistics:
        """Return the latest delta of a client."""
        return self._part(2, client)

    def _part(self, part: int, client: int) -> ClusterStatistics:
        rows, numbers = self.rows[part][client].copy(), self.numbers[part][client, 0, :2].tolist()
        return ClusterStatistics(rows[:, :-2], rows[:, -2], rows[:, -1], *numbers)

    def load(self, client: int, state: DeltaState) -> None:
        """Restore the state of a client."""
        for part, record in enumerate((state.counted.high, state.counted.low, state.pending)):
            self.rows[part][client] = np.column_stack([record.weighted_sum, record.weight, record.holders])
            self.numbers[part][client, 0, :2] = record.inertia, record.n_samples
        self.rows.settled[client], self.stamps[client] = np.nan, -2
        self.known[client] = self.used[client] = True
        self.counted_in[client], self.pending_in[client] = state.counted_in, state.pending_in

    def renew(
        self,
        clients: IntArray,
        statistics: StackedStatistics,
        exchange: str,
        acknowledged: Sequence[str | None],
    ) -> tuple[RunningTotal, Any]:
        """Compute the deltas of clients from their new statistics, and store them as pending.

        A delta is the difference from the sum of all counted deltas, not from the previous statistics.
        Each delta thus corrects the rounding errors of earlier ones.

        Parameters
        ----------
        clients : ndarray of shape (A,)
            Places of the clients in the table, in the order of `statistics`.
        statistics : StackedStatistics
        exchange : str
        acknowledged : sequence of str or None
            For each client, the exchange of its latest delta that the server counted; None if none was.

        Returns
        -------
        difference : RunningTotal
            Sum of the deltas.
        lost : ndarray of shape (A,), bool
            Clients that do not know the acknowledged exchange. Their states do not change.
        """
        told: Any = np.array(acknowledged, dtype=object)
        modes = np.where(told == self.counted_in[clients], _KEEP, _LOST)
        modes[told == self.pending_in[clients]] = _ADD
        modes[~self.known[clients]] = _LOST
        modes[told == None] = _RESET  # noqa: E711 - for each element
        modes[(modes == _RESET) & ~self.used[clients]] = _FIRST
        places = np.flatnonzero(modes != _LOST)
        slots, used = clients[places], modes[places]
        self.known[slots], self.used[slots] = False, True  # the former until the end: it may be interrupted
        new, stamp = statistics.new(places, self.stamps[slots])
        total, numbers = np.zeros((2, *self.rows.high.shape[1:])), np.zeros((2, 1, 4))
        # A single client does not need compiled code, which takes time to load.
        kernel = find_kernel(statistics.kernel if len(clients) > 1 else "numpy")
        kernel.renew_deltas(self.rows, slots, used, new, total, statistics.n_threads)
        kernel.renew_deltas(self.numbers, slots, used, statistics.new_numbers(places), numbers)
        self.stamps[slots], self.counted_in[slots], self.pending_in[slots] = stamp, told[places], exchange
        self.known[slots] = True
        return RunningTotal.of_rows(total, numbers[:, 0, :2]), modes == _LOST
