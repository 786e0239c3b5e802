"""Bounds and answers of the clients of one run, kept between rounds.

They change how long an answer takes, never the answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import Changes, Rows, next_stamp
from fedkmeans.kernels.numba.jit import bounds, totals
from fedkmeans.kernels.numba.jit.common import ONE_STEP
from fedkmeans.kernels.numba.jit.structures import StepSettings, new_bounds

# Earlier centroids that are kept for clients that were not asked since: at most so many, and at most so
# many numbers.
_N_PAST, _PAST_NUMBERS = 64, 2**22


class InertiaCache:
    """Inertia of all clients after one local step, and the clusters that changed since the last reply."""

    def __init__(self, k: int, middles: FloatArray, squares: FloatArray) -> None:
        n_clients, m = middles.shape
        self.arrays = totals.InertiaArrays(
            labels=np.full(len(squares), -1, dtype=np.int32),
            changed=np.zeros((n_clients, k), dtype=np.bool_),
            within=np.zeros((n_clients, k)),
            away=np.zeros((n_clients, k)),
            middles=middles,
            squares=squares,
        )
        self.centroids = np.full((k, m), np.nan)  # the latest
        self.n_queries = 0
        self.moved_in = np.zeros(k, dtype=np.int64)  # latest query with another centroid
        self.seen_in = np.zeros(n_clients, dtype=np.int64)  # latest query to each client
        self.stamps = np.full(n_clients, -1, dtype=np.int64)  # of the last replies

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


class BoundsCache:
    """What is kept of one run: bounds for each row, and the last answer of each client."""

    def __init__(self, rows: Rows, centroids: FloatArray, with_gram: bool) -> None:
        n, m = rows.X.shape
        k = len(centroids)
        # Centroids that are at most this far from the latest ones are taken to continue this run.
        self.near = 0.1 * float(np.linalg.norm(centroids - centroids.mean(axis=0)))
        self.centroids = centroids  # the latest; they decide which cache is found, but change no answer
        self.latest = -1  # number of the latest query
        self.setting_numbers: dict[StepSettings, int] = {}
        self.with_gram = with_gram
        self.size = self.n_bytes(rows, k, with_gram)
        self._inertia_cache: InertiaCache | None = None
        self.arrays = new_bounds(n, len(rows.starts) - 1, k, m, with_gram, n_past(k, m))

    @staticmethod
    def n_bytes(rows: Rows, k: int, with_gram: bool) -> int:
        """Size of such a cache in bytes."""
        n, m = rows.X.shape
        n_clients = len(rows.starts) - 1
        numbers = n * (k * (1 + with_gram) + 3) + n_clients * (k * (m + 3) + m)
        past = n_past(k, m) * k * (4 * m + 8)
        inertia = 4 * n + n_clients * 17 * k
        return int(8 * numbers + past + inertia)

    def inertia_cache(self, middles: FloatArray, squares: FloatArray) -> InertiaCache:
        """What is kept to find inertia; made when it is first needed."""
        if self._inertia_cache is None:
            self._inertia_cache = InertiaCache(len(self.centroids), middles, squares)
        return self._inertia_cache

    def distance(self, centroids: FloatArray) -> float:
        """Distance of these centroids to the latest."""
        moved = np.empty(len(centroids))
        bounds.movements(self.centroids, centroids, moved)
        return float(np.linalg.norm(moved))

    def end_query(self, which: IntArray, centroids: FloatArray) -> None:
        """Note that these clients have answered to these centroids."""
        self.latest += 1
        self.centroids = centroids
        self.arrays.last_query[which] = self.latest

    def setting_number(self, settings: StepSettings) -> int:
        """A number for these settings: an answer stands only for the same ones."""
        return self.setting_numbers.setdefault(settings, len(self.setting_numbers) + ONE_STEP + 1)


def n_past(k: int, m: int) -> int:
    """How many earlier centroids are kept."""
    return max(2, min(_N_PAST, _PAST_NUMBERS // (k * m)))
