"""Compiling with Numba: once on a machine, wherever there is a place to keep what was compiled.

Python's garbage collector keeps still meanwhile. A compiler makes millions of small objects and throws few
away before it is done; the collector goes through them again and again, which took a tenth of the time.
"""

from __future__ import annotations

import gc
import hashlib
import pickle
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import config, njit
from numba.core import caching, event

from fedkmeans.cache_folder import is_writable, writable_cache
from fedkmeans.kernels.preparation import PREPARATION, announce_compiling, preparing


def kept(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`njit` with compiled code that is kept on disk; where it cannot be kept, every process compiles it."""

    def compile_once(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**options)(function)
        if dispatcher is function:  # NUMBA_DISABLE_JIT is set
            return function
        if _folder_of(function.__code__.co_filename) is None:
            _warn_that_nothing_is_kept("no folder for it can be written")
        else:
            dispatcher._cache = _CompiledCode(function)
        return dispatcher

    return compile_once


@cache
def _folder_of(file: str) -> Path | None:
    """The folder for the compiled code of a file; None where none can be written.

    Numba looks in much the same places, but ends with an error where it finds none, and makes a folder that
    is called "~" for a user who has no home.
    """
    # Copies of this package in several places must not share what is kept.
    place: str = _Locator.get_suitable_cache_subpath(file)
    given = [Path(config.CACHE_DIR) / place] if config.CACHE_DIR else []  # type: ignore[attr-defined]
    for folder in (*given, Path(file).parent / "__pycache__"):
        if is_writable(folder):
            return folder
    own = writable_cache("numba")
    return None if own is None else own / place


@cache
def _warn_that_nothing_is_kept(why: str) -> None:
    warnings.warn(
        f"Compiled code is not kept: {why}. Every process compiles it again, which takes ten seconds or so. "
        "Set NUMBA_CACHE_DIR to a folder that can be written.",
        stacklevel=3,
    )


class _Locator(caching._CacheLocator):
    """Tells Numba where the compiled code of a function is, and of which source it must be."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._file, self._line = file, function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        return cls(py_func, py_file)

    def get_cache_path(self) -> str:
        return str(_folder_of(self._file))

    def get_source_stamp(self) -> str:
        return _digest(self._file)

    def get_disambiguator(self) -> str:
        return str(self._line)


@cache
def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


class _Files(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012 - as in the class that it is derived from


class _CompiledCode(caching.FunctionCache):
    """The compiled code of one function on disk; it is never the reason that a fit fails."""

    _impl_class = _Files

    def load_overload(self, *arguments: Any) -> Any:
        """Read the code for some types; None if there is none, or none that is of any use.

        Numba reads what was left before it looks whether that is of the same source. Where it speaks of a
        class that is gone since, or is damaged, reading fails; then it is of no use, and is forgotten.
        """
        with preparing():
            try:
                return super().load_overload(*arguments)
            except (AttributeError, ImportError, EOFError, pickle.UnpicklingError):
                self.flush()
                return None

    def save_overload(self, *arguments: Any) -> None:
        """Write the code for some types."""
        with preparing():
            try:
                super().save_overload(*arguments)
            except OSError as error:  # the disk is full, say
                _warn_that_nothing_is_kept(f"{str(self.cache_path)!r} cannot be written ({error.strerror})")


class _WhileCompiling(event.Listener):
    """Counts the time while functions of one module are compiled, and lets the collector keep still."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._depth = 0
        self._was_on = False

    def on_start(self, event: event.Event) -> None:
        """A function begins to be compiled; Numba compiles in one thread at a time."""
        if not self._depth:
            dispatcher = event.data["dispatcher"]
            if dispatcher.py_func.__module__ != self._module:
                return
            announce_compiling(dispatcher.stats.cache_path is not None)
            PREPARATION.start()
            self._was_on = gc.isenabled()
            gc.disable()
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        """A function is compiled, with all that it calls, or has failed to be."""
        if not self._depth:
            return
        self._depth -= 1
        if not self._depth:
            if self._was_on:
                gc.enable()
            PREPARATION.stop()


def watch_compiling(module: str) -> None:
    """Do so whenever functions of this module are compiled."""
    event.register("numba:compile", _WhileCompiling(module))
