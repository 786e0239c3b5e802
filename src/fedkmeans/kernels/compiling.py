"""Compiling in less time: Python's garbage collector keeps still meanwhile.

A compiler makes millions of small objects and throws few away before it is done. The collector goes
through them again and again, which took a tenth of the time.
"""

from __future__ import annotations

import gc

from numba.core import event


class _CollectorKeepsStill(event.Listener):
    """Pauses the collector while functions of one module are compiled, with all that they call."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._depth = 0
        self._was_on = False

    def on_start(self, event: event.Event) -> None:
        """A function begins to be compiled; Numba compiles in one thread at a time."""
        if not self._depth and event.data["dispatcher"].py_func.__module__ != self._module:
            return
        if not self._depth:
            self._was_on = gc.isenabled()
            gc.disable()
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        """A function is compiled, or has failed to be."""
        if not self._depth:
            return
        self._depth -= 1
        if not self._depth and self._was_on:
            gc.enable()


def keep_collector_still(module: str) -> None:
    """Pause the garbage collector whenever functions of this module are compiled."""
    event.register("numba:compile", _CollectorKeepsStill(module))
