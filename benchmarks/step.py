"""One Lloyd step on pooled rows, from labels to new sums, compared with scikit-learn and faiss.

The comparison is strict: scikit-learn's inner iteration without the work that its estimator does around
it, with buffers allocated before, and the faster of two ways to use faiss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import faiss
import numpy as np
from scipy import sparse
from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense
from threadpoolctl import ThreadpoolController

from benchmarks.problems import Shape, pooled, shapes
from benchmarks.report import Row, Table, duration, field, shape, times
from benchmarks.timing import Settings, limited, ratios, side_by_side, spread
from fedkmeans.kernels import find_kernel

# Largest difference of the means, relative to the largest number, and of the counts, relative to the rows.
# In single precision, the others add up tens of thousands of rows in single precision.
TOLERANCE = {"float64": 1e-9, "float32": 1e-3}

TABLES = {
    "step": Table(
        "One Lloyd step",
        "Labels, sums and counts of all rows. scikit-learn: only its inner iteration. faiss (single "
        "precision only): the faster of `Kmeans(niter=1)` and `knn` with a sparse product. Ratio to the "
        "faster of the two: median (smallest–largest) over alternating repeats.",
        (
            ("rows", shape),
            ("k", field("k")),
            ("dtype", field("dtype")),
            ("threads", field("n_threads")),
            ("ours", duration("ours")),
            ("scikit-learn", duration("sklearn")),
            ("faiss", duration("faiss")),
            ("faster by", times("ratio")),
            ("apart by", field("difference", "{:.0e}")),
        ),
    )
}


def measure(settings: Settings) -> Iterator[Row]:
    for one in shapes(settings.quick):
        for dtype in ("float32", "float64"):
            for n_threads in (1, 2):
                yield {"table": "step", **_compare(one, dtype, n_threads, settings)}


def _compare(one: Shape, dtype: str, n_threads: int, settings: Settings) -> Row:
    X, start = pooled(one, dtype)
    kernel = find_kernel(settings.kernel)

    def ours():
        sums, counts = kernel.lloyd_step(X, start, n_threads=n_threads)
        return sums / counts[:, None], counts

    sides = {"ours": ours, "sklearn": sklearn_step(X, start, n_threads)}
    if dtype == "float32":
        sides |= {f"faiss {name}": step for name, step in faiss_steps(X, start).items()}
    with limited(n_threads):
        answers = {name: side() for name, side in sides.items()}
        difference = max(_apart(X, answers["ours"], answer) for answer in answers.values())
        taken = side_by_side(sides, 1 if settings.quick else 15)
    medians = {name: float(np.median(values)) for name, values in taken.items()}
    way = min((name for name in sides if name.startswith("faiss")), key=medians.get, default=None)
    fastest = min((name for name in sides if name != "ours"), key=medians.get)
    return {
        "n": one.n,
        "m": one.m,
        "k": one.k,
        "dtype": dtype,
        "n_threads": n_threads,
        "ours": spread(taken["ours"]),
        "sklearn": spread(taken["sklearn"]),
        "faiss": None if way is None else spread(taken[way]),
        "faiss_way": None if way is None else way.removeprefix("faiss "),
        "fastest": "scikit-learn" if fastest == "sklearn" else "faiss",
        "ratio": ratios(taken[fastest], taken["ours"]),
        "difference": difference,
        "agreed": difference <= TOLERANCE[dtype],
    }


def _apart(X: np.ndarray, one: tuple, other: tuple) -> float:
    means = float(np.abs(one[0] - other[0]).max() / np.abs(X[:1000]).max())
    if other[1] is None:  # faiss's Kmeans does not return counts
        return means
    return max(means, float(np.abs(one[1] - other[1]).sum() / 2 / len(X)))


def sklearn_step(X: np.ndarray, start: np.ndarray, n_threads: int) -> Callable[[], tuple]:
    """scikit-learn's iteration, with one BLAS thread for each of its threads, as in its KMeans."""
    centres = np.ascontiguousarray(start, dtype=X.dtype)
    new, shift = np.zeros_like(centres), np.zeros(len(centres), dtype=X.dtype)
    weight, counts = np.ones(len(X), dtype=X.dtype), np.zeros(len(centres), dtype=X.dtype)
    labels = np.full(len(X), -1, dtype=np.int32)
    controller = ThreadpoolController()  # searches for libraries, which takes longer than a small step

    def step():
        with controller.limit(limits=1, user_api="blas"):
            lloyd_iter_chunked_dense(X, weight, centres, new, counts, labels, shift, n_threads)
        return new, counts

    return step


def faiss_steps(X: np.ndarray, start: np.ndarray) -> dict[str, Callable[[], tuple]]:
    """Two ways to make a Lloyd step with faiss."""
    centres = np.ascontiguousarray(start, dtype=np.float32)
    k, m = centres.shape
    model = faiss.Kmeans(m, k, niter=1, max_points_per_centroid=len(X), min_points_per_centroid=1)
    model.cp.check_input_data_for_NaNs = False

    def kmeans():
        model.train(X, init_centroids=centres)
        return model.centroids, None

    ones, rows = np.ones(len(X), dtype=np.float32), np.arange(len(X) + 1)

    def knn():
        labels = faiss.knn(X, centres, 1)[1].ravel()
        counts = np.bincount(labels, minlength=k)
        sums = sparse.csr_array((ones, labels, rows), shape=(len(X), k)).T @ X
        return sums / counts[:, None], counts

    return {"Kmeans": kmeans, "knn": knn}
