"""What the compiled kernel keeps about a table of rows, and how much memory this may take.

Bounds belong to one run. Copies of rows, Gram matrices and the rows' distances to their client's mean
belong to the rows and serve all runs. They change how long an answer takes, never the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import Rows
from fedkmeans.kernels.numba.bounds_cache import BoundsCache
from fedkmeans.kernels.numba.jit import gram
from fedkmeans.kernels.numba.jit.common import FEW_TERMS, SINGLE
from fedkmeans.kernels.numba.jit.structures import ClientData, Copies, Grams
from fedkmeans.kernels.sparse import SparseRows

# Clients with more rows are scanned, not followed.
FOLLOWED_ROWS = 2**14
# Rows with fewer columns are scanned faster than followed.
FOLLOWED_COLUMNS = 17
# Bytes that may be kept: this many, or twice the size of the rows in double precision if that is more.
LEAST_MEMORY = 2**27
# The range of bytes is found from so many rows, and covers at most so many standard deviations around the
# mean.
_SAMPLE, _DEVIATIONS = 256, 20
# In place of `KernelCache.spread`, where inertia is not needed.
NO_SPREAD = np.empty((0, 0)), np.empty(0)
# Bounds of so many runs and restarts that take turns on the same rows are kept.
_MOST_RUNS = 16


class GramMatrices:
    """The Gram matrices of all clients, one after the other; computed when they are first needed."""

    def __init__(self, rows: Rows) -> None:
        sizes = rows.sizes**2
        n_clients = len(sizes)
        self.arrays = Grams(
            pool=np.empty(int(sizes.sum()), dtype=np.float32),
            offsets=np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64),
            lengths=np.empty(len(rows.X)),
            scales=np.zeros(n_clients),
            errors=np.zeros(n_clients),
        )

    def prepare(self, data: ClientData, which: IntArray) -> None:
        """Compute the matrices of these clients that are missing."""
        arrays = self.arrays
        for client in which[arrays.scales[which] == 0]:
            part = slice(data.starts[client], data.starts[client + 1])
            X, weight, offset = data.X[part], data.weight[part], arrays.offsets[client]
            products = np.empty((len(X), len(X)))
            scale, error = gram.prepare_gram(
                X, products, arrays.lengths[part], SINGLE, float(weight.max() / weight.min())
            )
            arrays.pool[offset : offset + products.size] = products.ravel()
            arrays.errors[client] = error
            arrays.scales[client] = scale  # last: from now on the matrix counts as computed


@dataclass
class KernelCache:
    """What the compiled kernel keeps about a table of rows.

    `data` are the rows for compiled code; their weight has length zero if there are no weights.
    """

    data: ClientData
    grams: GramMatrices | None = None
    runs: list[BoundsCache] = field(default_factory=list)
    followed: dict[tuple[int, bool], bool] = field(default_factory=dict)

    @cached_property
    def weighted(self) -> ClientData:
        """The rows with a weight for each."""
        ones = np.ones(0 if len(self.data.weight) else self.data.starts[-1])
        return self.data._replace(weight=ones) if len(ones) else self.data

    @cached_property
    def copies(self) -> Copies:
        """Copies of the rows as bytes, which are filled in when they are first needed."""
        n, m = self.data.X.shape
        # 256 evenly spaced numbers over the range of some rows except outliers. If something overflows,
        # minimum and maximum are used, or any spacing that is positive and has a finite inverse.
        numbers = np.asarray(self.data.X[:: max(1, n // _SAMPLE)], dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            middle, away = numbers.mean(), _DEVIATIONS * numbers.std()
            lowest, highest = np.fmax(numbers.min(), middle - away), np.fmin(numbers.max(), middle + away)
            spacing = float(highest - lowest) / 255
        if self.data.X.dtype == np.uint8:
            lowest, spacing = 0.0, 1.0
        return Copies(
            filled=np.zeros(len(self.data.starts) - 1, dtype=np.bool_),
            rows=np.empty((n, m), dtype=np.uint8),
            squares=np.empty(n, dtype=np.int64),
            misses=np.empty(n),
            lowest=float(lowest),
            spacing=spacing if 1e-300 < spacing < np.inf else 1.0,
        )

    @cached_property
    def spread(self) -> tuple[FloatArray, FloatArray]:
        """`middles` and `squares` of `InertiaArrays`, which are filled in when they are first needed."""
        n, m = self.data.X.shape
        return np.empty((len(self.data.starts) - 1, m)), np.full(n, -1.0)

    def may_follow(self, rows: Rows, k: int, with_gram: bool) -> bool:
        """Whether keeping bounds and answers for these rows pays off, and memory suffices; found once."""
        if (k, with_gram) not in self.followed:
            m = rows.X.shape[1]
            few = k < 2 or m < FOLLOWED_COLUMNS or k * m <= FEW_TERMS or isinstance(rows.X, SparseRows)
            most_rows = min(FOLLOWED_ROWS, 2 * m) if with_gram else FOLLOWED_ROWS
            fits = _n_bytes(rows, k, with_gram, with_gram) <= allowed_bytes(rows)
            self.followed[k, with_gram] = not few and rows.sizes.max() <= most_rows and fits
        return self.followed[k, with_gram]

    def nearest_bounds(self, centroids: FloatArray, with_gram: bool | None = None) -> BoundsCache | None:
        """Bounds of the run whose latest centroids are nearest to these; None if no run is near."""
        candidates = [
            run
            for run in self.runs
            if len(run.centroids) == len(centroids) and with_gram in (None, run.with_gram)
        ]
        if not candidates:
            return None
        distance, place = min((run.distance(centroids), place) for place, run in enumerate(candidates))
        return candidates[place] if distance <= candidates[place].near else None

    @contextmanager
    def following(self, bounds: BoundsCache) -> Iterator[None]:
        """Drop the bounds if anything goes wrong: they may be half updated."""
        try:
            yield
        except BaseException:  # also when interrupted from the keyboard
            self.runs.remove(bounds)
            raise

    def find_bounds(self, rows: Rows, centroids: FloatArray, with_gram: bool) -> BoundsCache | None:
        """Bounds of the nearest run, or of a new one; None if they take too much memory."""
        k = len(centroids)
        if not self.may_follow(rows, k, with_gram):
            return None
        bounds = self.nearest_bounds(centroids, with_gram)
        if bounds is not None:
            self.runs.remove(bounds)
            self.runs.append(bounds)  # the least recently used comes first
            return bounds
        grams = with_gram or self.grams is not None
        left = allowed_bytes(rows) - _n_bytes(rows, k, with_gram, grams)
        while self.runs and (len(self.runs) >= _MOST_RUNS or sum(run.size for run in self.runs) > left):
            self.runs.pop(0)
        if left < 0:  # without Gram matrices there is enough memory
            self.grams = None
        self.runs.append(BoundsCache(rows, centroids, with_gram))
        return self.runs[-1]


def allowed_bytes(rows: Rows) -> int:
    """How many bytes may be kept about these rows."""
    return max(LEAST_MEMORY, 2 * 8 * rows.X.size)


def _n_bytes(rows: Rows, k: int, with_gram: bool, grams: bool) -> int:
    """Bytes of the bounds of a run together with what all runs share."""
    n, m = rows.X.shape
    of_grams = 4 * int((rows.sizes**2).sum()) if grams else 0
    shared = n * (m + 24) + 8 * m * (len(rows.starts) - 1)
    return BoundsCache.n_bytes(rows, k, with_gram) + int(shared) + of_grams
