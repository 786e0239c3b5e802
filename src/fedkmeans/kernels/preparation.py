"""Time for preparing compiled code: importing it, compiling it, or reading it from disk.

It is spent once per machine or once per process, and is not part of the time of a run: a `Stopwatch` leaves
it out. Compiling is announced once per process on the logger ``fedkmeans.kernels``, as it may take ten
seconds.
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
    """Adds up the time of preparation; preparations that overlap, in any threads, count once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way, self._since, self._seconds = 0, 0.0, 0.0

    def start(self) -> None:
        """A preparation begins."""
        with self._lock:
            if not self._under_way:
                self._since = time.perf_counter()
            self._under_way += 1

    def stop(self) -> None:
        """A preparation ends, or fails."""
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
    """Measures the seconds since it was created, separately for preparation and everything else."""

    def __init__(self) -> None:
        self._started, self._prepared = time.perf_counter(), PREPARATION.seconds()

    def preparation(self) -> float:
        """Seconds of preparation."""
        return PREPARATION.seconds() - self._prepared

    def seconds(self) -> float:
        """Seconds of everything else."""
        return time.perf_counter() - self._started - self.preparation()


@cache  # so that it logs once
def announce_compiling(is_kept: bool, /) -> None:
    """Log once per process that code is being compiled, and whether it is kept for later processes."""
    often = "once on this machine" if is_kept else "in this process"
    log.info("Compiling for this kind of data, %s; it takes ten seconds or so.", often)
