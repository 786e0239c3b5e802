"""Time that compiled code takes to get ready: to be imported, compiled, or read from disk.

It is spent once on a machine or once in a process, and says nothing about how long a run takes. Whoever
measures a run with a `Stopwatch` leaves it out. Compiling is announced once in a process, on the logger
``fedkmeans.kernels``, as it may take ten seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

log = logging.getLogger("fedkmeans.kernels")


class _Preparation:
    """Adds up the time during which something is prepared; what overlaps, in any threads, counts once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way, self._since, self._seconds = 0, 0.0, 0.0

    def start(self) -> None:
        """Something begins to be prepared."""
        with self._lock:
            if not self._under_way:
                self._since = time.perf_counter()
            self._under_way += 1

    def stop(self) -> None:
        """It is ready, or has failed."""
        with self._lock:
            self._under_way -= 1
            if not self._under_way:
                self._seconds += time.perf_counter() - self._since

    def seconds(self) -> float:
        """Seconds of preparation in this process so far."""
        with self._lock:
            return self._seconds + (time.perf_counter() - self._since if self._under_way else 0.0)


PREPARATION = _Preparation()


@contextmanager
def preparing() -> Iterator[None]:
    """Count the time of a block as preparation."""
    PREPARATION.start()
    try:
        yield
    finally:
        PREPARATION.stop()


class Stopwatch:
    """Tells the time since it was made, in seconds, apart from the time that preparation took meanwhile."""

    def __init__(self) -> None:
        self._started, self._prepared = time.perf_counter(), PREPARATION.seconds()

    def preparation(self) -> float:
        """Seconds of preparation."""
        return PREPARATION.seconds() - self._prepared

    def seconds(self) -> float:
        """Seconds of everything else."""
        return time.perf_counter() - self._started - self.preparation()


@cache  # called with the same arguments again, it does nothing
def announce_compiling(is_kept: bool, /) -> None:
    """Say once in a process that something is being compiled, and whether the next one finds it done."""
    often = "once on this machine" if is_kept else "in this process"
    log.info("Compiling for this kind of data, %s; it takes ten seconds or so.", often)
