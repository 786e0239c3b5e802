"""What the compiled kernel keeps about a table of rows, and how much memory this may take.

Bounds belong to one run. Copies of rows and Gram matrices belong to the rows and serve all runs. They
change how long an answer takes, never the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import Rows
from fedkmeans.kernels.numba.bounds_cache import BoundsCache
from fedkmeans.kernels.numba.jit import gram
from fedkmeans.kernels.numba.jit.common import FEW_TERMS, SINGLE
from fedkmeans.kernels.numba.jit.structures import Grams
from fedkmeans.kernels.numba.row_copies import Copies
from fedkmeans.kernels.sparse import SparseRows

# Clients with more rows are scanned, not followed.
FOLLOWED_ROWS = 2**14
# Rows with fewer columns are scanned faster than followed.
FOLLOWED_COLUMNS = 17
# Bytes that may be kept: this many, or twice the size of the rows in double precision if that is more.
LEAST_MEMORY = 2**27
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

    def prepare(self, data: Any, weights: FloatArray, starts: IntArray, which: IntArray) -> None:
        """Compute the matrices of these clients that are missing."""
        arrays = self.arrays
        for client in which[arrays.scales[which] == 0]:
            part = slice(starts[client], starts[client + 1])
            X, weight, offset = data[part], weights[part], arrays.offsets[client]
            products = np.empty((len(X), len(X)))
            scale, error = gram.prepare_gram(
                X, products, arrays.lengths[part], np.empty(X.shape), np.empty(X.shape[1]), SINGLE,
                float(weight.max() / weight.min()),
            )  # fmt: skip
            arrays.pool[offset : offset + products.size] = products.ravel()
            arrays.errors[client] = error
            arrays.scales[client] = scale  # last: from now on the matrix counts as computed

    @staticmethod
    def n_bytes(rows: Rows) -> int:
        """Size of the matrices in bytes."""
        return int(4 * (rows.sizes**2).sum())


@dataclass(slots=True)
class KernelCache:
    """What the compiled kernel keeps about a table of rows.

    `weight` has length zero if rows have no weights; `ones` are made when they are needed.
    """

    data: Any
    weight: FloatArray
    n_rows: int
    grams: GramMatrices | None = None
    copies: Copies | None = None
    runs: list[BoundsCache] = field(default_factory=list)
    ones: FloatArray = field(default_factory=lambda: np.empty(0))
    followed: dict[tuple[int, bool], bool] = field(default_factory=dict)

    @property
    def weights(self) -> FloatArray:
        """A weight for each row."""
        if not len(self.weight) and not len(self.ones):
            self.ones = np.ones(self.n_rows)
        return self.weight if len(self.weight) else self.ones

    def may_follow(self, rows: Rows, k: int, with_gram: bool) -> bool:
        """The result of `may_follow`, computed once."""
        key = k, with_gram
        if key not in self.followed:
            self.followed[key] = may_follow(rows, k, with_gram)
        return self.followed[key]

    def nearest_bounds(self, centroids: FloatArray, with_gram: bool | None = None) -> BoundsCache | None:
        """Bounds of the run whose latest centroids are nearest to these; None if no run is near."""
        candidates = [
            run
            for run in self.runs
            if len(run.results.counts[0]) == len(centroids) and with_gram in (None, run.with_gram)
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
    shared = Copies.n_bytes(rows) + (GramMatrices.n_bytes(rows) if grams else 0)
    return BoundsCache.n_bytes(rows, k, with_gram) + shared


def may_follow(rows: Rows, k: int, with_gram: bool) -> bool:
    """Whether keeping bounds and answers for these rows pays off, and memory suffices."""
    m = rows.X.shape[1]
    few = k < 2 or m < FOLLOWED_COLUMNS or k * m <= FEW_TERMS
    if few or isinstance(rows.X, SparseRows):
        return False
    n_bytes = _n_bytes(rows, k, with_gram, with_gram)
    largest = int(rows.sizes.max())
    most_rows = min(FOLLOWED_ROWS, 2 * m) if with_gram else FOLLOWED_ROWS
    return largest <= most_rows and n_bytes <= allowed_bytes(rows)
