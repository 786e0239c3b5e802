"""Places that the command line may write to without losing what is there."""

from __future__ import annotations

from pathlib import Path

from fedkmeans.errors import DataError


def check_new_folder(out: Path) -> None:
    """Raise unless `out` can become a new folder: whatever is in a folder already would be lost."""
    if out.is_dir() and any(out.iterdir()):
        raise DataError(f"folder {str(out)!r} is not empty; choose a new folder, or empty it first")
    if out.exists() and not out.is_dir():
        raise DataError(f"{str(out)!r} is a file, and a folder is needed; choose another name with --out")
    _check_parent(out)


def check_new_file(out: Path, force: bool) -> None:
    """Raise unless `out` can become a file; one that is there is replaced only when forced."""
    if out.is_dir():
        raise DataError(f"{str(out)!r} is a folder, and a file is needed; give the name of a file in it")
    if out.exists() and not force:
        raise DataError(f"file {str(out)!r} exists; choose another name, or replace it with --force")
    _check_parent(out)


def _check_parent(out: Path) -> None:
    parent = out.resolve().parent
    if not parent.is_dir():
        raise DataError(
            f"{str(out)!r} cannot be written: {str(out.parent)!r} is not an existing folder; create it first"
        )
