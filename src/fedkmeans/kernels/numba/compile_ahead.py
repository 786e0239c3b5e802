"""Compile in a second process what a run needs later, while this one compiles what it needs first.

Compiling takes seconds, once per machine for each type of numbers, and Numba does it in one thread. The
other process leaves its code in the cache on disk, where this one finds it. If that fails, only time is
lost: what is not in the cache is compiled here.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedkmeans.kernels.base import Rows
from fedkmeans.kernels.numba.bounds_cache import BoundsCache
from fedkmeans.kernels.numba.compiling import source_digest
from fedkmeans.kernels.numba.jit import follow
from fedkmeans.kernels.numba.jit.structures import StepSettings
from fedkmeans.kernels.numba.kernel_cache import NO_SPREAD, GramMatrices, KernelCache
from fedkmeans.kernels.numba.scanning import as_clients, scan_rows
from fedkmeans.kernels.preparation import announce_compiling, preparing

_running: list[subprocess.Popen[bytes]] = []
# A forked process does not wait for the children of its parent.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_running.clear)


def start(dtype: Any, kind: str) -> None:
    """Start to compile for rows of this type and one "step" or several "steps", once per machine."""
    name, folder = np.dtype(dtype).name, _cache_folder()
    # Without a second core there is nothing to gain; a frozen program cannot be started as Python.
    if _running or folder is None or _n_cores() < 2 or not sys.executable or getattr(sys, "frozen", False):
        return
    # Code compiled before an update is useless after it, so the name contains a digest of the source.
    stamp = folder / f"ahead-{name}-{kind}-{source_digest(Path(follow.__file__).parent)[:16]}"
    if not stamp.exists():
        announce_compiling(True)
        nothing = subprocess.DEVNULL
        command = [sys.executable, "-m", __name__, name, kind, str(stamp)]
        _running.append(subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing))


def wait() -> None:
    """Wait until it is compiled, or has failed; returns at once if nothing is being compiled."""
    if _running:
        with preparing():
            for process in _running:
                process.wait()
        _running.clear()


atexit.register(wait)  # so that nothing is written to disk after this process has ended


def _cache_folder() -> Path | None:
    """Where compiled code is kept, if anywhere."""
    stats = getattr(follow.follow_steps, "stats", None)  # None if NUMBA_DISABLE_JIT is set
    folder = None if stats is None else stats.cache_path
    return Path(folder) if folder is not None and os.access(folder, os.W_OK) else None


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main(dtype: str, kind: str, stamp: str) -> None:
    """Compile with a tiny example, and note that it is done."""
    numbers = 100 * np.random.default_rng(0).random((40, 24))
    rows, received, nobody = Rows.of(numbers.astype(dtype)), numbers[:8].copy(), np.empty(0, dtype=np.int64)
    data, bounds = KernelCache(as_clients(rows)).weighted, BoundsCache(rows, received, kind == "steps").arrays
    if kind == "steps":
        settings, grams = StepSettings(2, 0.0, False), GramMatrices(rows).arrays
        follow.follow_steps(data, nobody, received, settings, 2, grams, bounds)
    else:
        follow.follow_step(data, nobody, bounds, *NO_SPREAD)
    scan_rows(as_clients(rows), 0, len(numbers), received, n_threads=1)
    Path(stamp).touch()


if __name__ == "__main__":
    main(*sys.argv[1:])
