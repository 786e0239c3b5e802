"""The fast kernel: compiled, in threads, with memory of how each client's last local steps went.

Three ways through a client's rows, all to the same numbers:

- *scan*: every step is one pass over the rows; for small problems and for clients too large for
  anything else. Memory for a block of rows and the centroids, whatever the number of rows.
- *follow*: the first labels from bounds that are kept from the last time (see `compiled`), and for
  several local steps the Gram matrix of the client's rows. Memory up to that of the rows themselves.
- clients with very many rows are cut into parts, which several threads scan.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedkmeans.clustering import BETTER, best_of, first_draws, kmeans_plusplus, same_row
from fedkmeans.kernels import compiled, plain
from fedkmeans.kernels.protocol import Outcome, Rows
from fedkmeans.lloyd import means, relocate_empty
from fedkmeans.threads import in_threads, single_products, split_evenly
from fedkmeans.typing import DataArray, FloatArray, IntArray

# Clients with more numbers are scanned in this many parts, whatever the number of threads, so that
# the sums are rounded in the same way.
_LARGE, _N_PARTS = 2**20, 16
# Clients with more rows are not followed, but scanned.
_FOLLOWED_ROWS = 2**14
# Fewer columns (or distance terms) than this are scanned faster than followed.
_FOLLOWED_COLUMNS = 17
# Rows up to which k-means on one client's rows is done on their Gram matrix, in double precision.
_GRAM_ROWS = 2048
# What may be remembered: this much, or as much as the rows in double precision take, twice.
_LEAST_MEMORY = 2**27
# Numbers in the local centroids that are held at a time when nothing is remembered.
_HELD = 2**22
# Trails that are kept: runs and restarts that take turns on the same rows.
_MOST_TRAILS = 16
# Earlier centroids that a trail keeps, for clients that were not asked since.
_STATIONS = 64

_NO_LABELS = np.empty(0, dtype=np.int32)
_NOTHING = np.empty(0)
_NO_CLUSTERS = np.empty((0, 0))


def as_data(X: DataArray) -> DataArray:
    """The rows in a form that the compiled code knows: as they are, wherever that is possible.

    Kernels only read; an array that must not be written to is passed under a view without that
    mark, since for such arrays everything would be compiled once more.
    """
    if X.dtype.kind == "b":
        X = X.view(np.uint8)
    elif X.dtype.kind == "f" and X.dtype.itemsize not in (4, 8):
        X = X.astype(np.float32 if X.dtype.itemsize < 4 else np.float64)
    X = np.ascontiguousarray(X, dtype=X.dtype.newbyteorder("="))
    return X if X.flags.writeable else np.asarray(_Writeable(X))


class _Writeable:
    def __init__(self, array: DataArray) -> None:
        self.array = array  # kept alive as long as the view
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def _double(values: FloatArray | None) -> FloatArray:
    """A new array: contiguous, and not marked read-only, for which all would be compiled once more."""
    return _NOTHING if values is None else np.array(values, dtype=np.float64, order="C")


def _parts(start: int, stop: int, m: int) -> list[tuple[int, int]]:
    n = stop - start
    n_parts = _N_PARTS if n * m > _LARGE else 1
    edges = [start + n * part // n_parts for part in range(n_parts + 1)]
    return list(zip(edges[:-1], edges[1:], strict=True))


def scan_rows(
    data: DataArray,
    weight: FloatArray,
    start: int,
    stop: int,
    centroids: FloatArray,
    n_threads: int,
    labels: Any = _NO_LABELS,
    sums: bool = False,
    inertia: bool = False,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """One pass over rows: labels, sums (k, m), counts (k,) and inertia (k,), as far as they are wanted."""
    k, m = centroids.shape

    def work(first: int, last: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        part = (
            np.zeros((k, m)) if sums else _NO_CLUSTERS,
            np.zeros(k) if sums else _NOTHING,
            np.zeros(k) if inertia else _NOTHING,
        )
        scratch = compiled.new_scratch(k, m, data.dtype)
        compiled.scan(data, weight, first, last, centroids, scratch, labels, *part)
        return part

    total, *others = in_threads(work, _parts(start, stop, m), n_threads)
    for part in others:
        for numbers, more in zip(total, part, strict=True):
            numbers += more
    return total


@dataclass(slots=True)
class Ledger:
    """Local centroids of clients: `means` (N, k, m) where `status` (N, k) says that they are their own."""

    means: FloatArray
    status: Any
    counts: FloatArray
    last_counts: FloatArray

    @classmethod
    def empty(cls, n_clients: int, k: int, m: int) -> Ledger:
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
        self.stations: OrderedDict[int, FloatArray] = OrderedDict()
        self.latest = -1
        self.seen = np.full(n_clients, -1)  # the station at which each client was last asked
        self.settings: dict[tuple[int, float, bool], int] = {}
        self.with_gram = with_gram
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
        )

    @staticmethod
    def n_bytes(rows: Rows, k: int, with_gram: bool) -> int:
        n, m = rows.X.shape
        n_clients = len(rows.starts) - 1
        return 8 * (n * (k * (1 + with_gram) + 3) + n_clients * (k * (m + 3) + m))

    def distance(self, centroids: FloatArray) -> float:
        """How far these centroids are from the latest."""
        moved = np.empty(len(centroids))
        compiled.movements(self.stations[self.latest], centroids, moved)
        return float(np.linalg.norm(moved))

    def drifts(self, which: IntArray, centroids: FloatArray) -> tuple[FloatArray, IntArray]:
        """How far each centroid has moved since a client was asked: rows (…, k), and each client's row."""
        seen, drift_of = np.unique(self.seen[which], return_inverse=True)
        drift = np.empty((len(seen), len(centroids)))
        for place, station in enumerate(seen):
            if int(station) in self.stations:
                compiled.movements(self.stations[int(station)], centroids, drift[place])
            else:
                drift_of[drift_of == place] = -1
        return drift, drift_of.astype(np.int64)

    def arrive(self, which: IntArray, centroids: FloatArray) -> None:
        """Note that these clients were asked at these centroids."""
        self.latest += 1
        self.stations[self.latest] = centroids
        while len(self.stations) > _STATIONS:
            self.stations.popitem(last=False)
        self.seen[which] = self.latest

    def setting(self, max_local: int, tol_local: float, drop: bool) -> int:
        """A number for a way to work: an answer stands only for the same one."""
        return self.settings.setdefault(
            (max_local, tol_local, drop), len(self.settings) + compiled.ONE_STEP + 1
        )


