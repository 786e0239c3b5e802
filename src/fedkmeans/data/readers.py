"""Read the columns of a data file of any known format, without selecting or checking values.

`READERS`, at the end, has the reader of each format; `text.py` and `leaf.py` have the longer ones.
"""

import csv
import stat
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedkmeans._utils.typing import DataArray
from fedkmeans.data.columns import Column
from fedkmeans.data.leaf import load_leaf
from fedkmeans.data.text import Layout, read_text
from fedkmeans.data.wording import is_control, listing, reading, subject
from fedkmeans.errors import DataError

_NUMPY_MARKS = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")  # an array, an archive, an empty archive

# What libraries raise for damaged files.
_DAMAGE = (
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
)


@dataclass(frozen=True)
class RawTable:
    """The columns of a file, unchanged.

    Attributes
    ----------
    columns : dict of str to column, each of length n_rows
        NumPy arrays or pyarrow chunked arrays by name; x0, x1, … if the file has no names.
    n_rows : int
    is_named : bool
        Whether the names come from the file.
    layout : Layout or None
        The layout of a text file.
    matrix : ndarray of shape (n_rows, n_columns) or None
        The same values, if the file stores them as one array.
    apart : dict of str to column
        Labels ``y`` and clients ``client`` that the format stores separately (``.npz`` and LEAF).
    """

    columns: dict[str, Column]
    n_rows: int
    is_named: bool
    layout: Layout | None = None
    matrix: DataArray | None = None
    apart: dict[str, Column] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.columns)


def read_raw(path: Path, client_name: str | None = None, header: bool | None = None) -> RawTable:
    """Read a data file with the reader for its suffix; the parameters are those of `read_table`."""
    who = subject(path, client_name)
    _refuse_no_file(path, who)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{who} has an unknown format; save it as one of {listing(READERS, len(READERS))}")
    damaged = ", it is damaged or not of the format its suffix says"
    with reading(who, "export it again", *_DAMAGE, why=damaged):
        return reader(path, who, header)


def _refuse_no_file(path: Path, who: str) -> None:
    with reading(who, "check the path", OSError, ValueError):
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            if not path.is_symlink():
                raise DataError(f"{who} does not exist; check the path") from None
            raise DataError(
                f"{who} is a link to {str(path.readlink())!r}, which does not exist; correct the link"
            ) from None
    if stat.S_ISDIR(mode):
        raise DataError(f"{who} is a folder, not a regular file; name a file in it")
    if not stat.S_ISREG(mode):
        raise DataError(f"{who} is not a regular file; copy what it gives into one")


def _read_text(path: Path, who: str, header: bool | None) -> RawTable:
    layout, table = read_text(path, who, header)
    return _from_arrow(who, table, layout)


def _read_parquet(path: Path, who: str, header: bool | None) -> RawTable:
    # ParquetFile reads only this file, and does not derive columns from the names of folders.
    with pq.ParquetFile(path, memory_map=True) as file:
        return _from_arrow(who, file.read())


def _read_arrow(path: Path, who: str, header: bool | None) -> RawTable:
    with pa.memory_map(str(path)) as source:
        magic = source.read(6)
        source.seek(0)
        # Arrow has two formats with one suffix: the file starts with a magic number, the stream does not.
        opened = pa.ipc.open_file(source) if magic == b"ARROW1" else pa.ipc.open_stream(source)
        table = opened.read_all()
        table.validate(full=True)
        return _from_arrow(who, table)


def _read_numpy(path: Path, who: str, header: bool | None) -> RawTable:
    with path.open("rb") as handle:
        # NumPy reports any other file as a pickle.
        if not handle.read(len(_NUMPY_MARKS[0])).startswith(_NUMPY_MARKS):
            raise ValueError("it does not start as NumPy's files do")
        handle.seek(0)
        with _objects_refused(who):
            found = np.load(handle, allow_pickle=False)
        what, suffix = ("array", ".npy") if isinstance(found, np.ndarray) else ("archive", ".npz")
        if suffix != path.suffix.lower():
            raise DataError(f"{who} is an {suffix} {what}; give it the suffix {suffix}")
        if isinstance(found, np.ndarray):
            return _from_matrix(who, found)
        if "X" not in found:
            raise DataError(
                f"{who} has no array 'X' but {listing(found.files)}; save the rows under that name"
            )
        arrays: dict[str, DataArray] = {}
        for key in ("X", "y", "client"):
            with _objects_refused(f"{who}: array {key!r}", "numeric" if key == "X" else "numeric or text"):
                arrays |= {key: found[key]} if key in found else {}
    return _from_matrix(who, arrays.pop("X"), arrays)


@contextmanager
def _objects_refused(who: str, kind: str = "numeric") -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if "Object arrays cannot be loaded" not in str(error):  # NumPy's words for arrays that need pickle
            raise
        raise DataError(f"{who} holds Python objects, not numbers; save it with a {kind} dtype") from None


def _read_leaf(path: Path, who: str, header: bool | None) -> RawTable:
    data = load_leaf(path)
    return _from_matrix(who, data.X, {"y": data.y, "client": np.array(data.client_names)[data.clients]})


def _from_arrow(who: str, table: Any, layout: Layout | None = None) -> RawTable:
    for position, name in enumerate(table.column_names, 1):
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
    repeated = [name for name, times in Counter(table.column_names).items() if times > 1]
    if repeated:
        raise DataError(f"{who} has more than one column called {listing(repeated)}; rename them in the file")
    columns = dict(zip(table.column_names, table.columns, strict=True))
    return RawTable(columns, table.num_rows, layout is None or layout.has_header, layout)


def _from_matrix(who: str, matrix: DataArray, apart: dict[str, DataArray] | None = None) -> RawTable:
    if matrix.ndim != 2:
        raise DataError(
            f"{who} holds an array of shape {matrix.shape}; save a table of rows and columns (2-D), "
            "with reshape(-1, 1) for a single column"
        )
    for key, values in (apart or {}).items():
        if values.shape != matrix.shape[:1]:
            raise DataError(
                f"{who}: array {key!r} has shape {values.shape} where 'X' has {matrix.shape[0]} rows; "
                "save one value per row"
            )
    columns = {f"x{i}": column for i, column in enumerate(matrix.T)}
    return RawTable(columns, len(matrix), False, matrix=matrix, apart=apart or {})


READERS: dict[str, Callable[[Path, str, bool | None], RawTable]] = {
    ".csv": _read_text,
    ".tsv": _read_text,
    ".txt": _read_text,
    ".data": _read_text,
    ".parquet": _read_parquet,
    ".feather": _read_arrow,
    ".arrow": _read_arrow,
    ".npy": _read_numpy,
    ".npz": _read_numpy,
    ".json": _read_leaf,
}

TEXT_SUFFIXES = frozenset(suffix for suffix, reader in READERS.items() if reader is _read_text)
