"""A table with the rows of one or several clients, and the kernel that processes them.

Sites in the same process can share a table, so that a round of all of them is one call of the kernel.
A single site has its own table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from threading import RLock
from typing import Any
from weakref import ReferenceType, ref

import numpy as np

from fedkmeans._utils.typing import ClientId, FloatArray, IntArray
from fedkmeans.client.delta_state import DeltaStates
from fedkmeans.errors import ParameterError
from fedkmeans.kernels import AUTO, Kernel, Outcome, Rows, choose_kernel, find_kernel
from fedkmeans.kernels.base import LocalSummary
from fedkmeans.kernels.sparse import Table
from fedkmeans.kernels.weighting import weights_for
from fedkmeans.protocol.messages import LocalUpdate
from fedkmeans.protocol.statistics import StackedStatistics

# Number of runs for which delta states are stored; a run may start before another one ends.
RUNS_KEPT = 4


class SharedTable(Rows):
    """The rows of N clients; client i has the rows starts[i] to starts[i + 1] - 1.

    Whoever calls a method that runs local steps or uses delta states must hold `lock`.

    Parameters
    ----------
    X : ndarray or SparseRows of shape (n, m)
    starts : array-like of shape (N + 1,)
    sample_weight : ndarray of shape (n,) or None
        Positive weights of the rows.
    names : sequence of str
        Names of the clients.
    kernel : {"auto", "numba", "numpy"}
    """

    def __init__(
        self,
        X: Table,
        starts: Sequence[int] | IntArray,
        sample_weight: FloatArray | None,
        names: Sequence[ClientId],
        kernel: str = AUTO,
    ) -> None:
        super().__init__(X, np.asarray(starts, dtype=np.int64), sample_weight)
        self.names = np.array(names, dtype=object)
        self.wanted_kernel = kernel
        self.kernel_name = choose_kernel(kernel, len(names), X.size)
        # By run and total; the least recently used run comes first.
        self.delta_states: dict[str, dict[str, DeltaStates]] = {}
        # A kernel caches the last local steps of the clients, so concurrent fits need a lock.
        self.lock = RLock()
        # The latest statistics, while they are referenced: they share memory with the kernel.
        self._lent: ReferenceType[StackedStatistics] | None = None
        # Of the latest total: the stamp of the replies, their weights (A, k) and Σ ω c (k, m).
        self._summed: tuple[int, FloatArray, FloatArray] | None = None
        self._named: tuple[IntArray | None, tuple[ClientId, ...]] = None, ()

    def __reduce__(self) -> Any:
        arguments = self.X, self.starts, self.sample_weight, self.names, self.wanted_kernel
        return SharedTable, arguments, {"kernel_name": self.kernel_name, "delta_states": self.delta_states}

    def use_kernel(self, name: str) -> None:
        """Use this kernel from now on."""
        with self.lock:
            if name != self.kernel_name:
                self.kernel_name, self.cache = name, None

    @property
    def kernel(self) -> Kernel:
        """The current kernel."""
        return find_kernel(self.kernel_name)

    @cached_property
    def n_samples(self) -> FloatArray:
        """Number of rows of each client, or the sum of their weights; shape (N,)."""
        if self.sample_weight is None:
            return self.sizes.astype(np.float64)
        return np.add.reduceat(self.sample_weight, self.starts[:-1])

    def names_of(self, which: IntArray) -> tuple[ClientId, ...]:
        """Return the names of clients; cached, as rounds often have the same clients."""
        if self._named[0] is not which:
            self._named = which, tuple(self.names[which])
        return self._named[1]

    def reclaim(self) -> None:
        """Prepare for local steps, which overwrite the arrays of the latest statistics."""
        lent = None if self._lent is None else self._lent()
        if lent is not None:  # still in use
            lent.detach()
        self._lent = None

    def statistics(self, which: IntArray, update: LocalUpdate, n_threads: int) -> StackedStatistics:
        """Run local steps and return the statistics, without a copy of the kernel's arrays."""
        self.reclaim()
        outcome = self.kernel.local_steps(
            self, which, update.centroids, **update.steps, inertia=True, n_threads=n_threads
        )
        weight = self.remembered_weights(which, update, outcome)
        statistics = StackedStatistics(
            self.names_of(which),
            outcome.stack,
            outcome.places,
            weight,
            weight,
            np.column_stack([outcome.received_inertia, self.n_samples[which]]),  # type: ignore[list-item]
            outcome.changes,
            self.kernel_name,
            n_threads,
            self.lock,
        )
        self._lent = ref(statistics)
        return statistics

    def weights(self, which: IntArray, update: LocalUpdate, outcome: Outcome) -> FloatArray:
        """Return the weights of the local centroids of clients, a new array of shape (A, k)."""
        counts, last_counts, n_samples = outcome.counts, outcome.last_counts, self.n_samples[which]
        if isinstance(update.weighting, str):
            inertia = np.full(counts.shape, np.nan) if outcome.inertia is None else outcome.inertia
            together = LocalSummary(np.empty(0), counts, last_counts, inertia, n_samples)  # type: ignore[arg-type]
            return np.array(weights_for(update.weighting, together))
        parts: Any = counts, last_counts, outcome.inertia, n_samples.tolist(), outcome.received_inertia
        rows = enumerate(zip(*parts, strict=True))
        each = (LocalSummary(outcome.centroids(place), *row) for place, row in rows)
        return np.stack([weights_for(update.weighting, local) for local in each])

    def remembered_weights(self, which: IntArray, update: LocalUpdate, outcome: Outcome) -> FloatArray:
        """Return the weights; raise if any cluster without points has a weight."""
        weight = self.weights(which, update, outcome)
        wrong = (weight > 0) & (outcome.counts == 0) & (outcome.last_counts == 0)
        if wrong.any():
            client = self.names[which[wrong.any(axis=1).argmax()]]
            raise ParameterError(
                f"Client {client!r}: the weighting rule gives weight to a cluster in which the client has no "
                "points; this cannot be remembered. Return 0 there (where counts is 0), or use memory=None."
            )
        return weight

    def add_changed(
        self, outcome: Outcome, weight: FloatArray, weighted_sum: FloatArray, plain_sum: FloatArray
    ) -> None:
        """Add Σ ω c to -0.0, but reuse the sums of the last query in clusters where nothing changed."""
        last, self._summed, clusters = self._summed, None, None
        changes = outcome.changes
        # The stamps differ if other clients were asked, or if these have replied to something else since.
        if last and changes and len(last[1]) == len(weight) and (changes.previous == last[0]).all():
            same = (changes.same & (weight == last[1])).all(axis=0)
            weighted_sum[same], clusters = last[2][same], np.flatnonzero(~same)
        outcome.add_to(weight, weighted_sum, plain_sum, clusters)
        if changes:
            self._summed = changes.stamp, weight, weighted_sum.copy()

    def states_of(self, run: str, total: str, shape: tuple[int, ...]) -> DeltaStates:
        """Return the delta states for a total with this shape; drop those of all but the latest runs."""
        totals = self.delta_states.pop(run, {})
        self.delta_states[run] = totals
        while len(self.delta_states) > RUNS_KEPT:
            self.delta_states.pop(next(iter(self.delta_states)))
        if total not in totals or totals[total].shape != shape:
            totals[total] = DeltaStates(len(self.names), *shape)
        return totals[total]
