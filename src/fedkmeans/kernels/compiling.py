"""Compiling in less time: once on a machine, and while Python's garbage collector keeps still.

A compiler makes millions of small objects and throws few away before it is done. The collector goes
through them again and again, which took a tenth of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import event


def kept(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`njit` with compiled code that is kept on disk, also where an earlier version has left some.

    Numba reads what was left before it looks whether that is of the same source. Where it speaks of a class
    that is gone since, reading fails; then it is of no use, and is forgotten.
    """

    def compile_once(function: Callable[..., Any]) -> Any:
        dispatcher = njit(cache=True, **options)(function)
        if dispatcher is function:  # NUMBA_DISABLE_JIT is set
            return function
        cache = dispatcher._cache
        load = cache.load_overload

        def load_if_possible(*arguments: Any) -> Any:
            try:
                return load(*arguments)
            except (AttributeError, ImportError):
                cache.flush()
                return None

        cache.load_overload = load_if_possible
        return dispatcher

    return compile_once


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