class Grams:
    """The Gram matrices of all clients, one after the other; filled when they are first needed."""

    def __init__(self, rows: Rows) -> None:
        sizes = np.diff(rows.starts) ** 2
        n_clients = len(sizes)
        self.arrays = compiled.GramArrays(
            pool=np.empty(int(sizes.sum()), dtype=np.float32),
            offsets=np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64),
            lengths=np.empty(len(rows.X)),
            scales=np.zeros(n_clients),
            errors=np.zeros(n_clients),
        )

    @staticmethod
    def n_bytes(rows: Rows) -> int:
        return int(4 * (np.diff(rows.starts) ** 2).sum())


_NO_GRAMS = compiled.GramArrays(
    np.empty(0, np.float32), np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0)
)


@dataclass(slots=True)
class Memo:
    """What the fast kernel remembers about a table of rows."""

    data: DataArray
    weight: FloatArray
    grams: Grams | None = None
    trails: list[Trail] = field(default_factory=list)

    def find_trail(self, rows: Rows, centroids: FloatArray, with_gram: bool) -> Trail | None:
        """The trail that ends nearest to these centroids, or a new one; None if it would take too much memory."""
        if not may_follow(rows, centroids, with_gram):
            return None
        k = len(centroids)
        near = [
            trail
            for trail in self.trails
            if len(trail.ledger.counts[0]) == k and trail.with_gram == with_gram
        ]
        if near:
            distance, place = min((trail.distance(centroids), place) for place, trail in enumerate(near))
            trail = near[place]
            if distance <= trail.near:
                self.trails.remove(trail)
                self.trails.append(trail)  # the one used longest ago comes first
                return trail
        allowed = _allowed(rows) - (Grams.n_bytes(rows) if with_gram else 0)
        most = min(_MOST_TRAILS, max(1, allowed // Trail.n_bytes(rows, k, with_gram)))
        del self.trails[: max(0, len(self.trails) - most + 1)]
        self.trails.append(Trail(rows, centroids, with_gram))
        return self.trails[-1]


def _allowed(rows: Rows) -> int:
    return max(_LEAST_MEMORY, 2 * 8 * rows.X.size)


def may_follow(rows: Rows, centroids: FloatArray, with_gram: bool) -> bool:
    """Whether it pays to remember bounds and answers for these rows, and memory suffices."""
    k, m = centroids.shape
    if m < _FOLLOWED_COLUMNS or k < 2:
        return False
    n_bytes = Trail.n_bytes(rows, k, with_gram) + (Grams.n_bytes(rows) if with_gram else 0)
    largest = int(np.diff(rows.starts).max())
    most_rows = min(_FOLLOWED_ROWS, 2 * m) if with_gram else _FOLLOWED_ROWS
    return largest <= most_rows and n_bytes <= _allowed(rows)


@dataclass(slots=True)
class Found:
    """An `Outcome` in a ledger, of which client a's part is at places[a]."""

    ledger: Ledger
    places: IntArray
    received: FloatArray
    n_threads: int
    inertia: FloatArray | None = None
    received_inertia: FloatArray | None = None

    @property
    def counts(self) -> FloatArray:
        return self.ledger.counts[self.places]

    @property
    def last_counts(self) -> FloatArray:
        return self.ledger.last_counts[self.places]

    def centroids(self, place: int) -> FloatArray:
        """Local centroids of one client."""
        client = self.places[place]
        own = self.ledger.status[client] != compiled.AS_RECEIVED
        return np.where(own[:, None], self.ledger.means[client], self.received)

    def add_to(self, weights: FloatArray, weighted_sum: FloatArray, plain_sum: FloatArray) -> None:
        """Add Σ ω c and Σ c, several clusters at a time."""
        ledger, k = self.ledger, len(self.received)
        weights = _double(weights)
        n_threads = self.n_threads if self.received.size * len(self.places) > _LARGE else 1
        edges = [k * part // n_threads for part in range(n_threads + 1)]
        in_threads(
            lambda first, last: compiled.add_up(
                weights,
                self.places,
                self.received,
                ledger.means,
                ledger.status,
                first,
                last,
                weighted_sum,
                plain_sum,
            ),
            list(zip(edges[:-1], edges[1:], strict=True)),
            n_threads,
        )


class GramKMeans:
    """k-means on few rows, by their Gram matrix; several starts share it."""

    def __init__(self, data: DataArray, weight: FloatArray) -> None:
        n, m = data.shape
        self.data, self.weight = data, weight
        self.gram, self.lengths = np.empty((n, n)), np.empty(n)
        with single_products():
            self.error, self.noise = (
                compiled.prepare_gram(data, self.gram, self.lengths, np.empty((n, m)), np.empty(m)),
                same_row(m),
            )

    def run(self, n_clusters: int, rng: np.random.Generator, max_iter: int) -> FloatArray:
        """Centroids (k, m) from one start."""
        n, m = self.data.shape
        weight = self.weight if len(self.weight) else np.ones(n)
        (first,), uniforms = first_draws(weight, n_clusters, rng)
        centroids, chosen = np.empty((n_clusters, m)), np.full(n_clusters, first)
        compiled.gram_plusplus(self.gram, self.lengths, weight, uniforms, self.noise, BETTER, chosen)
        room = compiled.new_room(n_clusters, m, n, with_gram=True)
        compiled.gram_lloyd(
            self.data, self.weight, self.gram, self.lengths, self.error, chosen, max_iter, centroids, room
        )
        return centroids


class Fast:
    """See `Kernel`."""

    name = "numba"

    def assign(self, X: DataArray, centroids: FloatArray, n_threads: int = 1) -> IntArray:
        """Label of the nearest centroid for every row."""
        labels = np.empty(len(X), dtype=np.int32)
        scan_rows(as_data(X), _NOTHING, 0, len(X), _double(centroids), n_threads, labels)
        return labels.astype(np.intp)

    def lloyd_step(
        self,
        X: DataArray,
        centroids: FloatArray,
        sample_weight: FloatArray | None = None,
        n_threads: int = 1,
    ) -> tuple[FloatArray, FloatArray]:
        """Sums and counts per cluster."""
        weight = _double(sample_weight)
        sums, counts, _ = scan_rows(as_data(X), weight, 0, len(X), _double(centroids), n_threads, sums=True)
        return sums, counts

    def inertia(
        self,
        X: DataArray,
        centroids: FloatArray,
        sample_weight: FloatArray | None = None,
        n_threads: int = 1,
    ) -> float:
        """Sum of squared distances to the nearest centroid."""
        weight = _double(sample_weight)
        found = scan_rows(as_data(X), weight, 0, len(X), _double(centroids), n_threads, inertia=True)
        return float(found[2].sum())

    def lloyd(
        self, X: DataArray, centroids: FloatArray, max_iter: int, sample_weight: FloatArray | None = None
    ) -> FloatArray:
        """Lloyd's steps until no label changes."""
        data, weight = as_data(X), _double(sample_weight)
        before, labels = np.full(len(data), -1, dtype=np.int32), np.empty(len(data), dtype=np.int32)
        for _ in range(max_iter):
            sums, counts, _ = scan_rows(data, weight, 0, len(data), _double(centroids), 1, labels, sums=True)
            if np.array_equal(labels, before):
                break
            before, labels = labels, before
            _, sums, counts = relocate_empty(X, centroids, before, sums, counts, sample_weight)
            centroids = means(sums, counts, otherwise=centroids)
        return centroids

    def kmeans(
        self,
        X: DataArray,
        n_clusters: int,
        rng: np.random.Generator,
        n_init: int = 1,
        max_iter: int = 300,
        sample_weight: FloatArray | None = None,
    ) -> FloatArray:
        """k-means from `n_init` starts; on the Gram matrix where there are few rows."""
        n, m = X.shape
        run = GramKMeans(as_data(X), _double(sample_weight)).run if n <= min(2 * m, _GRAM_ROWS) else None

        def once() -> FloatArray:
            if run is not None:
                return run(n_clusters, rng, max_iter)
            start = kmeans_plusplus(X, n_clusters, rng, sample_weight)
            return self.lloyd(X, start, max_iter, sample_weight)

        return best_of(n_init, once, lambda centroids: self.inertia(X, centroids, sample_weight))

    def local_steps(
        self,
        rows: Rows,
        which: IntArray,
        centroids: FloatArray,
        *,
        max_local: int,
        tol_local: float,
        empty_clusters: str,
        inertia: bool = False,
        n_threads: int = 1,
    ) -> Outcome:
        """Local steps of some clients; relocation of empty clusters is left to the plain version."""
        if empty_clusters == "relocate":
            return plain.KERNEL.local_steps(
                rows,
                which,
                centroids,
                max_local=max_local,
                tol_local=tol_local,
                empty_clusters=empty_clusters,
                inertia=inertia,
                n_threads=n_threads,
            )
        work = Work(
            rows, _memo(rows), which, _double(centroids), max_local, tol_local, empty_clusters == "drop",
            inertia, n_threads,
        )  # fmt: skip
        trail = work.memo.find_trail(rows, work.received, with_gram=max_local > 1)
        return work.scan() if trail is None else work.follow(trail)

    def at_a_time(self, rows: Rows, centroids: FloatArray) -> int:
        """All where answers are remembered, else as many as 32 MB of local centroids."""
        if may_follow(rows, centroids, with_gram=True):
            return len(rows.starts)
        return max(1, _HELD // centroids.size)


def _memo(rows: Rows) -> Memo:
    if rows.memo is None:
        rows.memo = Memo(as_data(rows.X), _double(rows.sample_weight))
    memo: Memo = rows.memo
    return memo


@dataclass(slots=True)
class Work:
    """Local steps of some clients, and two ways to do them."""

    rows: Rows
    memo: Memo
    which: IntArray
    received: FloatArray
    max_local: int
    tol_local: float
    drop: bool
    inertia: bool
    n_threads: int

    @property
    def sizes(self) -> IntArray:
        """Rows of each of the clients."""
        return np.diff(self.rows.starts)[self.which]

    def _in_threads(self, function: Any) -> None:
        """Call a function with parts of the clients' places that take about as long."""
        sizes = self.sizes.tolist()
        n_threads = self.n_threads if sum(sizes) * self.received.size > _LARGE // 4 else 1
        parts = split_evenly(sizes, n_threads if n_threads == 1 else 4 * n_threads)
        in_threads(function, [(part,) for part in parts], n_threads)

    def follow(self, trail: Trail) -> Found:
        """With what is remembered of the last time."""
        memo, rows = self.memo, self.rows
        if trail.with_gram and memo.grams is None:
            memo.grams = Grams(rows)
        grams = _NO_GRAMS if memo.grams is None else memo.grams.arrays
        drift, drift_of = trail.drifts(self.which, self.received)
        setting = trail.setting(self.max_local, self.tol_local, self.drop)
        largest, (k, m) = int(self.sizes.max()), self.received.shape
        new_gram = trail.with_gram and not grams.scales[self.which].all()

        def work(part: slice) -> None:
            scratch = compiled.new_scratch(k, m, memo.data.dtype)
            room = compiled.new_room(k, m, largest, trail.with_gram, new_gram)
            which = self.which[part]
            compiled.follow_labels(
                memo.data, rows.starts, which, drift, drift_of[part], self.received, trail.arrays, scratch, room
            )  # fmt: skip
            if self.max_local == 1:
                compiled.follow_step(memo.data, memo.weight, rows.starts, which, trail.arrays, room)
            else:
                compiled.follow_steps(
                    memo.data, memo.weight, rows.starts, which, self.received, self.max_local, self.tol_local,
                    self.drop, setting, grams, trail.arrays, room,
                )  # fmt: skip

        self._in_threads(work)
        trail.arrive(self.which, self.received)
        found = Found(trail.ledger, self.which, self.received, self.n_threads)
        if self.inertia:
            self._add_inertia(trail, found)
        return found

    def _add_inertia(self, trail: Trail, found: Found) -> None:
        n_clients, k = trail.ledger.counts.shape
        inertia, received_inertia = np.empty((n_clients, k)), np.empty(n_clients)

        def work(part: slice) -> None:
            compiled.inertia_of_clients(
                self.memo.data, self.memo.weight, self.rows.starts, self.which[part], self.received,
                trail.arrays.labels, trail.arrays.final, trail.ledger.means, inertia, received_inertia,
            )  # fmt: skip

        self._in_threads(work)
        found.inertia, found.received_inertia = inertia[self.which], received_inertia[self.which]

    def scan(self) -> Found:
        """One pass over the rows a step; nothing is remembered."""
        k, m = self.received.shape
        n_clients = len(self.which)
        ledger = Ledger.empty(n_clients, k, m)
        inertia = np.zeros((n_clients if self.inertia else 0, k))
        received_inertia = np.zeros(n_clients if self.inertia else 0)
        places = np.arange(n_clients)
        large = self.sizes * m > _LARGE

        def work(some: IntArray) -> None:
            scratch = compiled.new_scratch(k, m, self.memo.data.dtype)
            compiled.scan_clients(
                self.memo.data, self.memo.weight, self.rows.starts, self.which[some], some, self.received,
                self.max_local, self.tol_local, self.drop, scratch, compiled.new_room(k, m, 0), ledger.means,
                ledger.status, ledger.counts, ledger.last_counts, inertia, received_inertia,
            )  # fmt: skip

        small = places[~large]
        if len(small):
            parts = split_evenly(self.sizes[small].tolist(), 4 * self.n_threads if self.n_threads > 1 else 1)
            in_threads(work, [(small[part],) for part in parts], self.n_threads)
        for place in places[large]:
            self._scan_large(int(place), ledger, inertia, received_inertia)
        found = Found(ledger, places, self.received, self.n_threads)
        if self.inertia:
            found.inertia, found.received_inertia = inertia, received_inertia
        return found

    def _scan_large(
        self, place: int, ledger: Ledger, inertia: FloatArray, received_inertia: FloatArray
    ) -> None:
        """Local steps of one client with many rows, several threads on each step."""
        client = self.which[place]
        start, stop = self.rows.starts[client], self.rows.starts[client + 1]
        active, local = np.arange(len(self.received)), self.received
        for step in range(self.max_local):
            sums, counts, own = scan_rows(
                self.memo.data, self.memo.weight, start, stop, local, self.n_threads, sums=True,
                inertia=self.inertia,
            )  # fmt: skip
            if step == 0:
                ledger.counts[place] = counts
                if self.inertia:
                    received_inertia[place] = own.sum()
                if self.drop:
                    active = np.flatnonzero(counts)
                    local, sums, counts = local[active], sums[active], counts[active]
                    own = own[active] if self.inertia else own
            moved = means(sums, counts, otherwise=local)
            away = ((moved - local) ** 2).sum(axis=1)
            local = moved
            if np.sqrt(away.sum()) < self.tol_local:
                break
        ledger.status[place] = compiled.MEAN
        ledger.means[place] = self.received
        ledger.means[place, active] = local
        ledger.last_counts[place, active] = counts
        if self.inertia:
            inertia[place, active] = np.maximum(own - counts * away, 0.0)


KERNEL = Fast()
