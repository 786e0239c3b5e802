"""Rows of one or several clients in one table, and the kernel that works on them.

Sites of one process share a table, so that a round of all of them is one call of the kernel; a site
on its own has a table to itself.
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
    """The table of which the parts are views, each beginning where the one before ends; or None."""
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
    """The shards of clients; client i has the rows from starts[i] up to starts[i + 1].

    Parameters
    ----------
    X : ndarray or SparseRows of shape (n, m)
    starts : array-like of shape (N + 1,)
    sample_weight : ndarray of shape (n,) or None
        None of them zero.
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
        # A kernel remembers the last steps of the clients: two fits on the same rows take turns.
        self.lock = RLock()
        # Statistics that were sent last, as long as anybody holds them: they are in the kernel's arrays.
        self.lent: ReferenceType[StackedStatistics] | None = None
        # Of each run and total, as long as a site has a part in it.
        self.delta_stacks: WeakValueDictionary[tuple[str, str], DeltaStack] = WeakValueDictionary()

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in _NOT_PICKLED}
        return {**state, "rows": replace(self.rows, cache=None)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=RLock(), lent=None, delta_stacks=WeakValueDictionary())

    def use_kernel(self, name: str) -> None:
        """Let another kernel do the work from now on."""
        with self.lock:
            if name != self.kernel_name:
                self.kernel_name, self.rows.cache = name, None

    @property
    def kernel(self) -> Kernel:
        """The kernel itself."""
        return find_kernel(self.kernel_name)

    def X(self, client: int) -> Table:
        """Rows of a client, a view of shape (n_i, m)."""
        return self.rows.shard(client)[0]

    def sample_weight(self, client: int) -> FloatArray | None:
        """Weights of a client's rows."""
        return self.rows.shard(client)[1]

    @cached_property
    def n_samples(self) -> FloatArray:
        """Rows of each client, or the sum of their weights; shape (N,)."""
        if self.rows.sample_weight is None:
            return self.rows.sizes.astype(np.float64)
        return np.add.reduceat(self.rows.sample_weight, self.rows.starts[:-1])

    def portions(self, which: IntArray, update: LocalUpdate) -> list[IntArray]:
        """Cut a list of clients into portions whose local centroids may be held at a time."""
        size = self.kernel.at_a_time(self.rows, update.centroids)
        return [which[start : start + size] for start in range(0, len(which), size)]

    def local_steps(self, which: IntArray, update: LocalUpdate, inertia: bool, n_threads: int) -> Outcome:
        """Local steps of some of the clients; hold the `lock` while the outcome is in use."""
        lent = None if self.lent is None else self.lent()
        if lent is not None:  # somebody still reads what these steps will overwrite
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
