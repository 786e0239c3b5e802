"""What the fast kernel remembers about a table of rows, and how much that may be.

A *trail* belongs to one run: bounds for each row, and each client's last answer. Gram matrices belong
to the rows and serve all trails. What is remembered changes how long an answer takes, never the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import Rows
from fedkmeans.kernels.numba import compiled
from fedkmeans.kernels.numba.copies import Copies
from fedkmeans.kernels.numba.inertia_cache import InertiaCache
from fedkmeans.kernels.sparse import SparseRows

# Clients with more rows are not followed, but scanned.
FOLLOWED_ROWS = 2**14
# Fewer columns than this are scanned faster than followed.
FOLLOWED_COLUMNS = 17
# What may be remembered: this much, or twice what the rows take in double precision.
LEAST_MEMORY = 2**27
# Rounding error of single precision, in which Gram matrices are kept.
SINGLE = 2.0**-24
# Trails that are kept: runs and restarts that take turns on the same rows.
_MOST_TRAILS = 16
# Earlier centroids that a trail keeps, for clients that were not asked since: so many, of so many numbers.
_STATIONS, _STATION_NUMBERS = 64, 2**22


@dataclass(slots=True)
class Ledger:
    """Local centroids of clients: `means` (N, k, m) where `status` (N, k) says that they are their own."""

    means: FloatArray
    status: Any
    counts: FloatArray
    last_counts: FloatArray

    @classmethod
    def empty(cls, n_clients: int, k: int, m: int) -> Ledger:
        """Room for so many clients."""
        return cls(
            np.empty((n_clients, k, m)),
            np.zeros((n_clients, k), dtype=np.int8),
            np.zeros((n_clients, k)),
            np.zeros((n_clients, k)),
        )


class Trail:
    """What is remembered of one run: bounds for each row, and each client's last answer."""

    def __init__(self, rows: Rows, centroids: FloatArray, with_gram: bool) -> None:
        n, m = rows.X.shape
        k = len(centroids)
        n_clients = len(rows.starts) - 1
        self.ledger = Ledger.empty(n_clients, k, m)
        # A run is taken to go on here while its centroids stay as near as this to the latest.
        self.near = 0.1 * float(np.linalg.norm(centroids - centroids.mean(axis=0)))
        self.centroids = centroids  # the latest; which trail is found depends on them, no answer does
        self.latest = -1
        self.n_focused = 0  # of the `Copies` when its stations were scaled
        self.settings: dict[tuple[int, float, bool], int] = {}
        self.with_gram = with_gram
        self.size = self.n_bytes(rows, k, with_gram)
        self.largest = int(rows.sizes.max())
        self._inertia_cache: InertiaCache | None = None
        self.buffers: list[Any] = []  # of threads that have done their work, for the next
        n_steps, n_probes = (n, n_clients) if with_gram else (0, 0)
        self.arrays = compiled.TrailArrays(
            labels=np.zeros(n, dtype=np.int32),
            final=np.zeros(n, dtype=np.int32),
            before=np.zeros(n, dtype=np.int32),
            upper=np.empty(n),
            lower=np.empty(n * k),
            sums=np.empty(n_steps * k),
            reach=np.empty(n_steps),
            means=self.ledger.means,
            status=self.ledger.status,
            counts=self.ledger.counts,
            last_counts=self.ledger.last_counts,
            probes=np.empty((n_probes, m)),
            probe_clusters=np.zeros(n_clients, dtype=np.int64),
            known=np.zeros(n_clients, dtype=np.int64),
            again=np.zeros(n_clients, dtype=np.bool_),
            n_moves=np.full(n_clients, -1),
            stations=np.empty((n_stations(k, m), k, m), dtype=np.float32),
            seen=np.full(n_clients, -1),
        )

    @staticmethod
    def n_bytes(rows: Rows, k: int, with_gram: bool) -> int:
        """What a trail takes."""
        n, m = rows.X.shape
        n_clients = len(rows.starts) - 1
        numbers = n * (k * (1 + with_gram) + 3) + n_clients * (k * (m + 3) + m)
        inertia = InertiaCache.n_bytes(n, n_clients, k, m)
        return int(8 * numbers + 4 * n_stations(k, m) * k * m + inertia)

    def inertia_cache(self, rows: Rows) -> InertiaCache:
        """What is kept to find inertia; made when it is first needed."""
        if self._inertia_cache is None:
            self._inertia_cache = InertiaCache(rows, len(self.centroids))
        return self._inertia_cache

    def distance(self, centroids: FloatArray) -> float:
        """How far these centroids are from the latest."""
        moved = np.empty(len(centroids))
        compiled.movements(self.centroids, centroids, moved)
        return float(np.linalg.norm(moved))

    def take_buffers(self, dtype: Any) -> Any:
        """Buffers for one thread, to be put back into `buffers`."""
        try:
            return self.buffers.pop()
        except IndexError:
            k, m = self.ledger.means.shape[1:]
            scratch = compiled.new_scratch(k, m, self.largest, dtype)
            return scratch, compiled.new_room(k, m, self.largest, self.with_gram)

    def approach(self, centroids: FloatArray, copies: Copies) -> Any:
        """The centroids as compiled code needs them; they become the next station."""
        stations = self.arrays.stations
        near = copies.place(centroids, stations[(self.latest + 1) % len(stations)])
        if self.n_focused != copies.n_focused:  # earlier stations are scaled otherwise
            self.arrays.seen[:] = -1
            self.n_focused = copies.n_focused
        return near

    def arrive(self, which: IntArray, centroids: FloatArray) -> None:
        """Note that these clients were asked at these centroids, which have been approached."""
        self.latest += 1
        self.centroids = centroids
        self.arrays.seen[which] = self.latest

    def setting(self, max_local: int, tol_local: float, drop: bool) -> int:
        """A number for a way to work: an answer stands only for the same one."""
        return self.settings.setdefault(
            (max_local, tol_local, drop), len(self.settings) + compiled.ONE_STEP + 1
        )


