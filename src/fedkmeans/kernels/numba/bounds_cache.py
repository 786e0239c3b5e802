"""Bounds and answers of the clients of one run, kept between rounds.

They change how long an answer takes, never the answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import Rows
from fedkmeans.kernels.numba.inertia_cache import InertiaCache
from fedkmeans.kernels.numba.jit import bounds, buffers
from fedkmeans.kernels.numba.jit.common import ONE_STEP
from fedkmeans.kernels.numba.jit.structures import Bounds, LocalResults, StepSettings
from fedkmeans.kernels.numba.row_copies import Copies

# Earlier centroids that are kept for clients that were not asked since: at most so many, and at most so
# many numbers.
_N_PAST, _PAST_NUMBERS = 64, 2**22


def empty_results(n_clients: int, k: int, m: int, inertia: bool = False) -> LocalResults:
    """Arrays for the results of so many clients."""
    n_inertia = n_clients if inertia else 0
    return LocalResults(
        means=np.empty((n_clients, k, m)),
        status=np.zeros((n_clients, k), dtype=np.int8),
        counts=np.zeros((n_clients, k)),
        last_counts=np.zeros((n_clients, k)),
        inertia=np.zeros((n_inertia, k)),
        received_inertia=np.zeros(n_inertia),
    )


class BoundsCache:
    """What is kept of one run: bounds for each row, and the last answer of each client."""

    def __init__(self, rows: Rows, centroids: FloatArray, with_gram: bool) -> None:
        n, m = rows.X.shape
        k = len(centroids)
        n_clients = len(rows.starts) - 1
        self.results = empty_results(n_clients, k, m)
        # Centroids that are at most this far from the latest ones are taken to continue this run.
        self.near = 0.1 * float(np.linalg.norm(centroids - centroids.mean(axis=0)))
        self.centroids = centroids  # the latest; they decide which cache is found, but change no answer
        self.latest = -1  # number of the latest query
        self.n_scalings = 0  # of the row copies when the past centroids were scaled
        self.setting_numbers: dict[StepSettings, int] = {}
        self.with_gram = with_gram
        self.size = self.n_bytes(rows, k, with_gram)
        self.largest = int(rows.sizes.max())
        self._inertia_cache: InertiaCache | None = None
        self.buffers: list[Any] = []  # of threads that have finished, for the next ones
        n_steps, n_probes = (n, n_clients) if with_gram else (0, 0)
        self.arrays = Bounds(
            labels=np.zeros(n, dtype=np.int32),
            final=np.zeros(n, dtype=np.int32),
            before=np.zeros(n, dtype=np.int32),
            upper=np.empty(n),
            lower=np.empty(n * k),
            sums=np.empty(n_steps * k),
            reach=np.empty(n_steps),
            results=self.results,
            probes=np.empty((n_probes, m)),
            probe_clusters=np.zeros(n_clients, dtype=np.int64),
            answered=np.zeros(n_clients, dtype=np.int64),
            depends=np.zeros(n_clients, dtype=np.bool_),
            n_moves=np.full(n_clients, -1),
            past_centroids=np.empty((n_past(k, m), k, m), dtype=np.float32),
            last_query=np.full(n_clients, -1),
        )

    @staticmethod
    def n_bytes(rows: Rows, k: int, with_gram: bool) -> int:
        """Size of such a cache in bytes."""
        n, m = rows.X.shape
        n_clients = len(rows.starts) - 1
        numbers = n * (k * (1 + with_gram) + 3) + n_clients * (k * (m + 3) + m)
        inertia = InertiaCache.n_bytes(n, n_clients, k, m)
        return int(8 * numbers + 4 * n_past(k, m) * k * m + inertia)

    def inertia_cache(self, rows: Rows) -> InertiaCache:
        """What is kept to find inertia; made when it is first needed."""
        if self._inertia_cache is None:
            self._inertia_cache = InertiaCache(rows, len(self.centroids))
        return self._inertia_cache

    def distance(self, centroids: FloatArray) -> float:
        """Distance of these centroids to the latest."""
        moved = np.empty(len(centroids))
        bounds.movements(self.centroids, centroids, moved)
        return float(np.linalg.norm(moved))

    def take_buffers(self, dtype: Any) -> Any:
        """Buffers for one thread, which puts them back into `buffers`."""
        try:
            return self.buffers.pop()
        except IndexError:
            k, m = self.results.means.shape[1:]
            scratch = buffers.new_scratch(k, m, self.largest, dtype)
            return scratch, buffers.new_workspace(k, m, self.largest, self.with_gram)

    def start_query(self, centroids: FloatArray, copies: Copies) -> Any:
        """The centroids as compiled code needs them; they become the next past centroids."""
        past = self.arrays.past_centroids
        near = copies.prepare(centroids, past[(self.latest + 1) % len(past)])
        if self.n_scalings != copies.n_scalings:  # the earlier ones are scaled differently
            self.arrays.last_query[:] = -1
            self.n_scalings = copies.n_scalings
        return near

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
