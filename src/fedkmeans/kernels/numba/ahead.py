"""Compiling ahead, in a second process: what a run needs later, while this one compiles what it needs first.

Compiling takes seconds, once on a machine for each type of numbers, and Numba does it in one thread.
Another process therefore compiles a part of it (`ahead_child`) and leaves that in Numba's cache, where
this one finds it. If that fails, nothing is lost but time: what is not in the cache is compiled here.
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

from fedkmeans.kernels.numba import compiled
from fedkmeans.kernels.numba.compiling import source_digest
from fedkmeans.kernels.preparation import announce_compiling, preparing

# What the other process compiles; it says so when each is in the cache.
SCAN, STEPS = "scan", "steps"


@dataclass(slots=True)
class _Child:
    """A process that compiles, and what it has said so far."""

    process: subprocess.Popen[str]
    said: set[str] = field(default_factory=set)
    lock: Lock = field(default_factory=Lock)

    def wait(self, for_what: str) -> bool:
        """Wait until it says something; returns whether there is more to come."""
        with self.lock:
            while for_what not in self.said:
                line = self.process.stdout.readline() if self.process.stdout else ""
                if not line:  # it has ended, well or not
                    return False
                self.said.add(line.strip())
            return STEPS not in self.said


_children: dict[str, _Child] = {}
# A forked process has no part in what its parent began.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_children.clear)


def begin(dtype: Any, max_local: int) -> None:
    """Begin to compile for rows of this type, unless that was done on this machine already."""
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
    """Wait until something that is being compiled is there; returns at once if nothing is."""
    child = _children.get(np.dtype(dtype).name) if _children else None
    if child is not None:
        with preparing():
            if not child.wait(for_what):
                _finish(np.dtype(dtype).name)


def _finish(name: str) -> None:
    """Let the process come to its end, so that it writes nowhere after this one is gone."""
    child = _children.pop(name, None)
    if child is not None:
        child.process.communicate()


def _stamp(name: str, several: bool) -> Path | None:
    """A file that is there once rows of this type are compiled for; None where it cannot be had.

    It is named after the source, as what was compiled before an update is of no use after it.
    """
    folder = _cache_folder()
    # Without a second core there is nothing to gain; a frozen program is no Python to be started.
    if folder is None or _n_cores() < 2 or not sys.executable or getattr(sys, "frozen", False):
        return None
    kind = f"{name}-{'steps' if several else 'step'}"
    return Path(folder) / f"ahead-{kind}-{source_digest(compiled.__file__)[:16]}"


def _cache_folder() -> str | None:
    """Where Numba keeps compiled code, if it can."""
    folder = compiled.scan.stats.cache_path
    return folder if folder is not None and os.access(folder, os.W_OK) else None


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
