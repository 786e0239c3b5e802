"""One exchange's local steps of some clients, in threads: by following the last time, or by scanning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from fedkmeans._utils.threads import in_threads, split_evenly
from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import Changes, Rows
from fedkmeans.kernels.numba import ahead, compiled, totals
from fedkmeans.kernels.numba.bounds_cache import Grams, Ledger, Memo, Trail
from fedkmeans.kernels.numba.copies import Copies
from fedkmeans.kernels.numba.scanning import are_large, as_double, new_scratch, scan_rows
from fedkmeans.kernels.reference.lloyd import means

# Products of numbers that take long enough to be shared with another thread, and the part of them that
# is about what a client takes that was asked before.
WORTH_THREADS, _FOLLOWED = 2**20, 1 / 256


@dataclass(slots=True)
class Found:
    """An `Outcome` in a ledger, of which client a's part is at places[a]."""

    ledger: Ledger
    places: IntArray
    received: FloatArray
    n_threads: int
    inertia: FloatArray | None = None
    received_inertia: FloatArray | None = None
    changes: Changes | None = None

    @property
    def counts(self) -> FloatArray:
        """Of the first step."""
        return self.ledger.counts[self.places]

    @property
    def last_counts(self) -> FloatArray:
        """Of the last step."""
        return self.ledger.last_counts[self.places]

    def centroids(self, place: int) -> FloatArray:
        """Local centroids of one client."""
        client = self.places[place]
        own = self.ledger.status[client] != compiled.AS_RECEIVED
        return np.where(own[:, None], self.ledger.means[client], self.received)

    def add_to(self, weights: FloatArray, weighted_sum: FloatArray, plain_sum: FloatArray) -> None:
        """Add Σ ω c and Σ c, several clusters at a time."""
        ledger, weights = self.ledger, as_double(weights)
        by_clusters(
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
            len(self.received),
            self.received.size * len(self.places),
            self.n_threads,
        )

    def stacked(self) -> tuple[FloatArray, IntArray]:
        """Local centroids of clusters with points, where the kernel keeps them."""
        return self.ledger.means, self.places