def n_stations(k: int, m: int) -> int:
    """How many earlier centroids a trail keeps."""
    return max(2, min(_STATIONS, _STATION_NUMBERS // (k * m)))


def heaviest(weights: FloatArray) -> float:
    """The largest weight in units of the smallest."""
    return float(weights.max() / weights.min())


class Grams:
    """The Gram matrices of all clients, one after the other; filled when they are first needed."""

    def __init__(self, rows: Rows) -> None:
        sizes = rows.sizes**2
        n_clients = len(sizes)
        self.arrays = compiled.GramArrays(
            pool=np.empty(int(sizes.sum()), dtype=np.float32),
            offsets=np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64),
            lengths=np.empty(len(rows.X)),
            scales=np.zeros(n_clients),
            errors=np.zeros(n_clients),
        )

    def prepare(self, data: Any, weights: FloatArray, starts: IntArray, which: IntArray) -> None:
        """Fill the matrices of these clients that are not filled yet."""
        arrays = self.arrays
        for client in which[arrays.scales[which] == 0]:
            start, stop = starts[client], starts[client + 1]
            n, m, offset = stop - start, data.shape[1], arrays.offsets[client]
            gram = np.empty((n, n))
            scale, error = compiled.prepare_gram(
                data, start, stop, gram, arrays.lengths[start:stop], np.empty((n, m)), np.empty(m), SINGLE,
                heaviest(weights[start:stop]),
            )  # fmt: skip
            arrays.pool[offset : offset + n * n] = gram.ravel()
            arrays.errors[client] = error
            arrays.scales[client] = scale  # last: from now on the matrix is there

    @staticmethod
    def n_bytes(rows: Rows) -> int:
        """What the matrices take."""
        return int(4 * (rows.sizes**2).sum())


@dataclass(slots=True)
class Memo:
    """What the fast kernel remembers about a table of rows.

    `weight` has length zero where rows have no weights; `ones` are there for those who need some.
    """

    data: Any
    weight: FloatArray
    n_rows: int
    grams: Grams | None = None
    copies: Copies | None = None
    trails: list[Trail] = field(default_factory=list)
    ones: FloatArray = field(default_factory=lambda: np.empty(0))
    followed: dict[tuple[int, bool], bool] = field(default_factory=dict)

    @property
    def weights(self) -> FloatArray:
        """A weight for each row."""
        if not len(self.weight) and not len(self.ones):
            self.ones = np.ones(self.n_rows)
        return self.weight if len(self.weight) else self.ones

    def may_follow(self, rows: Rows, k: int, with_gram: bool) -> bool:
        """What `may_follow` says; asked in every round, and always the same."""
        key = k, with_gram
        if key not in self.followed:
            self.followed[key] = may_follow(rows, k, with_gram)
        return self.followed[key]

    def nearest_trail(self, centroids: FloatArray, with_gram: bool | None = None) -> Trail | None:
        """The trail that ends nearest to these centroids; None if none does that is of that kind."""
        near = [
            trail
            for trail in self.trails
            if len(trail.ledger.counts[0]) == len(centroids) and with_gram in (None, trail.with_gram)
        ]
        if not near:
            return None
        distance, place = min((trail.distance(centroids), place) for place, trail in enumerate(near))
        return near[place] if distance <= near[place].near else None

    @contextmanager
    def following(self, trail: Trail) -> Iterator[None]:
        """Forget the trail if anything goes wrong: what is half done must not be used."""
        try:
            yield
        except BaseException:  # also when interrupted from the keyboard
            self.trails.remove(trail)
            raise

    def find_trail(self, rows: Rows, centroids: FloatArray, with_gram: bool) -> Trail | None:
        """The trail that ends nearest to these centroids, or a new one; None if it takes too much memory."""
        k = len(centroids)
        if not self.may_follow(rows, k, with_gram):
            return None
        trail = self.nearest_trail(centroids, with_gram)
        if trail is not None:
            self.trails.remove(trail)
            self.trails.append(trail)  # the one used longest ago comes first
            return trail
        grams = with_gram or self.grams is not None
        left = allowed_bytes(rows) - _n_bytes(rows, k, with_gram, grams)
        while self.trails and (
            len(self.trails) >= _MOST_TRAILS or sum(trail.size for trail in self.trails) > left
        ):
            self.trails.pop(0)
        if left < 0:  # a trail without Gram matrices, where there is room for these or for it
            self.grams = None
        self.trails.append(Trail(rows, centroids, with_gram))
        return self.trails[-1]


def allowed_bytes(rows: Rows) -> int:
    """How much may be remembered about these rows."""
    return max(LEAST_MEMORY, 2 * 8 * rows.X.size)


def _n_bytes(rows: Rows, k: int, with_gram: bool, grams: bool) -> int:
    """What a trail takes together with what all trails share."""
    shared = Copies.n_bytes(rows) + (Grams.n_bytes(rows) if grams else 0)
    return Trail.n_bytes(rows, k, with_gram) + shared


def may_follow(rows: Rows, k: int, with_gram: bool) -> bool:
    """Whether it pays to remember bounds and answers for these rows, and memory suffices."""
    m = rows.X.shape[1]
    few = k < 2 or m < FOLLOWED_COLUMNS or k * m <= compiled.FEW_TERMS
    if few or isinstance(rows.X, SparseRows):
        return False
    n_bytes = _n_bytes(rows, k, with_gram, with_gram)
    largest = int(rows.sizes.max())
    most_rows = min(FOLLOWED_ROWS, 2 * m) if with_gram else FOLLOWED_ROWS
    return largest <= most_rows and n_bytes <= allowed_bytes(rows)
