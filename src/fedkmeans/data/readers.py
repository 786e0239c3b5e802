"""Read a data file of any known format into columns, before anything is checked or chosen."""

import csv
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

from fedkmeans.data.columns import Column
from fedkmeans.data.leaf import read_leaf
from fedkmeans.data.messages import listing, one_line, subject
from fedkmeans.data.text import read_text
from fedkmeans.errors import DataError
from fedkmeans.typing import DataArray


@dataclass(frozen=True)
class RawTable:
    """The columns of a file as they stand.

    Attributes
    ----------
    names : tuple of str
        Column names; x0, x1, … where the file has none.
    columns : tuple of columns, each of length n_rows
        NumPy arrays or pyarrow chunked arrays.
    n_rows : int
    is_named : bool
        Whether the names come from the file.
    matrix : ndarray of shape (n_rows, n_columns) or None
        The same values, where the file holds them as one array.
    labels, clients : column or None
        Kept apart from the columns by the format itself (``.npz`` and LEAF).
    """

    names: tuple[str, ...]
    columns: tuple[Column, ...]
    n_rows: int
    is_named: bool
    matrix: DataArray | None = None
    labels: Column | None = None
    clients: Column | None = None


def read_raw(path: Path, client_name: str | None = None) -> RawTable:
    """Read a data file by the reader for its suffix.

    Raises
    ------
    DataError
        The file is absent, of an unknown format, damaged, or has two columns of one name.
    """
    who = subject(path, client_name)
    reader = READERS.get(path.suffix.lower())
    if not path.is_file():
        raise DataError(f"{who} does not exist or is no file; check the path")
    if reader is None:
        raise DataError(f"{who} has an unknown format; save it as one of {listing(READERS, len(READERS))}")
    with _damage_named(who):
        raw = reader(path, client_name)
    repeated = [name for name, times in Counter(raw.names).items() if times > 1]
    if repeated:
        raise DataError(f"{who} has more than one column called {listing(repeated)}; rename them in the file")
    return raw


@contextmanager
def _damage_named(who: str) -> Iterator[None]:
    """Turn whatever a reader of a damaged file raises into one error that names the file."""
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


def _read_text(path: Path, client_name: str | None) -> RawTable:
    layout, table = read_text(path, client_name)
    return _from_arrow(table, layout.has_header)


def _read_parquet(path: Path, client_name: str | None) -> RawTable:
    # ParquetFile, as it reads this one file and never guesses columns from the names of folders.
    with pq.ParquetFile(path, memory_map=True) as file:
        return _from_arrow(file.read())


def _read_arrow(path: Path, client_name: str | None) -> RawTable:
    with pa.memory_map(str(path)) as source:
        magic = source.read(6)
        source.seek(0)
        # Arrow has two layouts and one suffix: the file starts with a mark, the stream has none.
        opened = pa.ipc.open_file(source) if magic == b"ARROW1" else pa.ipc.open_stream(source)
        table = opened.read_all()
        table.validate(full=True)
        return _from_arrow(table)


def _read_npy(path: Path, client_name: str | None) -> RawTable:
    matrix = np.load(path, allow_pickle=False)
    if not isinstance(matrix, np.ndarray):
        matrix.close()
        raise DataError(f"{subject(path, client_name)} is an .npz archive; give it the suffix .npz")
    return _from_matrix(subject(path, client_name), matrix)


def _read_npz(path: Path, client_name: str | None) -> RawTable:
    who = subject(path, client_name)
    with np.load(path, allow_pickle=False) as archive:
        if "X" not in archive:
            raise DataError(
                f"{who} has no array 'X' but {listing(archive.files)}; save the rows under that name"
            )
        arrays = {key: archive[key] for key in ("X", "y", "client") if key in archive}
    matrix = arrays.pop("X")
    for key, values in arrays.items():
        if values.shape != matrix.shape[:1]:
            raise DataError(
                f"{who}: array {key!r} has shape {values.shape} where 'X' has {matrix.shape[0]} rows; "
                "save one value a row"
            )
    return _from_matrix(who, matrix, arrays.get("y"), arrays.get("client"))


def _read_leaf(path: Path, client_name: str | None) -> RawTable:
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


READERS: dict[str, Callable[[Path, str | None], RawTable]] = {
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
