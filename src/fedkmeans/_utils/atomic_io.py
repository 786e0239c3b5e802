"""Write files and folders atomically: a reader sees the old one or the complete new one."""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkmeans.errors import DataError

# Errors of a full disk.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary file in the same folder; it replaces `path` when the block succeeds.

    The temporary file is created empty, flushed to disk before it is moved, and removed if the block
    raises. A DataError is raised where the folder does not exist or cannot be written to, or where `path`
    is a folder, a device or a pipe.
    """
    target = Path(path).resolve()  # so that a link keeps pointing at the file it names
    if target.is_dir():
        raise DataError(f"cannot write file {str(path)!r}: it is a folder; give the name of a file in it")
    if target.exists() and not target.is_file():
        # Moving a file onto a device or a pipe would remove it.
        raise DataError(f"cannot write file {str(path)!r}: it is no regular file; choose another name")
    temporary = _beside(target, "tmp")
    with _as_data_error(path):
        # Not tempfile.mkstemp: its files are private to the owner, whatever the umask says.
        temporary.touch(exist_ok=False)
    try:
        yield temporary
        with _as_data_error(path):
            _flush(temporary)
            temporary.replace(target)
            flush_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder with the same parent; it replaces `path` when the block succeeds.

    A folder that exists at `path` is renamed when the new one is complete, and deleted when the new one
    has its name. A DataError is raised where the parent does not exist or cannot be written to, or where
    `path` is a file.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_dir():
        raise DataError(
            f"cannot write folder {str(path)!r}: a file has that name; remove it or choose another"
        )
    temporary = _beside(target, "tmp")
    with _as_data_error(path):
        temporary.mkdir()
    try:
        yield temporary
        with _as_data_error(path):
            for file in temporary.rglob("*"):
                if file.is_file():
                    _flush(file)
            old = target.rename(_beside(target, "old")) if target.exists() else None
            try:
                temporary.rename(target)
            except OSError:
                if old is not None:
                    old.rename(target)
                raise
            if old is not None:
                shutil.rmtree(old)
            flush_folder(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # moved away if the block succeeded


def _beside(target: Path, ending: str) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(6)}.{ending}")


@contextmanager
def _as_data_error(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else str(error)  # without the temporary path
        remedy = "choose a place in an existing folder that you may write to"
        if error.errno in FULL:
            remedy = "make room, or choose another place"
        raise DataError(f"cannot write {os.fspath(path)!r}: {cause}; {remedy}") from error


def _flush(file: Path) -> None:
    with file.open("rb+") as handle:
        os.fsync(handle.fileno())


def flush_folder(folder: Path) -> None:
    """Flush the list of names of a folder to disk."""
    # Only POSIX systems can open a folder; elsewhere the rename is enough.
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
