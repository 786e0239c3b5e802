"""Compiling with Numba: once on a machine, wherever there is a place to keep what was compiled.

Python's garbage collector keeps still meanwhile. A compiler makes millions of small objects and throws few
away before it is done; the collector goes through them again and again, which took a tenth of the time.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba import config, njit
from numba.core import caching, event

from fedkmeans._utils.cache_folder import is_writable, make_private, writable_cache
from fedkmeans.kernels.preparation import PREPARATION, announce_compiling, preparing

# What reading a file of compiled code may raise that is damaged, of another version, or not ours to read.
_UNREADABLE = (
    *(OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError),
    *(ValueError, TypeError, LookupError, OverflowError, MemoryError),
)


def kept(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`njit` with compiled code that is kept on disk; where it cannot be kept, every process compiles it."""

    def compile_once(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**options)(function)
        if dispatcher is function:  # NUMBA_DISABLE_JIT is set
            return function
        file = function.__code__.co_filename
        if not Path(file).is_file():  # as in a program that was packed into one file
            _warn_that_nothing_is_kept("its source is not a file of its own")
        elif _folder_of(file) is None:
            _warn_that_nothing_is_kept("there is no folder for it that only this user can write")
        else:
            dispatcher._cache = _CompiledCode(function)
        return dispatcher

    return compile_once


@cache
def _folder_of(file: str) -> Path | None:
    """The folder for the compiled code of a file; None where there is none.

    Numba looks in much the same places, but ends with an error where it finds none, and makes a folder that
    is called "~" for a user who has no home.
    """
    for folder in _chosen_folders(file):
        if is_writable(folder):
            return folder
    cache_folder = writable_cache("numba")
    own = None if cache_folder is None else cache_folder / _place_of(file)
    return own if own is not None and make_private(own) else None


def _chosen_folders(file: str) -> list[Path]:
    """Folders that are as trustworthy as the source: the one that was named, and the one beside it."""
    given = config.CACHE_DIR  # type: ignore[attr-defined]
    return [*([Path(given) / _place_of(file)] if given else []), Path(file).parent / "__pycache__"]


def _place_of(file: str) -> str:
    """A name for the folder of a file: copies of this package in several places share nothing."""
    return str(_Locator.get_suitable_cache_subpath(file))


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
        self._py_file, self._line = file, function.__code__.co_firstlineno  # Numba reads the first, too

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        return cls(py_func, py_file)

    def get_cache_path(self) -> str:
        return str(_folder_of(self._py_file))

    def ensure_cache_path(self) -> None:
        """Make the folder if it is gone, as temporary files may be; raise if it is not safe any more."""
        folder = Path(self.get_cache_path())
        if folder not in _chosen_folders(self._py_file) and not make_private(folder):
            raise PermissionError(errno.EACCES, "others could write there", str(folder))

    def get_source_stamp(self) -> str:
        return source_digest(self._py_file)

    def get_disambiguator(self) -> str:
        return str(self._line)


@cache
def source_digest(file: str) -> str:
    """Tell one content of a source from another; its time of change differs between copies."""
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
                self._impl.locator.ensure_cache_path()
                return super().load_overload(*arguments)
            except _UNREADABLE:
                with suppress(OSError):  # then it cannot be written either, which is told there
                    self.flush()
                return None

    def save_overload(self, *arguments: Any) -> None:
        """Write the code for some types."""
        with preparing():
            try:
                super().save_overload(*arguments)
            except _UNREADABLE as error:  # the disk is full, say
                reason = getattr(error, "strerror", None) or type(error).__name__
                _warn_that_nothing_is_kept(f"{str(self.cache_path)!r} cannot be used ({reason})")


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
