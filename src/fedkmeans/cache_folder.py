"""A folder for what can be made again but takes long: compiled code, matplotlib's list of fonts.

A service has often no home, or one that it cannot write. Then a folder among the temporary files takes
its place. Compiled code in a cache is run, so nobody else may write there: a folder that another user
made, or could write to, is not used.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path


@cache
def writable_cache(name: str) -> Path | None:
    """Return the folder for one kind of cached files, made if it was not there.

    Parameters
    ----------
    name : str
        What is cached.

    Returns
    -------
    pathlib.Path or None
        ``fedkmeans/name`` in ``$XDG_CACHE_HOME`` or in ``~/.cache``, else ``name`` in a folder among the
        temporary files that only this user can read or write; None where nothing can be written.
    """
    for folder in _user_caches():
        if is_writable(folder / name):
            return folder / name
    private = _private_temporary()
    return private / name if private is not None and is_writable(private / name) else None


def is_writable(folder: Path) -> bool:
    """Whether a file can be written to a folder, which is made if it was not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def prepare_matplotlib() -> None:
    """Give matplotlib a folder that can be written where it has none; to be called before it is imported.

    It would make a new one in each process, list all fonts anew, and complain.
    """
    home = _home()
    at_home = home is not None and os.access(home, os.W_OK)
    if at_home or "matplotlib" in sys.modules or os.environ.get("MPLCONFIGDIR"):
        return
    folder = writable_cache("matplotlib")
    if folder is not None:
        os.environ["MPLCONFIGDIR"] = str(folder)


def _user_caches() -> Iterator[Path]:
    """The places for caches of this user; there may be none."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():  # others are to be ignored, by the standard
        yield given / "fedkmeans"
    home = _home()
    if home is not None:
        yield home / ".cache" / "fedkmeans"


def _home() -> Path | None:
    """The home of this user; one who is not listed on this machine, as in containers, has none."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def _private_temporary() -> Path | None:
    """A folder among the temporary files that is this user's own; it is found again by other processes."""
    try:
        folder = Path(tempfile.gettempdir()) / f"fedkmeans-cache-{os.geteuid()}"
        folder.mkdir(mode=0o700)
        is_new = True
    except FileExistsError:
        is_new = False
    except OSError:
        return None
    if not _is_private(folder):
        return None
    if is_new:
        warnings.warn(
            f"This user has no cache folder that can be written; {str(folder)!r} is used, and lost with "
            "other temporary files. Set XDG_CACHE_HOME to a folder that stays.",
            stacklevel=2,
        )
    return folder


def _is_private(folder: Path) -> bool:
    """Whether it is a real folder of this user that nobody else can write to, or put another in its place."""
    try:
        found, around = folder.lstat(), folder.parent.stat()
    except OSError:
        return False
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return is_own and (bool(around.st_mode & stat.S_ISVTX) or not around.st_mode & 0o022)
