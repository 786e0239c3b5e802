"""One pass over rows with the compiled kernel, in threads where there are many."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from fedkmeans.kernels import compiled
from fedkmeans.threads import in_threads
from fedkmeans.typing import DataArray, FloatArray

# Rows with more numbers are scanned in up to so many parts, whatever the number of threads, so that the
# sums are rounded in the same way.
LARGE, N_PARTS = 2**20, 16

NOTHING = np.empty(0)
_NO_LABELS = np.empty(0, dtype=np.int32)
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


def as_double(values: FloatArray | None) -> FloatArray:
    """A new array: contiguous, and not marked read-only, for which all would be compiled once more."""
    return NOTHING if values is None else np.array(values, dtype=np.float64, order="C")


def _parts(start: int, stop: int, m: int) -> list[tuple[int, int]]:
    n = stop - start
    n_parts = min(N_PARTS, max(1, n * m // LARGE))
    edges = [start + n * part // n_parts for part in range(n_parts + 1)]
    return list(pairwise(edges))


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
            np.zeros(k) if sums else NOTHING,
            np.zeros(k) if inertia else NOTHING,
        )
        scratch = compiled.new_scratch(k, m, last - first, data.dtype)
        compiled.scan(data, weight, first, last, centroids, scratch, labels, *part)
        return part

    total, *others = in_threads(work, _parts(start, stop, m), n_threads)
    for part in others:
        for numbers, more in zip(total, part, strict=True):
            numbers += more
    return total
