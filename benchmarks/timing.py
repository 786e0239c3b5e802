"""What every section needs: clocks, thread limits, spreads, and what machine this is."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

# Threads of OpenMP look out for more work before they go to sleep: hundreds of thousands of times, or for
# some tens of milliseconds.
_AWAKE_S = 0.1
PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "faiss-cpu", "fedkmeans")


@dataclass(frozen=True)
class Settings:
    """What the command line says: a smoke test or the real thing, and with which of our kernels."""

    quick: bool = False
    kernel: str = "numba"


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """How long a call takes, and what it returns."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def side_by_side(sides: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Time the sides in turns, so that a machine that slows down slows all of them down.

    Before each timed call there are some that are not: one may compile, or load a library, and threads
    of the side before stay awake for a while and take the core from whoever comes next. What is timed is
    a call among others of its kind.
    """
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, function in sides.items():
            quiet = time.perf_counter() + _AWAKE_S
            function()
            while time.perf_counter() < quiet:
                function()
            taken[name].append(seconds(function)[0])
    return taken


def faster_threads(n_threads: int, work: Callable[[int], Any]) -> int:
    """How many of its threads the other side should use: on small clients, a second one may only cost."""
    taken = side_by_side({str(n): partial(work, n) for n in range(1, n_threads + 1)}, 2)
    return int(min(taken, key=lambda n: min(taken[n])))


def fastest(function: Callable[[], Any], repeats: int) -> float:
    """The least seconds of a call: what the machine can do when nothing comes between."""
    return min(side_by_side({"it": function}, repeats)["it"])


def spread(values: list[float]) -> dict[str, float]:
    return {
        "median": float(np.median(values)),
        "min": float(np.min(values)),
        "max": float(np.max(values)),
    }


def ratios(theirs: list[float], ours: list[float]) -> dict[str, float]:
    """How many times faster we are, from pairs that were timed one after the other."""
    return spread([one / other for one, other in zip(theirs, ours, strict=True)])


@contextmanager
def limited(n_threads: int) -> Iterator[None]:
    """Let BLAS and OpenMP of every library here have that many threads and no more."""
    before = faiss.omp_get_max_threads()
    with threadpool_limits(n_threads):
        faiss.omp_set_num_threads(n_threads)
        try:
            yield
        finally:
            faiss.omp_set_num_threads(before)


def machine() -> dict[str, Any]:
    """Where this is measured; the load says whether the machine had other things to do."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
