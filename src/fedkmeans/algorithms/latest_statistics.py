"""The latest statistics of every client in one table, and their exact total."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedkmeans._utils.typing import ClientId, IntArray
from fedkmeans.kernels import find_kernel
from fedkmeans.protocol.statistics import ClusterStatistics, RunningTotal, StackedStatistics


class LatestStatistics:
    """The latest statistics of every client, and their running total.

    An update subtracts and adds only clusters whose statistics changed. It processes clients in the
    order of their names, so that rounding does not depend on the order of the replies.

    Parameters
    ----------
    clients : tuple of str
        All clients that may send statistics.
    k, m : int
        Number of clusters and number of columns.

    Attributes
    ----------
    known : dict
        The keys are the clients whose statistics are included in the total.
    """

    def __init__(self, clients: tuple[ClientId, ...], k: int, m: int) -> None:
        n_clients = len(clients)
        self.known: dict[ClientId, None] = {}
        self._slots = {client: slot for slot, client in enumerate(clients)}
        # Columns: the weighted sums, the weight, and whether the client has points in the cluster.
        self._rows = np.zeros((n_clients, k, m + 2))
        self._total = np.zeros((2, k, m + 2))
        # Columns: inertia and number of samples.
        self._numbers, self._total_numbers = np.zeros((n_clients, 2)), np.zeros((2, 2))
        self._stamps = np.full(n_clients, -2, dtype=np.int64)
        self._members = clients
        self._latest: tuple[tuple[ClientId, ...], IntArray] = (), np.empty(0, dtype=np.int64)

    def replace(self, statistics: Mapping[ClientId, ClusterStatistics]) -> None:
        """Replace the statistics of these clients."""
        if statistics:
            stacked = StackedStatistics.of(statistics)
            self._renew(stacked)
            self.known.update(dict.fromkeys(stacked.names))

    def keep(self, clients: tuple[ClientId, ...]) -> None:
        """Keep only these clients: subtract the statistics of those that have left."""
        if clients is self._members:  # the usual case
            return
        self._members = clients
        gone = tuple(sorted(self.known.keys() - set(clients)))
        if gone:
            k, columns = self._rows.shape[1:]
            self._renew(StackedStatistics.of(dict.fromkeys(gone, ClusterStatistics.nothing(k, columns - 2))))
            for client in gone:
                del self.known[client]

    def total(self) -> RunningTotal:
        """Return the current total; later updates do not change the returned object."""
        return RunningTotal.of_rows(self._total.copy(), self._total_numbers)

    def _slots_of(self, clients: tuple[ClientId, ...]) -> IntArray:
        """Return the indices of the clients in the table; cached, as rounds often have the same clients."""
        if self._latest[0] is not clients:
            self._latest = clients, np.array([self._slots[client] for client in clients], dtype=np.int64)
        return self._latest[1]

    def _renew(self, stacked: StackedStatistics) -> None:
        slots, kernel = self._slots_of(stacked.names), find_kernel(stacked.kernel)
        with stacked.lock:
            new, stamp = stacked.new(slice(None), self._stamps[slots])
            kernel.renew(self._total[0], self._total[1], self._rows, slots, new, stacked.n_threads)
        high, low = self._total_numbers
        kernel.renew_numbers(high, low, self._numbers, slots, stacked.numbers)
        self._stamps[slots] = stamp
