"""Rows that are mostly zeros: only other numbers are stored, and only blocks of rows are made dense."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from fedkmeans._utils.typing import DataArray, IntArray
from fedkmeans.errors import DataError

# All rows of a client may be made dense up to this many numbers, if an algorithm is faster that way: 32 MB
# in double precision.
SMALL = 2**22


@dataclass(frozen=True, slots=True, eq=False)
class SparseRows:
    """A table of n rows and m columns in compressed rows (CSR), with the array interface that is needed.

    Row p has the numbers data[indptr[p] : indptr[p + 1]] in the columns indices[…], which ascend. There are
    no duplicates and no stored zeros.

    Attributes
    ----------
    data : ndarray of any real dtype
    indices : ndarray of the same length
    indptr : ndarray of shape (n + 1,)
        It need not begin with zero: a slice of rows shares the data of its table.
    n_columns : int
    """

    data: DataArray
    indices: IntArray
    indptr: IntArray
    n_columns: int

    @classmethod
    def of(cls, matrix: Any) -> SparseRows:
        """Convert a scipy sparse matrix or array of any format; it is not changed, and not copied if CSR."""
        if matrix.ndim != 2:
            raise DataError(f"A sparse table must have rows and columns, got shape {matrix.shape}.")
        rows = _scipy_sparse().csr_array(matrix)
        if not rows.has_canonical_format or np.count_nonzero(rows.data) < rows.nnz:
            rows = rows.copy()  # do not change the caller's matrix
            rows.sum_duplicates()
            rows.eliminate_zeros()
        # Compiled code expects one integer type for `indptr`, which is large enough for any table.
        small = rows.shape[1] <= np.iinfo(np.int32).max
        return cls(
            rows.data[: rows.nnz],
            rows.indices[: rows.nnz].astype(np.int32 if small else np.int64, copy=False),
            rows.indptr.astype(np.int64),
            int(rows.shape[1]),
        )

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """(n, m)."""
        return len(self), self.n_columns

    @property
    def ndim(self) -> int:
        """Always 2."""
        return 2

    @property
    def size(self) -> int:
        """Number of entries of the table, including zeros."""
        return len(self) * self.n_columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers."""
        return self.data.dtype

    @property
    def stored(self) -> slice:
        """The part of `data` and `indices` that belongs to these rows."""
        return slice(int(self.indptr[0]), int(self.indptr[-1]))

    @property
    def nbytes(self) -> int:
        """Size of these rows in bytes."""
        part = self.stored
        return int(self.data[part].nbytes + self.indices[part].nbytes + self.indptr.nbytes)

    def __getitem__(self, rows: slice | DataArray) -> SparseRows:
        """Consecutive rows without a copy, or any rows by their numbers or by a mask."""
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(len(self))
            indptr = self.indptr[start : max(start, stop) + 1]
            return SparseRows(self.data, self.indices, indptr, self.n_columns)
        return SparseRows.of(self.matrix()[rows])

    def dense(self, dtype: Any = None) -> DataArray:
        """All rows as an array (n, m); meant for blocks of rows."""
        return np.asarray(self.matrix().toarray(), dtype=dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> DataArray:
        """Raise an error: a whole table must not become dense by accident."""
        raise TypeError("Sparse rows are made dense a block at a time; see lloyd.double_block.")

    def by_column(self) -> Iterator[tuple[DataArray, IntArray]]:
        """The numbers of each column and their rows, one column after the other."""
        table = self.matrix().tocsc()
        for start, stop in zip(table.indptr[:-1], table.indptr[1:], strict=True):
            yield table.data[start:stop], table.indices[start:stop]

    def matrix(self) -> Any:
        """The rows as a scipy sparse array; the numbers are not copied."""
        part, indptr = self.stored, self.indptr - self.indptr[0]
        return _scipy_sparse().csr_array((self.data[part], self.indices[part], indptr), shape=self.shape)


# Rows that algorithms accept: shape (n, m).
Table: TypeAlias = DataArray | SparseRows


def as_table(X: Any) -> Table:
    """Convert the caller's rows to an array, or to sparse rows if they are a scipy sparse matrix."""
    if isinstance(X, SparseRows):
        return X
    if isinstance(X, np.ndarray) or not _scipy_sparse().issparse(X):
        return np.asarray(X)
    return SparseRows.of(X)


def _scipy_sparse() -> Any:
    """Load scipy.sparse only when needed: on Flower each message starts a new process."""
    return import_module("scipy.sparse")
