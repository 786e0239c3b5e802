"""Cache folders for compiled code and matplotlib's list of fonts.

A service often has no home folder, or may not write to it. It then uses a private folder among the temporary
files. Compiled code in a cache is executed, so a folder that another user made or can write to is not used.
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
    """Return the folder for one kind of cached files, which is created if needed.

    It is ``fedkmeans/name`` in ``$XDG_CACHE_HOME`` or in ``~/.cache``, else ``name`` in a folder among the
    temporary files; None where there is no folder that only this user can write.
    """
    folders = (folder / name for folder in _candidates())
    return next(filter(make_private, folders), None)


def make_private(folder: Path) -> bool:
    """Create a folder if needed; return whether it is writable for this user, no link, and only theirs."""
    try:
        for missing in reversed([place for place in (folder, *folder.parents) if not place.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return is_own and is_writable(folder)


def is_writable(folder: Path) -> bool:
    """Whether a file can be written to a folder, which is created if needed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def prepare_matplotlib() -> None:
    """Give matplotlib a writable folder if it has none; call this before importing it.

    Otherwise matplotlib creates a new folder and lists all fonts in each process, and warns.
    """
    home = _home()
    at_home = home is not None and os.access(home, os.W_OK)
    chosen = os.environ.get("MPLCONFIGDIR") or os.environ.get("XDG_CONFIG_HOME")
    if at_home or chosen or "matplotlib" in sys.modules:
        return
    if (folder := writable_cache("matplotlib")) is not None:
        os.environ["MPLCONFIGDIR"] = str(folder)


def _candidates() -> Iterator[Path]:
    """Yield folders for caches, the preferred one first; the last one is among the temporary files."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():  # the standard says to ignore other paths
        yield given / "fedkmeans"
    if (home := _home()) is not None:
        yield home / ".cache" / "fedkmeans"
    try:
        around = Path(tempfile.gettempdir())
        found = around.stat()
    except OSError:
        return
    # Nobody else may be able to replace the folder.
    is_sticky = found.st_mode & stat.S_ISVTX
    if found.st_uid not in (0, os.geteuid()) or (found.st_mode & 0o022 and not is_sticky):
        return
    folder = around / f"fedkmeans-cache-{os.geteuid()}"
    is_new = not folder.exists()
    if make_private(folder):
        if is_new:
            warnings.warn(
                f"This user has no cache folder that can be written; {str(folder)!r} is used, and lost with "
                "other temporary files. Set XDG_CACHE_HOME to a folder that stays.",
                stacklevel=2,
            )
        yield folder


def _home() -> Path | None:
    """Return the home of this user; a user that the machine does not list, as in containers, has none."""
    try:
        return Path.home()
    except RuntimeError:
        return None
