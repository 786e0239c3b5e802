"""Checks of the places that commands write to; nothing is lost that is there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkmeans.data.readers import READERS
from fedkmeans.errors import DataError, ModelError
from fedkmeans.model import FILE_SUFFIX, check_destination, is_model


def check_model_place(out: Path, force: bool) -> None:
    """Raise unless a model can be saved at `out`; with `force` a model there is replaced."""
    if out.suffix.lower() in READERS:
        raise ModelError(
            f"--out {str(out)!r} has the suffix of a data file; a model is a folder or NAME{FILE_SUFFIX}"
        )
    _refuse_here(out, f"a folder or NAME{FILE_SUFFIX}")
    _refuse_inside_model(out)
    check_destination(out)
    if not force and (out.is_file() or (out.is_dir() and any(out.iterdir()))):
        raise ModelError(f"{str(out)!r} holds a model; choose another --out, or replace it with --force")


def check_new_folder(out: Path) -> None:
    """Raise unless `out` can become a new folder."""
    _refuse_here(out, "a new folder")
    if out.is_dir() and any(out.iterdir()):
        raise DataError(f"folder {str(out)!r} is not empty; choose a new folder, or empty it first")
    if out.exists() and not out.is_dir():
        raise DataError(f"{str(out)!r} is a file, and a folder is needed; choose another name with --out")
    if out.suffix.lower() in READERS:
        raise DataError(
            f"--out {str(out)!r} has the suffix of a file, and several files go to a folder; name a folder"
        )
    _check_parent(out)


def check_new_file(out: Path, force: bool) -> None:
    """Raise unless `out` can become a file; with `force` a file there is replaced."""
    if out.is_dir():
        raise DataError(f"{str(out)!r} is a folder, and a file is needed; give the name of a file in it")
    if out.exists() and not force:
        raise DataError(f"file {str(out)!r} exists; choose another name, or replace it with --force")
    _check_parent(out)


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Report an error of writing with the name of the place, not with that of a temporary file."""
    try:
        yield
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else str(error)
        raise DataError(
            f"{str(out)!r} cannot be written: {cause}; check its permissions and the space on the disk"
        ) from error


def _refuse_here(out: Path, what: str) -> None:
    # An empty name also means the current folder, which must not be replaced.
    if out == Path():
        raise DataError(f"--out needs a name; give the name of {what}")


def _refuse_inside_model(out: Path) -> None:
    parent = out.absolute().parent
    if parent.is_dir() and is_model(parent):
        raise DataError(
            f"{str(out)!r} is inside the model {str(out.parent)!r}, which would no longer be one; choose "
            "another place"
        )


def _check_parent(out: Path) -> None:
    parent = out.resolve().parent
    if not parent.is_dir():
        raise DataError(
            f"{str(out)!r} cannot be written: {str(out.parent)!r} is not an existing folder; create it first"
        )
    _refuse_inside_model(out)
