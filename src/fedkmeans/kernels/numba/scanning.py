"""One pass over rows with compiled code, in threads if there are many rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from fedkmeans._utils.threads import in_threads
from fedkmeans._utils.typing import DataArray, FloatArray, IntArray
from fedkmeans.kernels.base import Rows
from fedkmeans.kernels.numba.jit import clients as dense
from fedkmeans.kernels.numba.jit import sparse
from fedkmeans.kernels.numba.jit.structures import ClientData, Csr
from fedkmeans.kernels.sparse import SparseRows, Table

# Rows with more numbers are scanned in up to so many parts. This does not depend on the number of threads,
# so that sums are always rounded in the same way.
LARGE, N_PARTS = 2**20, 16
# The same for sparse rows, where each number takes longer.
_LARGE_SPARSE = 2**18

NOTHING = np.empty(0)
_NO_LABELS = np.empty(0, dtype=np.int32)
_NO_CLUSTERS = np.empty((0, 0))


def as_data(X: Table) -> Any:
    """The rows in a form that compiled code accepts, without a copy if possible."""
    if isinstance(X, SparseRows):
        return Csr(*(_as_array(numbers) for numbers in (X.data, X.indices, X.indptr)))
    return _as_array(X)


def as_clients(rows: Rows) -> ClientData:
    """The rows of clients in such a form."""
    return ClientData(as_data(rows.X), as_double(rows.sample_weight), rows.starts)


def _as_array(X: DataArray) -> DataArray:
    """An array of a type for which code is compiled.

    Kernels only read. A read-only array is passed as a view that is not marked read-only, as otherwise
    everything would be compiled once more for such arrays.
    """
    if X.dtype.kind == "b":
        X = X.view(np.uint8)
    elif X.dtype.kind == "f" and X.dtype.itemsize not in (4, 8):
        X = X.astype(np.float32 if X.dtype.itemsize < 4 else np.float64)
    X = np.ascontiguousarray(X, dtype=X.dtype.newbyteorder("="))
    return X if X.flags.writeable else np.asarray(_Writeable(X))


class _Writeable:
    def __init__(self, array: DataArray) -> None:
        self.array = array  # keeps it alive as long as the view
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def as_double(values: FloatArray | None) -> FloatArray:
    """A new contiguous array that is not read-only, as code is compiled for such arrays only."""
    return NOTHING if values is None else np.array(values, dtype=np.float64, order="C")


def are_large(data: Any, starts: IntArray, stops: IntArray, m: int) -> Any:
    """Whether clients have so much data that several threads should scan one of them, shape (N,)."""
    if isinstance(data, Csr):
        return data.indptr[stops] - data.indptr[starts] > _LARGE_SPARSE
    return (stops - starts) * m > LARGE


def _parts(data: Any, start: int, stop: int, k: int, m: int) -> list[tuple[int, int]]:
    n = stop - start
    if isinstance(data, Csr):
        # Each part has its own sums, which should not take more memory than the rows.
        n_parts = int(data.indptr[stop] - data.indptr[start]) // max(_LARGE_SPARSE, k * m)
    else:
        n_parts = 4 * n * m // LARGE if n * m > LARGE else 1
    n_parts = min(N_PARTS, max(1, n_parts))
    edges = [start + n * part // n_parts for part in range(n_parts + 1)]
    return list(pairwise(edges))


def scan_rows(
    clients: ClientData,
    start: int,
    stop: int,
    centroids: FloatArray,
    n_threads: int,
    labels: Any = _NO_LABELS,
    sums: bool = False,
    inertia: bool = False,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """One pass over rows: labels, sums (k, m), counts (k,) and inertia (k,), as far as they are wanted."""
    data, weight, _ = clients
    k, m = centroids.shape

    def work(first: int, last: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        part = (
            np.zeros((k, m)) if sums else _NO_CLUSTERS,
            np.zeros(k) if sums else NOTHING,
            np.zeros(k) if inertia else NOTHING,
        )
        (sparse if isinstance(data, Csr) else dense).scan(data, weight, first, last, centroids, labels, *part)
        return part

    total, *others = in_threads(work, _parts(data, start, stop, k, m), n_threads)
    for part in others:
        for numbers, more in zip(total, part, strict=True):
            numbers += more
    return total
