"""Checksum of rows: the CRC-32 of all their numbers in double precision.

Sparse rows have the same checksum as the same dense rows. Their zeros are not read: apart from its start
value, a CRC is linear. Each number adds (by exclusive or) its CRC with only zeros around it, and the zeros
that follow it multiply this by a fixed matrix of bits.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fedkmeans._utils.typing import IntArray
from fedkmeans.kernels.reference.lloyd import blocks, double_block
from fedkmeans.kernels.sparse import SparseRows, Table

# Reading one number and skipping the zeros around it takes as long as reading this many zeros.
_SKIPPING = 64
# Numbers that are processed at a time.
_AT_A_TIME = 2**19

Sums: TypeAlias = npt.NDArray[np.uint32]


def checksum(X: Table) -> int:
    """CRC-32 of the rows in double precision, as in `zlib.crc32`."""
    if isinstance(X, SparseRows):
        n_stored = X.stored.stop - X.stored.start
        if _SKIPPING * (n_stored + len(X)) < X.size:
            return _of_sparse(X)
    digest = 0
    for rows in blocks(len(X), X.shape[1]):
        block = double_block(X, rows)
        block += 0.0  # negative zeros count as zeros, which sparse rows do not store
        digest = zlib.crc32(block.data, digest)
    return digest


def _of_sparse(X: SparseRows) -> int:
    n, m = X.shape
    sums = np.zeros(n, dtype=np.uint32)
    size = max(1, _AT_A_TIME * n // max(1, X.stored.stop - X.stored.start))
    for start in range(0, n, size):
        sums[start : start + size] = _of_rows(X[start : start + size])
    # Combine pairs of rows until one is left; zeros in front change nothing.
    n_levels = (n - 1).bit_length()
    sums = np.concatenate([np.zeros(2**n_levels - n, dtype=np.uint32), sums])
    zeros = _zeros(8 * m)
    for _ in range(n_levels):
        sums = _apply(zeros, sums[0::2]) ^ sums[1::2]
        zeros = _apply(zeros, zeros)
    # A CRC starts with all bits set, and inverts all bits at the end.
    start_sum = _apply(_zeros(8 * m * n), np.array([0xFFFFFFFF], dtype=np.uint32))
    return int(sums[0] ^ start_sum[0] ^ np.uint32(0xFFFFFFFF))


def _of_rows(X: SparseRows) -> Sums:
    """The part of each row, followed only by its own zeros, shape (n,)."""
    words = X.data[X.stored].astype(np.float64).view(np.uint32).reshape(-1, 2)
    four = _zeros(4)
    sums = _apply(four, _apply(four, words[:, 0]) ^ words[:, 1])
    behind: IntArray = X.n_columns - 1 - X.indices[X.stored].astype(np.intp)
    for bit in range((X.n_columns - 1).bit_length()):
        some = np.flatnonzero(behind >> bit & 1)
        sums[some] = _apply(_zeros(8 * 2**bit), sums[some])
    # For an empty row `reduceat` would return the first number of the next row.
    rows = np.flatnonzero(np.diff(X.indptr))
    result = np.zeros(len(X), dtype=np.uint32)
    if len(rows):
        result[rows] = np.bitwise_xor.reduceat(sums, X.indptr[rows] - X.indptr[0])
    return result


def _apply(matrix: Sums, sums: Sums) -> Sums:
    """Multiply each sum by a matrix of bits, given as tables (4, 256), one for each byte of the sum."""
    result: Any = matrix[0][sums & 255]
    for place in (1, 2, 3):
        result = result ^ matrix[place][sums >> np.uint32(8 * place) & 255]
    return np.asarray(result, dtype=np.uint32)


@cache
def _zeros(n_bytes: int) -> Sums:
    """The matrix that appends so many zero bytes to a sum, shape (4, 256)."""
    if n_bytes == 1:
        byte = np.arange(256, dtype=np.uint32)
        first = byte
        for _ in range(8):
            first = np.where(first & 1, first >> np.uint32(1) ^ np.uint32(0xEDB88320), first >> np.uint32(1))
        return np.stack([first, byte, byte << np.uint32(8), byte << np.uint32(16)]).astype(np.uint32)
    half = _zeros(n_bytes // 2)
    twice = _apply(half, half)
    return _apply(_zeros(1), twice) if n_bytes % 2 else twice