def by_clusters(function: Callable[[int, int], None], k: int, n_numbers: int, n_threads: int) -> None:
    """Call a function that adds up with the first and last of some clusters, in threads if it pays."""
    # Eight times as many: adding up only waits for memory.
    n_threads = n_threads if n_numbers > 8 * WORTH_THREADS else 1
    edges = [k * part // n_threads for part in range(n_threads + 1)]
    in_threads(function, list(pairwise(edges)), n_threads)


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

    sizes: IntArray = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = self.rows.sizes[self.which]

    def _in_threads(self, function: Any, places: IntArray, share: Any = 1.0) -> None:
        """Call a function with parts of the places that take about as long; little work in one thread.

        `share` is the part of all products that is computed, for each place or for all.
        """
        sizes = self.sizes[places]
        n_threads = self.n_threads if (sizes * share).sum() * self.received.size > WORTH_THREADS else 1
        parts = split_evenly(sizes.tolist(), n_threads)
        in_threads(function, [(places[part],) for part in parts], n_threads)

    def _label_follower(self, trail: Trail) -> Callable[[IntArray, Any, Any], None]:
        """A function that finds first labels of some clients, in any thread."""
        memo = self.memo
        if memo.copies is None:
            memo.copies = Copies(memo.data, len(self.rows.starts) - 1)
        near = trail.approach(self.received, memo.copies)
        copies = memo.copies.arrays

        def follow(which: IntArray, scratch: Any, room: Any) -> None:
            compiled.follow_labels(
                memo.data, self.rows.starts, which, self.received, trail.latest, copies, near,
                trail.arrays, scratch, room,
            )  # fmt: skip

        return follow

    def score(self, trail: Trail) -> FloatArray:
        """Sum of squared distances to the received centroids, for each client."""
        memo, scores, follow = self.memo, np.empty(len(self.which)), self._label_follower(trail)

        def work(part: IntArray) -> None:
            scratch, room = trail.take_buffers(memo.data.dtype)
            which = self.which[part]
            follow(which, scratch, room)
            found = np.empty(len(part))
            compiled.score_clients(
                memo.data, memo.weights, self.rows.starts, which, self.received, trail.arrays, found
            )
            scores[part] = found
            trail.buffers.append((scratch, room))

        self._in_threads(work, np.arange(len(self.which)))
        trail.arrive(self.which, self.received)
        return scores

    def step_follower(self, trail: Trail) -> Callable[[IntArray, Any], None]:
        """A function that makes the local steps of some clients from their first labels, in any thread."""
        memo, rows, weights = self.memo, self.rows, self.memo.weights
        if trail.with_gram and memo.grams is None:
            memo.grams = Grams(rows)
        grams = memo.grams
        setting = trail.setting(self.max_local, self.tol_local, self.drop)

        def follow(which: IntArray, room: Any) -> None:
            if grams is None or self.max_local == 1:
                compiled.follow_step(memo.data, weights, rows.starts, which, trail.arrays, room)
                return
            grams.prepare(memo.data, weights, rows.starts, which)
            compiled.follow_steps(
                memo.data, weights, rows.starts, which, self.received, self.max_local, self.tol_local,
                self.drop, setting, grams.arrays, trail.arrays, room,
            )  # fmt: skip

        return follow

    def follow(self, trail: Trail) -> Found:
        """With what is remembered of the last time."""
        dtype = self.memo.data.dtype
        follow_labels, follow_steps = self._label_follower(trail), self.step_follower(trail)

        def work(part: IntArray) -> None:
            scratch, room = trail.take_buffers(dtype)
            which = self.which[part]
            follow_labels(which, scratch, room)
            ahead.wait(dtype, ahead.STEPS)
            follow_steps(which, room)
            trail.buffers.append((scratch, room))

        new = trail.arrays.seen[self.which] < 0
        self._in_threads(work, np.arange(len(self.which)), np.where(new, 1.0, _FOLLOWED))
        trail.arrive(self.which, self.received)
        found = Found(trail.ledger, self.which, self.received, self.n_threads)
        if self.inertia:
            self._add_inertia(trail, found)
        return found

    def _add_inertia(self, trail: Trail, found: Found) -> None:
        if self.max_local == 1:
            self._add_cached_inertia(trail, found)
            return
        n_clients, k = trail.ledger.counts.shape
        inertia, received_inertia = np.empty((n_clients, k)), np.empty(n_clients)

        def work(part: IntArray) -> None:
            compiled.inertia_of_clients(
                self.memo.data, self.memo.weights, self.rows.starts, self.which[part], self.received,
                trail.arrays.labels, trail.arrays.final, trail.ledger.means, inertia, received_inertia,
            )  # fmt: skip

        self._in_threads(work, np.arange(len(self.which)))
        found.inertia, found.received_inertia = inertia[self.which], received_inertia[self.which]

    def _add_cached_inertia(self, trail: Trail, found: Found) -> None:
        """Inertia after one local step, from what changed since the last time."""
        cache, memo, ledger = trail.inertia_cache(self.rows), self.memo, trail.ledger
        previous, moved = cache.begin(self.which, self.received)

        def work(part: IntArray) -> None:
            totals.received_inertia(
                memo.data, memo.weights, self.rows.starts, self.which[part], self.received, moved[part],
                trail.arrays.labels, ledger.counts, ledger.means, cache.arrays,
            )  # fmt: skip

        self._in_threads(work, np.arange(len(self.which)), np.where(previous < 0, 1.0, _FOLLOWED))
        found.changes = cache.finish(self.which, previous)
        found.inertia = cache.arrays.within[self.which]
        found.received_inertia = (found.inertia + cache.arrays.away[self.which]).sum(axis=1)

    def scan(self) -> Found:
        """One pass over the rows a step; nothing is remembered."""
        k, m = self.received.shape
        n_clients = len(self.which)
        ledger = Ledger.empty(n_clients, k, m)
        inertia = np.zeros((n_clients if self.inertia else 0, k))
        received_inertia = np.zeros(n_clients if self.inertia else 0)
        places = np.arange(n_clients)
        starts = self.rows.starts
        large = are_large(self.memo.data, starts[self.which], starts[self.which + 1], m)

        def work(some: IntArray) -> None:
            scratch = new_scratch(self.memo.data, k, m, int(self.sizes[some].max()))
            compiled.scan_clients(
                self.memo.data, self.memo.weight, self.rows.starts, self.which[some], some, self.received,
                self.max_local, self.tol_local, self.drop, scratch, compiled.new_room(k, m, 0), ledger.means,
                ledger.status, ledger.counts, ledger.last_counts, inertia, received_inertia,
            )  # fmt: skip

        small = places[~large]
        if len(small):
            self._in_threads(work, small)
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
