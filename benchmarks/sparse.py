"""Sparse rows compared with the same rows as dense ones, and with scikit-learn's k-means on sparse rows.

Rows are like texts: each mixes the words of two topics, and few words of a topic are frequent. The initial
centroids are means of many rows, so that no cluster becomes empty, which scikit-learn would move and we
would not. scikit-learn's step is only its inner iteration, with buffers allocated before; its run is a fit
of `KMeans` from given centroids, and ours a `fit` on one client from the same ones.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_sparse
from threadpoolctl import ThreadpoolController

from benchmarks.report import Row, Table, duration, field, shape, times
from benchmarks.timing import Settings, limited, ratios, side_by_side, spread
from fedkmeans import FederatedKMeans
from fedkmeans.kernels import find_kernel
from fedkmeans.kernels.sparse import SparseRows

N_TOPICS, K, MAX_ROUNDS = 20, 20, 20
# Largest difference of the means, relative to the largest number, and of the inertia.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Shape:
    """Numbers of rows and columns, and roughly the fraction of numbers that are not zero."""

    n: int
    m: int
    density: float


SHAPES = (Shape(20_000, 5_000, 0.01), Shape(20_000, 5_000, 0.1))

_SIDES = (
    ("rows", shape),
    ("not zero", field("density", "{:.1%}")),
    ("k", field("k")),
    ("threads", field("n_threads")),
    ("sparse", duration("ours")),
    ("dense", duration("dense")),
    ("scikit-learn, sparse", duration("sklearn")),
    ("faster than dense", times("to_dense")),
    ("faster than scikit-learn", times("to_sklearn")),
)

TABLES = {
    "step": Table(
        "One Lloyd step on sparse rows",
        "Labels, sums and counts of all rows, by our sparse and dense code and by scikit-learn's inner "
        "iteration on the same sparse rows. Ratios: median (smallest–largest) over alternating repeats.",
        (*_SIDES, ("apart by", field("difference", "{:.0e}"))),
    ),
    "run": Table(
        "A whole run on sparse rows",
        f"From the same centroids, at most {MAX_ROUNDS} rounds or steps. RAM: the rows, and the peak of what "
        "is allocated in addition.",
        (
            *_SIDES,
            ("sparse rows", field("rows_mb", "{:.0f} MB")),
            ("dense rows", field("dense_mb", "{:.0f} MB")),
            ("in addition: sparse", field("ours_peak", "{:.0f} MB")),
            ("dense", field("dense_peak", "{:.0f} MB")),
            ("scikit-learn", field("sklearn_peak", "{:.0f} MB")),
            ("apart by", field("difference", "{:.0e}")),
        ),
    ),
}


def texts(one: Shape, seed: int = 0) -> sparse.csr_matrix:
    """Rows of word counts, with a factor for each word, normalized to length one."""
    rng = np.random.default_rng(seed)
    topics = 1.0 / (1 + np.argsort(rng.random((N_TOPICS, one.m)), axis=1))
    topics /= topics.sum(axis=1, keepdims=True)
    factors = rng.uniform(1, 5, size=one.m)  # also so that no row is exactly between two centroids
    rows, wanted = [], int(one.density * one.m)
    for pair in rng.integers(N_TOPICS, size=(one.n, 2)):
        # Some words are drawn more than once; twice as many draws give about the wanted number of words.
        drawn = rng.choice(one.m, size=2 * wanted, p=topics[pair].mean(axis=0))
        words, counts = np.unique(drawn, return_counts=True)
        numbers = counts * factors[words]
        rows.append((words, numbers / np.linalg.norm(numbers)))
    indptr = np.concatenate([[0], np.cumsum([len(words) for words, _ in rows])])
    indices, data = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    return sparse.csr_matrix((data, indices.astype(np.int32), indptr.astype(np.int32)), (one.n, one.m))


def measure(settings: Settings) -> Iterator[Row]:
    for one in SHAPES:
        X = texts(Shape(one.n // 20, one.m // 5, one.density) if settings.quick else one)
        start = np.stack([np.asarray(X[group::K].mean(axis=0)).ravel() for group in range(K)])
        for n_threads in (1, 2):
            yield {"table": "step", **_step(X, start, n_threads, settings)}
        for n_threads in (1, 2):
            yield {"table": "run", **_run(X, start, n_threads, settings)}


def _step(X: sparse.csr_matrix, start: np.ndarray, n_threads: int, settings: Settings) -> Row:
    kernel, rows, dense = find_kernel(settings.kernel), SparseRows.of(X), X.toarray()

    def means(table: Any) -> np.ndarray:
        sums, counts = kernel.lloyd_step(table, start, n_threads=n_threads)
        return sums / np.maximum(counts, 1)[:, None]

    sides = {
        "ours": lambda: means(rows),
        "dense": lambda: means(dense),
        "sklearn": sklearn_step(X, start, n_threads),
    }
    with limited(n_threads):
        answers = [side() for side in sides.values()]
        taken = side_by_side(sides, 1 if settings.quick else 7)
    difference = max(float(np.abs(answers[0] - answer).max()) for answer in answers) / X.max()
    return _row(X, n_threads, taken, difference)


def sklearn_step(X: sparse.csr_matrix, start: np.ndarray, n_threads: int) -> Callable[[], np.ndarray]:
    """scikit-learn's iteration on sparse rows."""
    centres = np.ascontiguousarray(start)
    new, shift, counts = np.zeros_like(centres), np.zeros(len(centres)), np.zeros(len(centres))
    weight, labels = np.ones(X.shape[0]), np.full(X.shape[0], -1, dtype=np.int32)
    controller = ThreadpoolController()

    def step():
        with controller.limit(limits=1, user_api="blas"):
            lloyd_iter_chunked_sparse(X, weight, centres, new, counts, labels, shift, n_threads)
        return new

    return step


