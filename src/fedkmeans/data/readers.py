"""Read the columns of a data file of any known format, without selecting or checking values."""

import csv
import stat
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedkmeans._utils.typing import DataArray
from fedkmeans.data.columns import Column
from fedkmeans.data.leaf import read_leaf
from fedkmeans.data.text import read_text
from fedkmeans.data.wording import is_control, listing, one_line, subject
from fedkmeans.errors import DataError

_NUMPY_MARKS = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")  # an array, an archive, an empty archive
_OBJECTS = "Object arrays cannot be loaded"  # from NumPy, for arrays that need pickle


@dataclass(frozen=True)
class RawTable:
    """The columns of a file, unchanged.

    Attributes
    ----------
    names : tuple of str
        Column names; x0, x1, … if the file has none.
    columns : tuple of columns, each of length n_rows
        NumPy arrays or pyarrow chunked arrays.
    n_rows : int
    is_named : bool
        Whether the names come from the file.
    matrix : ndarray of shape (n_rows, n_columns) or None
        The same values, if the file stores them as one array.
    labels, clients : column or None
        Labels and clients that the format stores separately (``.npz`` and LEAF).
    """

    names: tuple[str, ...]
    columns: tuple[Column, ...]
    n_rows: int
    is_named: bool
    matrix: DataArray | None = None
    labels: Column | None = None
    clients: Column | None = None


def read_raw(path: Path, client_name: str | None = None, header: bool | None = None) -> RawTable:
    """Read a data file with the reader for its suffix.

    Parameters
    ----------
    path : pathlib.Path
    client_name : str, optional
        Name of the client, for error messages.
    header : bool, optional
        Whether the first line of a text file is a header; detected by default.

    Raises
    ------
    DataError
        The file is missing, damaged or of an unknown format, or column names are missing or repeated.
    """
    who = subject(path, client_name)
    reader = READERS.get(path.suffix.lower())
    _refuse_no_file(path, who)
    if reader is None:
        raise DataError(f"{who} has an unknown format; save it as one of {listing(READERS, len(READERS))}")
    with _damage_named(who):
        raw = reader(path, client_name, header)
    _refuse_bad_names(who, raw.names)
    repeated = [name for name, times in Counter(raw.names).items() if times > 1]
    if repeated:
        raise DataError(f"{who} has more than one column called {listing(repeated)}; rename them in the file")
    return raw


def _refuse_no_file(path: Path, who: str) -> None:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise DataError(
                f"{who} is a link to {str(path.readlink())!r}, which does not exist; correct the link"
            ) from None
        raise DataError(f"{who} does not exist; check the path") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{who} cannot be read: {one_line(error)}; check the path") from error
    if stat.S_ISDIR(mode):
        raise DataError(f"{who} is a folder, not a regular file; name a file in it")
    if not stat.S_ISREG(mode):
        raise DataError(f"{who} is not a regular file; copy what it gives into one")


def _refuse_bad_names(who: str, names: tuple[str, ...]) -> None:
    for position, name in enumerate(names, 1):
        if not name.strip():
            guess = " (row numbers?)" if position == 1 else ""
            raise DataError(
                f"{who}: column {position} has no name{guess}; name it in the file or export without it"
            )
        if name.startswith("__index_level_"):  # pandas' name for an index without a name
            raise DataError(f"{who}: column {name!r} holds row numbers; save the file with index=False")
        if any(map(is_control, name)):
            raise DataError(
                f"{who}: the name of column {position}, {name!r}, has control characters; rename it in the "
                "file"
            )


