"""Compiling with Numba, once per machine wherever there is a folder to keep compiled code in.

Compiled code belongs to the content of all source files in the folder of its function: a function is
compiled again if any of them changes, as it may call functions of the others.

Python's garbage collector is paused during compilation. The compiler creates millions of small objects
and frees few of them before it is done; going through them took a tenth of the time.
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

# Errors that reading compiled code may raise if the file is damaged, of another version, or not readable.
_UNREADABLE = (
    *(OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError),
    *(ValueError, TypeError, LookupError, OverflowError, MemoryError),
)


def kept(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`njit` that keeps compiled code on disk; where this is not possible, every process compiles it."""

    def compile_once(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**options)(function)
        if dispatcher is function:  # NUMBA_DISABLE_JIT is set
            return function
        file = function.__code__.co_filename
        if not Path(file).is_file():  # as in a program packed into one file
            _warn_that_nothing_is_kept("its source is not a file of its own")
        elif _folder_of(file) is None:
            _warn_that_nothing_is_kept("there is no folder for it that only this user can write")
        else:
            dispatcher._cache = _CompiledCode(function)
        return dispatcher

    return compile_once


@cache
def _folder_of(file: str) -> Path | None:
    """The folder for the compiled code of a file; None if there is none.

    Numba looks in similar places, but raises an error if it finds none, and creates a folder named "~" for
    a user without a home.
    """
    for folder in _chosen_folders(file):
        if is_writable(folder):
            return folder
    cache_folder = writable_cache("numba")
    own = None if cache_folder is None else cache_folder / _place_of(file)
    return own if own is not None and make_private(own) else None


def _chosen_folders(file: str) -> list[Path]:
    """Folders that are as trustworthy as the source: the configured one, and the one beside the source."""
    given = config.CACHE_DIR  # type: ignore[attr-defined]
    return [*([Path(given) / _place_of(file)] if given else []), Path(file).parent / "__pycache__"]


def _place_of(file: str) -> str:
    """Name of the folder for a file; it differs between copies of this package in different places."""
    return str(_Locator.get_suitable_cache_subpath(file))


@cache
def _warn_that_nothing_is_kept(why: str) -> None:
    warnings.warn(
        f"Compiled code is not kept: {why}. Every process compiles it again, which takes ten seconds or so. "
        "Set NUMBA_CACHE_DIR to a folder that can be written.",
        stacklevel=3,
    )


class _Locator(caching._CacheLocator):
    """Tells Numba where the compiled code of a function is, and which source it belongs to."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file, self._line = file, function.__code__.co_firstlineno  # Numba also reads the first

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        return cls(py_func, py_file)

    def get_cache_path(self) -> str:
        return str(_folder_of(self._py_file))

    def ensure_cache_path(self) -> None:
        """Create the folder if it was deleted, as temporary files may be; raise if it is no longer safe."""
        folder = Path(self.get_cache_path())
        if folder not in _chosen_folders(self._py_file) and not make_private(folder):
            raise PermissionError(errno.EACCES, "others could write there", str(folder))

    def get_source_stamp(self) -> str:
        return source_digest(Path(self._py_file).parent)

    def get_disambiguator(self) -> str:
        return str(self._line)


@cache
def source_digest(folder: Path) -> str:
    """Digest of the names and contents of all source files in a folder.

    Modification times are not used, as they differ between copies.
    """
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()


class _Files(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012 - as in the class that it is derived from


class _CompiledCode(caching.FunctionCache):
    """The compiled code of one function on disk; problems with it never make a fit fail."""

    _impl_class = _Files

    def load_overload(self, *arguments: Any) -> Any:
        """Read the code for some types; None if there is none, or if it cannot be used.

        Numba reads a file before it checks that it belongs to the same source. Reading fails if the file
        refers to a class that no longer exists, or is damaged; then it is deleted.
        """
        with preparing():
            try:
                self._impl.locator.ensure_cache_path()
                return super().load_overload(*arguments)
            except _UNREADABLE:
                with suppress(OSError):  # then writing fails as well, and warns
                    self.flush()
                return None

    def save_overload(self, *arguments: Any) -> None:
        """Write the code for some types."""
        with preparing():
            try:
                super().save_overload(*arguments)
            except _UNREADABLE as error:  # for example, the disk is full
                reason = getattr(error, "strerror", None) or type(error).__name__
                _warn_that_nothing_is_kept(f"{str(self.cache_path)!r} cannot be used ({reason})")


class _WhileCompiling(event.Listener):
    """Measures the time while functions of one package are compiled, and pauses the garbage collector."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._depth = 0
        self._was_on = False

    def on_start(self, event: event.Event) -> None:
        """Compilation of a function begins; Numba compiles in one thread at a time."""
        if not self._depth:
            dispatcher = event.data["dispatcher"]
            if not f"{dispatcher.py_func.__module__}.".startswith(f"{self._package}."):
                return
            announce_compiling(dispatcher.stats.cache_path is not None)
            PREPARATION.start()
            self._was_on = gc.isenabled()
            gc.disable()
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        """Compilation of a function and all functions that it calls ends, or fails."""
        if not self._depth:
            return
        self._depth -= 1
        if not self._depth:
            if self._was_on:
                gc.enable()
            PREPARATION.stop()


def watch_compiling(package: str) -> None:
    """Do so whenever functions of this package or module are compiled."""
    event.register("numba:compile", _WhileCompiling(package))