def _run(X: sparse.csr_matrix, start: np.ndarray, n_threads: int, settings: Settings) -> Row:
    dense = X.toarray()
    # A run stops when no centroid moves, or after this many rounds.
    ours = FederatedKMeans(
        K, init=start, max_rounds=MAX_ROUNDS, tol=1e-12, tol_score=0, n_jobs=n_threads, kernel=settings.kernel
    )
    theirs = KMeans(K, init=start, n_init=1, max_iter=MAX_ROUNDS, tol=0)
    sides = {
        "ours": lambda: ours.fit(X).inertia_,
        "dense": lambda: ours.fit(dense).inertia_,
        "sklearn": lambda: theirs.fit(X).inertia_,
    }
    with limited(n_threads):
        answers = [side() for side in sides.values()]
        taken = side_by_side(sides, 1 if settings.quick else 3)
        peaks = {f"{name}_peak": peak_mb(side) for name, side in sides.items()}
    difference = max(abs(answers[0] - answer) for answer in answers) / answers[0]
    row = _row(X, n_threads, taken, difference)
    return {**row, **peaks, "rows_mb": SparseRows.of(X).nbytes / 1e6, "dense_mb": dense.nbytes / 1e6}


def peak_mb(function: Callable[[], Any]) -> float:
    """The peak of the memory that a call allocates."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def _row(X: sparse.csr_matrix, n_threads: int, taken: dict[str, list[float]], difference: float) -> Row:
    return {
        "n": X.shape[0],
        "m": X.shape[1],
        "density": X.nnz / (X.shape[0] * X.shape[1]),
        "k": K,
        "n_threads": n_threads,
        **{name: spread(values) for name, values in taken.items()},
        "to_dense": ratios(taken["dense"], taken["ours"]),
        "to_sklearn": ratios(taken["sklearn"], taken["ours"]),
        "difference": difference,
        "agreed": bool(difference <= TOLERANCE),
    }
