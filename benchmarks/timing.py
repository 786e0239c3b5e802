"""Timing, thread limits, spreads and a description of the machine, for all sections."""

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

# OpenMP threads spin for up to some tens of milliseconds before they sleep.
_SPINNING_S = 0.1
PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "faiss-cpu", "fedkmeans")


@dataclass(frozen=True)
class Settings:
    """Options of the command line: whether it is only a quick check, and our kernel."""

    quick: bool = False
    kernel: str = "numba"


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a call takes, and its result."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def side_by_side(sides: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Time the sides alternately, so that a change of the machine's load affects all of them.

    Each timed call follows calls of the same function that are not timed. The first call may compile code
    or load a library, and threads of the side before it spin for a while and occupy a core.
    """
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, function in sides.items():
            until = time.perf_counter() + _SPINNING_S
            function()
            while time.perf_counter() < until:
                function()
            taken[name].append(seconds(function)[0])
    return taken


def faster_threads(n_threads: int, work: Callable[[int], Any]) -> int:
    """Return the number of threads with which the other side is fastest; on small clients it may be one."""
    taken = side_by_side({str(n): partial(work, n) for n in range(1, n_threads + 1)}, 2)
    return int(min(taken, key=lambda n: min(taken[n])))


def fastest(function: Callable[[], Any], repeats: int) -> float:
    """The smallest time of a call, in seconds."""
    return min(side_by_side({"it": function}, repeats)["it"])


def spread(values: list[float]) -> dict[str, float]:
    return {
        "median": float(np.median(values)),
        "min": float(np.min(values)),
        "max": float(np.max(values)),
    }


def ratios(theirs: list[float], ours: list[float]) -> dict[str, float]:
    """How many times faster ours is, from pairs that were timed one after the other."""
    return spread([one / other for one, other in zip(theirs, ours, strict=True)])


@contextmanager
def limited(n_threads: int) -> Iterator[None]:
    """Limit BLAS and OpenMP of every library to this number of threads."""
    before = faiss.omp_get_max_threads()
    with threadpool_limits(n_threads):
        faiss.omp_set_num_threads(n_threads)
        try:
            yield
        finally:
            faiss.omp_set_num_threads(before)


def machine() -> dict[str, Any]:
    """Describe the machine; its load shows whether other programs were running."""
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
