"""Data that several sections use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedkmeans.data import load_dataset
from fedkmeans.errors import DataError

_BLOCK = 2**15


@dataclass(frozen=True)
class Shape:
    """Pooled rows and clusters, for one Lloyd step."""

    name: str
    n: int
    m: int
    k: int


SHAPES = (
    Shape("MNIST", 60_000, 784, 20),
    Shape("blobs", 1_000_000, 16, 64),
    Shape("blobs", 1_000_000, 2, 5),
)


def shapes(quick: bool) -> list[Shape]:
    if not quick:
        return list(SHAPES)
    return [Shape(shape.name, shape.n // 20, shape.m, shape.k) for shape in SHAPES]


def blobs(n: int, m: int, n_blobs: int, dtype=np.float64, seed: int = 0) -> np.ndarray:
    """Gaussian blobs that overlap somewhat, made block by block, because `growth` measures memory."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(-3, 3, size=(n_blobs, m))
    X = np.empty((n, m), dtype=dtype)
    for start in range(0, n, _BLOCK):
        part = X[start : start + _BLOCK]
        part[...] = centres[rng.integers(n_blobs, size=len(part))] + rng.normal(size=part.shape)
    return X


@lru_cache(maxsize=1)
def pooled(shape: Shape, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a shape, and k different ones of them as initial centroids, so that no cluster is empty."""
    X = _mnist(shape).astype(dtype, copy=False) if shape.name == "MNIST" else None
    if X is None:
        X = blobs(shape.n, shape.m, shape.k, dtype)
    start = X[np.random.default_rng(1).choice(len(X), size=shape.k, replace=False)]
    return X, start.astype(np.float64)


def _mnist(shape: Shape) -> np.ndarray:
    """MNIST, or random numbers if its files are missing; a step takes about as long on them."""
    try:
        return load_dataset("mnist").X[: shape.n]
    except DataError:
        return np.random.default_rng(0).random((shape.n, shape.m))
