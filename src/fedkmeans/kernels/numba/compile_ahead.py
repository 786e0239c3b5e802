"""Compile in a second process what a run needs later, while this one compiles what it needs first.

Compiling takes seconds, once per machine for each type of numbers, and Numba does it in one thread. So
another process (`compile_ahead_child`) compiles a part and leaves it in the cache on disk, where this one
finds it. If that fails, only time is lost: what is not in the cache is compiled here.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from fedkmeans.kernels.numba import jit
from fedkmeans.kernels.numba.compiling import source_digest
from fedkmeans.kernels.numba.jit.scan import scan
from fedkmeans.kernels.preparation import announce_compiling, preparing

# What the other process compiles; it prints each name once it is in the cache.
SCAN, STEPS = "scan", "steps"


@dataclass(slots=True)
class _Child:
    """A process that compiles, and what it has printed so far."""

    process: subprocess.Popen[str]
    printed: set[str] = field(default_factory=set)
    lock: Lock = field(default_factory=Lock)

    def wait(self, for_what: str) -> bool:
        """Wait until it prints this; returns whether there is more to come."""
        with self.lock:
            while for_what not in self.printed:
                line = self.process.stdout.readline() if self.process.stdout else ""
                if not line:  # the process has ended, with or without an error
                    return False
                self.printed.add(line.strip())
            return STEPS not in self.printed


_children: dict[str, _Child] = {}
# A forked process does not wait for the children of its parent.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_children.clear)


def start(dtype: Any, max_local: int) -> None:
    """Start to compile for rows of this type, unless this machine has done so before."""
    name = np.dtype(dtype).name
    stamp = _stamp(name, max_local > 1)
    if name in _children or stamp is None or stamp.exists():
        return
    announce_compiling(True)
    process = subprocess.Popen(
        [sys.executable, "-m", f"{__name__}_child", name, str(min(max_local, 2)), str(stamp)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    _children[name] = _Child(process)
    atexit.register(_finish, name)


def wait(dtype: Any, for_what: str) -> None:
    """Wait until a part is compiled; returns at once if nothing is being compiled."""
    child = _children.get(np.dtype(dtype).name) if _children else None
    if child is not None:
        with preparing():
            if not child.wait(for_what):
                _finish(np.dtype(dtype).name)


def _finish(name: str) -> None:
    """Wait for the process to end, so that it does not write to disk after this one has ended."""
    child = _children.pop(name, None)
    if child is not None:
        child.process.communicate()


def _stamp(name: str, several: bool) -> Path | None:
    """A file that exists once compilation for rows of this type is done; None if it cannot be written.

    Its name contains a digest of the source, as code compiled before an update is useless after it.
    """
    folder = _cache_folder()
    # Without a second core there is nothing to gain; a frozen program cannot be started as Python.
    if folder is None or _n_cores() < 2 or not sys.executable or getattr(sys, "frozen", False):
        return None
    kind = f"{name}-{'steps' if several else 'step'}"
    return Path(folder) / f"ahead-{kind}-{source_digest(Path(jit.__path__[0]))[:16]}"


def _cache_folder() -> str | None:
    """Where compiled code is kept, if anywhere."""
    folder = scan.stats.cache_path
    return folder if folder is not None and os.access(folder, os.W_OK) else None


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
