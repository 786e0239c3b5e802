"""The limits of this machine, and how close a Lloyd step comes to them.

The limit of a step is the slower of two: its 2·n·k·m multiplications and additions at the rate of a
large matrix product, and the reading of its rows at the rate of the memory. Data that fits into the
cache may be faster than the memory, and steps that skip distances faster than the matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.problems import pooled, shapes
from benchmarks.report import Row, Table, duration, field, shape
from benchmarks.timing import Settings, fastest, limited, side_by_side, spread
from fedkmeans.kernels import find_kernel

TABLES = {
    "machine": Table(
        "The machine's peak",
        "The largest measured rates: a product of two large matrices, and RAM read or written by the fastest "
        "of copying, adding up and a scalar product of arrays far larger than the processor's cache.",
        (
            ("dtype", field("dtype")),
            ("threads", field("n_threads")),
            ("matrix product", field("gflops", "{:.1f} GFLOP/s")),
            ("memory", field("gbytes", "{:.1f} GB/s")),
            ("by", field("by")),
        ),
    ),
    "fraction": Table(
        "How close a Lloyd step comes to it",
        "2·n·k·m operations compared with the matrix product, the bytes of the rows compared with the RAM, "
        "and the time of the slower of the two compared with the measured time (median).",
        (
            ("rows", shape),
            ("k", field("k")),
            ("dtype", field("dtype")),
            ("threads", field("n_threads")),
            ("per step", duration("step")),
            ("rate", field("gflops", "{:.1f} GFLOP/s")),
            ("of the product", field("of_product", "{:.0%}")),
            ("rows read", field("gbytes", "{:.1f} GB/s")),
            ("of the memory", field("of_memory", "{:.0%}")),
            ("bound by", field("bound")),
            ("of the limit", field("of_limit", "{:.0%}")),
        ),
    ),
}


def measure(settings: Settings) -> Iterator[Row]:
    peaks = {}
    for dtype in ("float32", "float64"):
        for n_threads in (1, 2):
            product = product_rate(dtype, n_threads, settings.quick)
            memory, by = memory_rate(dtype, n_threads, settings.quick)
            peaks[dtype, n_threads] = product, memory
            yield {
                "table": "machine",
                "dtype": dtype,
                "n_threads": n_threads,
                "gflops": product / 1e9,
                "gbytes": memory / 1e9,
                "by": by,
            }
    kernel = find_kernel(settings.kernel)
    for one in shapes(settings.quick):
        for (dtype, n_threads), (product, memory) in peaks.items():
            X, start = pooled(one, dtype)
            step = _step(kernel, X, start, n_threads)
            with limited(n_threads):
                taken = spread(side_by_side({"step": step}, 1 if settings.quick else 7)["step"])
            operations, size = 2 * one.n * one.k * one.m, X.nbytes
            limits = {"product": operations / product, "memory": size / memory}
            yield {
                "table": "fraction",
                "n": one.n,
                "m": one.m,
                "k": one.k,
                "dtype": dtype,
                "n_threads": n_threads,
                "step": taken,
                "gflops": operations / taken["median"] / 1e9,
                "of_product": limits["product"] / taken["median"],
                "gbytes": size / taken["median"] / 1e9,
                "of_memory": limits["memory"] / taken["median"],
                "bound": max(limits, key=limits.get),
                "of_limit": max(limits.values()) / taken["median"],
            }


def _step(kernel, X: np.ndarray, start: np.ndarray, n_threads: int) -> Callable[[], object]:
    return lambda: kernel.lloyd_step(X, start, n_threads=n_threads)


def product_rate(dtype: str, n_threads: int, quick: bool) -> float:
    """Operations per second of a large matrix product."""
    size = 1024 if quick else 4096
    a, b = np.random.default_rng(0).random((2, size, size)).astype(dtype)
    out = np.empty_like(a)
    with limited(n_threads):
        return 2 * size**3 / fastest(lambda: np.matmul(a, b, out=out), 1 if quick else 5)


def memory_rate(dtype: str, n_threads: int, quick: bool) -> tuple[float, str]:
    """Bytes per second, and the operation that reaches them; each thread works on its own part."""
    # Each of the two arrays is far larger than any cache.
    n = (2**22 if quick else 2**28) // np.dtype(dtype).itemsize
    a, b = np.ones(n, dtype=dtype), np.zeros(n, dtype=dtype)
    pairs = list(zip(np.array_split(a, n_threads), np.array_split(b, n_threads), strict=True))
    ways = {
        "copying": (lambda pair: np.copyto(pair[1], pair[0]), 2),
        "adding up": (lambda pair: pair[0].sum(), 1),
        "scalar product": (lambda pair: np.dot(*pair), 2),
    }
    rates = {}
    with threadpool_limits(1), ThreadPoolExecutor(n_threads) as pool:
        for name, (work, n_arrays) in ways.items():
            taken = fastest(lambda work=work: list(pool.map(work, pairs)), 1 if quick else 7)
            rates[name] = n_arrays * a.nbytes / taken
    by = max(rates, key=rates.get)
    return rates[by], by
