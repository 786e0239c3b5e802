"""A table with the rows of one or several clients, and the kernel that processes them.

Sites in the same process can share a table, so that a round of all of them is one call of the kernel.
A single site has its own table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from threading import RLock
from typing import Any
from weakref import ReferenceType, WeakValueDictionary

import numpy as np

from fedkmeans._utils.typing import DataArray, FloatArray, IntArray
from fedkmeans.client.delta_stack import DeltaStack
from fedkmeans.kernels import AUTO, Kernel, Outcome, Rows, choose_kernel, find_kernel
from fedkmeans.kernels.sparse import Table
from fedkmeans.protocol.messages import LocalUpdate
from fedkmeans.protocol.statistics import StackedStatistics

_NOT_PICKLED = ("lock", "lent", "delta_stacks")


def common_table(parts: Sequence[DataArray]) -> DataArray | None:
    """Return the table if the parts are consecutive views of one table; otherwise None."""
    table = parts[0].base
    if not isinstance(table, np.ndarray) or table.ndim != 2 or not table.flags.c_contiguous:
        return None
    place = first = _address(parts[0])
    for part in parts:
        same = part.base is table and part.dtype == table.dtype and part.shape[1:] == table.shape[1:]
        if not (same and part.flags.c_contiguous and _address(part) == place):
            return None
        place += part.nbytes
    row = table.itemsize * table.shape[1]
    return table[(first - _address(table)) // row : (place - _address(table)) // row]


def _address(array: DataArray) -> int:
    return int(array.__array_interface__["data"][0])


class SharedTable:
    """A table with the rows of N clients; client i has the rows starts[i] to starts[i + 1] - 1.

    Parameters
    ----------
    X : ndarray or SparseRows of shape (n, m)
    starts : array-like of shape (N + 1,)
    sample_weight : ndarray of shape (n,) or None
        Positive weights of the rows.
    kernel : {"auto", "numba", "numpy"}
    """

    def __init__(
        self,
        X: Table,
        starts: Sequence[int] | IntArray,
        sample_weight: FloatArray | None = None,
        kernel: str = AUTO,
    ) -> None:
        self.rows = Rows(X, np.asarray(starts, dtype=np.int64), sample_weight)
        self.wanted_kernel = kernel
        self.kernel_name = choose_kernel(kernel, len(self.rows.starts) - 1, X.size)
        # A kernel caches the last local steps of the clients, so concurrent fits need a lock.
        self.lock = RLock()
        # The latest statistics, while they are referenced: they share memory with the kernel.
        self.lent: ReferenceType[StackedStatistics] | None = None
        # Stacked delta states by run and total, while a site refers to them.
        self.delta_stacks: WeakValueDictionary[tuple[str, str], DeltaStack] = WeakValueDictionary()

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in _NOT_PICKLED}
        return {**state, "rows": replace(self.rows, cache=None)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=RLock(), lent=None, delta_stacks=WeakValueDictionary())

    def use_kernel(self, name: str) -> None:
        """Use this kernel from now on."""
        with self.lock:
            if name != self.kernel_name:
                self.kernel_name, self.rows.cache = name, None

    @property
    def kernel(self) -> Kernel:
        """The current kernel."""
        return find_kernel(self.kernel_name)

    def X(self, client: int) -> Table:
        """Return the rows of a client, a view of shape (n_i, m)."""
        return self.rows.shard(client)[0]

    def sample_weight(self, client: int) -> FloatArray | None:
        """Return the weights of the rows of a client."""
        return self.rows.shard(client)[1]

    @cached_property
    def n_samples(self) -> FloatArray:
        """Number of rows of each client, or the sum of their weights; shape (N,)."""
        if self.rows.sample_weight is None:
            return self.rows.sizes.astype(np.float64)
        return np.add.reduceat(self.rows.sample_weight, self.rows.starts[:-1])

    def portions(self, which: IntArray, update: LocalUpdate) -> list[IntArray]:
        """Split clients into portions, so that the memory for local centroids stays bounded."""
        size = self.kernel.at_a_time(self.rows, update.centroids)
        return [which[start : start + size] for start in range(0, len(which), size)]

    def local_steps(self, which: IntArray, update: LocalUpdate, inertia: bool, n_threads: int) -> Outcome:
        """Run the local steps of some clients; the caller must hold `lock` while it uses the outcome."""
        lent = None if self.lent is None else self.lent()
        if lent is not None:  # still in use, and these steps overwrite them
            lent.detach()
        self.lent = None
        return self.kernel.local_steps(
            self.rows,
            which,
            update.centroids,
            max_local=update.max_local,
            tol_local=update.tol_local,
            empty_clusters=update.empty_clusters,
            inertia=inertia,
            n_threads=n_threads,
        )
