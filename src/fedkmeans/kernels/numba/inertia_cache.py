"""What is kept of each client's last reply, so that the next one costs only what has changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import Changes, Rows, next_stamp
from fedkmeans.kernels.numba.jit import totals


class InertiaCache:
    """Inertia of all clients after one local step, and the clusters that changed since the last reply."""

    def __init__(self, rows: Rows, k: int) -> None:
        n, m = rows.X.shape
        n_clients = len(rows.starts) - 1
        self.arrays = totals.InertiaArrays(
            labels=np.full(n, -1, dtype=np.int32),
            changed=np.zeros((n_clients, k), dtype=np.bool_),
            within=np.zeros((n_clients, k)),
            away=np.zeros((n_clients, k)),
            middles=np.empty((n_clients, m)),
            squares=np.full(n, -1.0),
        )
        self.centroids = np.full((k, m), np.nan)  # the latest
        self.n_queries = 0
        self.moved_in = np.zeros(k, dtype=np.int64)  # latest query with another centroid
        self.seen_in = np.zeros(n_clients, dtype=np.int64)  # latest query to each client
        self.stamps = np.full(n_clients, -1, dtype=np.int64)  # of the last replies

    @staticmethod
    def n_bytes(n: int, n_clients: int, k: int, m: int) -> int:
        """Memory that it takes."""
        return 12 * n + n_clients * (17 * k + 8 * m)

    def begin(self, which: IntArray, received: FloatArray) -> tuple[IntArray, Any]:
        """Note a query; returns the stamps of the last replies, and which centroids moved since (A, k)."""
        self.n_queries += 1
        self.moved_in[(received != self.centroids).any(axis=1)] = self.n_queries
        self.centroids = received
        moved = self.moved_in > self.seen_in[which][:, None]
        previous = self.stamps[which]
        self.stamps[which] = -1  # until `finish`: an update may be interrupted
        return previous, moved

    def finish(self, which: IntArray, previous: IntArray) -> Changes:
        """Note that the clients are up to date; returns what has changed since their last replies."""
        stamp = next_stamp()
        self.seen_in[which], self.stamps[which] = self.n_queries, stamp
        return Changes(previous, stamp, ~self.arrays.changed[which])