@contextmanager
def _damage_named(who: str) -> Iterator[None]:
    """Convert any error of a reader into one error that names the file."""
    try:
        yield
    except DataError:
        raise
    except (
        pa.ArrowException,
        OSError,
        EOFError,
        ValueError,
        KeyError,
        MemoryError,  # a damaged header may announce any size
        NotImplementedError,  # zip files with a compression that does not exist
        csv.Error,
        tokenize.TokenError,  # from NumPy's parser of .npy headers
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise DataError(
            f"{who} cannot be read, it is damaged or not of the format its suffix says: {one_line(error)}; "
            "export it again"
        ) from error


def _read_text(path: Path, client_name: str | None, header: bool | None) -> RawTable:
    layout, table = read_text(path, client_name, header)
    return _from_arrow(table, layout.has_header)


def _read_parquet(path: Path, client_name: str | None, header: bool | None) -> RawTable:
    # ParquetFile reads only this file, and does not derive columns from the names of folders.
    with pq.ParquetFile(path, memory_map=True) as file:
        return _from_arrow(file.read())


def _read_arrow(path: Path, client_name: str | None, header: bool | None) -> RawTable:
    with pa.memory_map(str(path)) as source:
        magic = source.read(6)
        source.seek(0)
        # Arrow has two formats with one suffix: the file starts with a magic number, the stream does not.
        opened = pa.ipc.open_file(source) if magic == b"ARROW1" else pa.ipc.open_stream(source)
        table = opened.read_all()
        table.validate(full=True)
        return _from_arrow(table)


def _read_npy(path: Path, client_name: str | None, header: bool | None) -> RawTable:
    who = subject(path, client_name)
    with _opened_numpy(path, who) as found:
        if not isinstance(found, np.ndarray):
            raise DataError(f"{who} is an .npz archive; give it the suffix .npz")
        return _from_matrix(who, found)


def _read_npz(path: Path, client_name: str | None, header: bool | None) -> RawTable:
    who = subject(path, client_name)
    with _opened_numpy(path, who) as archive:
        if isinstance(archive, np.ndarray):
            raise DataError(f"{who} is an .npy array; give it the suffix .npy")
        if "X" not in archive:
            raise DataError(
                f"{who} has no array 'X' but {listing(archive.files)}; save the rows under that name"
            )
        arrays = {key: _member(who, archive, key) for key in ("X", "y", "client") if key in archive}
    matrix = arrays.pop("X")
    for key, values in arrays.items():
        if values.shape != matrix.shape[:1]:
            raise DataError(
                f"{who}: array {key!r} has shape {values.shape} where 'X' has {matrix.shape[0]} rows; "
                "save one value per row"
            )
    return _from_matrix(who, matrix, arrays.get("y"), arrays.get("client"))


@contextmanager
def _opened_numpy(path: Path, who: str) -> Iterator[Any]:
    """Yield the array or the archive in a file, and close it."""
    with path.open("rb") as handle:
        start = handle.read(len(_NUMPY_MARKS[0]))
        handle.seek(0)
        # NumPy reports any other file as a pickle.
        if not start.startswith(_NUMPY_MARKS):
            raise ValueError("it does not start as NumPy's files do")
        try:
            found = np.load(handle, allow_pickle=False)
        except ValueError as error:
            if _OBJECTS not in str(error):
                raise
            raise DataError(
                f"{who} holds Python objects, not numbers; save it with a numeric dtype"
            ) from None
        yield found


def _member(who: str, archive: Any, key: str) -> DataArray:
    try:
        values: DataArray = archive[key]
    except ValueError as error:
        if _OBJECTS not in str(error):
            raise
        kind = "numeric dtype" if key == "X" else "numeric or text dtype"
        raise DataError(
            f"{who}: array {key!r} holds Python objects, not numbers; save it with a {kind}"
        ) from None
    return values


def _read_leaf(path: Path, client_name: str | None, header: bool | None) -> RawTable:
    file = read_leaf(path)
    return _from_matrix(subject(path, client_name), file.X, file.y, np.array(file.users)[file.clients])


def _from_arrow(table: Any, is_named: bool = True) -> RawTable:
    return RawTable(tuple(table.column_names), tuple(table.columns), table.num_rows, is_named)


def _from_matrix(
    who: str, matrix: DataArray, labels: DataArray | None = None, clients: DataArray | None = None
) -> RawTable:
    if matrix.ndim != 2:
        raise DataError(
            f"{who} holds an array of shape {matrix.shape}; save a table of rows and columns (2-D), "
            "with reshape(-1, 1) for a single column"
        )
    columns = tuple(matrix.T)
    names = tuple(f"x{i}" for i in range(len(columns)))
    return RawTable(names, columns, len(matrix), False, matrix, labels, clients)


READERS: dict[str, Callable[[Path, str | None, bool | None], RawTable]] = {
    ".csv": _read_text,
    ".tsv": _read_text,
    ".txt": _read_text,
    ".data": _read_text,
    ".parquet": _read_parquet,
    ".feather": _read_arrow,
    ".arrow": _read_arrow,
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".json": _read_leaf,
}

TEXT_SUFFIXES = frozenset(suffix for suffix, reader in READERS.items() if reader is _read_text)
