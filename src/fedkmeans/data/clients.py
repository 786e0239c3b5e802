"""Tables of several clients: one file per client, folders of files, or one file with a client column."""

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedkmeans._utils.typing import DataArray, IntArray
from fedkmeans.data.columns import Mask
from fedkmeans.data.partitions import by_column
from fedkmeans.data.readers import READERS, TEXT_SUFFIXES
from fedkmeans.data.tables import Table, read_table
from fedkmeans.data.wording import CHOOSE_COLUMNS, DROP_COLUMNS, listing, reading, subject
from fedkmeans.errors import DataError

_NO_TABLES = frozenset({"readme", "notes", "note", "license", "licence", "changelog", "todo", "requirements"})
_NOTES_SUFFIXES = TEXT_SUFFIXES | {".json"}


@dataclass(frozen=True)
class ClientTable:
    """The rows of one client.

    Attributes
    ----------
    name : str
        Unique among all clients of one call.
    path : pathlib.Path
        The file that the rows come from; several clients may share it.
    feature_names : tuple of str
        The same for all clients.
    X : ndarray of shape (n_rows, n_features)
    labels : ndarray of shape (n_rows,) or None
    rows : ndarray of shape (n_rows,)
        Position of each row in the file; the first row after the header is 0.
    n_rows_in_file : int
    n_dropped : int
        Rows of this client that were dropped because a value is missing.
    is_named : bool
        Whether the names come from the file; the same for all clients.
    """

    name: str
    path: Path
    feature_names: tuple[str, ...]
    X: DataArray
    labels: DataArray | None
    rows: IntArray
    n_rows_in_file: int
    n_dropped: int
    is_named: bool = True


def read_clients(
    paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    label: str | None = None,
    client: str | None = None,
    missing: str = "error",
    header: bool | None = None,
    fixed_columns: bool = False,
) -> list[ClientTable]:
    """Read the tables of all clients and check that they are compatible.

    A file is one client, named after the file (with parent folders if this is needed to make the name
    unique). A folder means all data files in it, sorted by name. A file with a client column, with
    LEAF's users, or an ``.npz`` with ``client``, is divided into its clients.

    All clients must have the same columns, and get the column order of the first client. Files without
    column names must have the same number of columns. They cannot be combined with files that have
    names.

    Parameters
    ----------
    paths : path or iterable of paths
        Files and folders.
    columns, drop, label, client, missing, header, fixed_columns
        As for :func:`fedkmeans.data.read_table`.

    Returns
    -------
    list of ClientTable
        In the order of `paths`; clients of one file are sorted by name.

    Raises
    ------
    DataError
        A file cannot be used, is given twice, or is not compatible with the others.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files = data_files(given)
    if not files:
        raise DataError("no files given; name at least one data file or folder")
    _refuse_repeats(files)
    options: dict[str, Any] = {"columns": columns, "drop": drop, "label": label, "client": client}
    options |= {"missing": missing, "header": header, "fixed_columns": fixed_columns}
    tables: list[tuple[str, Table]] = []
    for name, path in zip(unique_names(files), files, strict=True):
        try:
            table = read_table(path, client_name=name, **options)
            tables.append((name, _fitted(name, table, *tables[0], fixed_columns) if tables else table))
        except DataError as error:
            stray = _stray_file(path, files)
            if stray is None:
                raise
            raise DataError(error, f"; {stray}") from error
    clients = [part for name, table in tables for part in _divide(name, table, fixed_columns)]
    _refuse_shared_names(clients)
    return clients


def labels_by_file(
    clients: Sequence[ClientTable], labels: Sequence[DataArray]
) -> dict[Path, tuple[DataArray, Mask]]:
    """Return the labels of all clients in the order of the files, for `write_labels`.

    Parameters
    ----------
    clients : sequence of ClientTable
    labels : sequence of ndarray, each of shape (n_rows,) of its client

    Returns
    -------
    dict of path to (labels, kept)
        `labels` of shape (n_kept,) in the order of the file; `kept` of shape (n_rows_in_file,).
    """
    parts: dict[Path, list[tuple[ClientTable, DataArray]]] = defaultdict(list)
    for table, found in zip(clients, labels, strict=True):
        parts[table.path].append((table, found))
    result: dict[Path, tuple[DataArray, Mask]] = {}
    for path, members in parts.items():
        rows = np.concatenate([table.rows for table, _ in members])
        kept = np.zeros(members[0][0].n_rows_in_file, dtype=bool)
        kept[rows] = True
        result[path] = np.concatenate([found for _, found in members])[np.argsort(rows)], kept
    return result


def unique_names(paths: Sequence[Path]) -> list[str]:
    """Name each file by its stem, with the suffix or as many folders before it as make it unique."""
    # Not resolved: a link is called as it is, not as what it points to.
    whole = [Path(os.path.abspath(path)) for path in paths]  # noqa: PTH100 (without .. in it)
    stems = [path.with_suffix("") for path in whole]
    # a.csv and a.npy in one folder differ by nothing but the suffix.
    parts = [
        (stem if stems.count(stem) == 1 else path).parts for stem, path in zip(stems, whole, strict=True)
    ]
    tails = [["/".join(part[-n:]) for n in range(1, len(part) + 1)] for part in parts]
    times = Counter(tail for candidates in tails for tail in candidates)
    return [next((tail for tail in own if times[tail] == 1), own[-1]) for own in tails]


def data_files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Replace folders by the data files in them, sorted by name."""
    return [file for path in paths for file in _files(Path(path))]


def _files(path: Path) -> list[Path]:
    # Unlike Path.is_dir, isdir is False for what is not accessible; reading it reports why.
    if not os.path.isdir(path):  # noqa: PTH112
        return [path]
    who = f"folder {str(path)!r}"
    with reading(who, "check its permissions", OSError):
        entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
        files = _data_files_among(entries)
        if files:
            return files
        full = [entry for entry in entries if entry.is_dir() and _data_files_among(entry.iterdir())]
    if full:
        raise DataError(
            f"{who} holds no data file, but its sub-folders {listing(map(str, full))} do; name these instead"
        )
    raise DataError(
        f"{who} holds no data file; put one file per client in it, of the formats "
        f"{listing(READERS, len(READERS))}"
    )


def _data_files_among(entries: Iterable[Path]) -> list[Path]:
    return [
        entry
        for entry in entries
        if entry.suffix.lower() in READERS and not entry.name.startswith(".") and entry.is_file()
    ]


def _stray_file(failed: Path, files: list[Path]) -> str | None:
    """Return the remedy for a file that is probably no table: named like notes, or unlike all others."""
    suffixes = Counter(file.suffix.lower() for file in files)
    read = files[: files.index(failed) + 1]
    for file in (failed, *read):
        called_so = file.stem.lower() in _NO_TABLES and file.suffix.lower() in _NOTES_SUFFIXES
        alone = len(files) > 2 and suffixes[file.suffix.lower()] == 1 and len(suffixes) == 2
        if len(files) > 1 and (called_so or alone):
            return f"if {file.name!r} is no client's table, move it out of the folder {str(file.parent)!r}"
    return None


def _refuse_repeats(files: list[Path]) -> None:
    seen: dict[Path, Path] = {}
    sizes: dict[int, list[Path]] = defaultdict(list)
    for file in files:
        # Path.resolve raises for circular links; realpath does not.
        same = seen.setdefault(Path(os.path.realpath(file)), file)
        if same is not file:
            raise DataError(f"{subject(file)} is given twice (also as {str(same)!r}); name each file once")
        if os.path.isfile(file):  # noqa: PTH113 (as above)
            sizes[file.stat().st_size].append(file)
    # Only files of the same size can be equal, so most files are not read here.
    for candidates in sizes.values():
        digests: dict[str, Path] = {}
        for file in candidates if len(candidates) > 1 else ():
            with reading(subject(file), "check its permissions", OSError), file.open("rb") as handle:
                same = digests.setdefault(hashlib.file_digest(handle, "sha256").hexdigest(), file)
            if same is not file:
                raise DataError(
                    f"files {str(same)!r} and {str(file)!r} have the same content; remove one, as a client "
                    "counted twice weighs twice"
                )


def _fitted(name: str, table: Table, first_name: str, first: Table, fixed: bool) -> Table:
    """Return the table with its columns in the order of the first client."""
    if table.feature_names == first.feature_names:
        return table
    ours, theirs = ({name: j for j, name in enumerate(t.feature_names)} for t in (table, first))
    clients = f"clients {first_name!r} and {name!r}"
    if table.is_named != first.is_named:
        nameless = first_name if table.is_named else name
        raise DataError(
            f"{clients}: {nameless!r} has no column names and the other has; give that file a header "
            "line, or save its array with column names, as Parquet or CSV"
        )
    if not table.is_named:
        if len(ours) != len(theirs):
            raise DataError(
                f"{clients} have {len(theirs)} and {len(ours)} columns; give all files the same columns"
            )
        return replace(table, feature_names=first.feature_names)
    if ours.keys() != theirs.keys():
        extras = {
            first_name: [column for column in theirs if column not in ours],
            name: [column for column in ours if column not in theirs],
        }
        only = ", ".join(f"only {owner!r} has {listing(extra)}" for owner, extra in extras.items() if extra)
        others = ("leave the others out with ", DROP_COLUMNS)
        choose = (*others, ", or name those in common with ", CHOOSE_COLUMNS)
        remedy = "give all files the columns of the model" if fixed else choose
        raise DataError(f"{clients} have different columns: {only}", remedy=remedy)
    X = np.ascontiguousarray(table.X[:, [ours[column] for column in theirs]])
    return replace(table, feature_names=first.feature_names, X=X)


def _divide(name: str, table: Table, fixed: bool) -> list[ClientTable]:
    """Return the clients of a file."""
    numbers: IntArray = np.zeros(len(table.kept), dtype=np.intp)
    names: tuple[str, ...] = (name,)
    if table.file_clients is not None:
        numbers, names = by_column(table.file_clients)
    rows = np.flatnonzero(table.kept)
    sizes = np.bincount(numbers[rows], minlength=len(names))
    n_dropped = np.bincount(numbers, minlength=len(names)) - sizes
    if not sizes.all():
        lost = [names[i] for i in np.flatnonzero(sizes == 0)]
        way = ("fill them in",) if fixed else ("leave out the columns where it is with ", DROP_COLUMNS)
        raise DataError(
            f"{subject(table.path)}: clients {listing(lost)} have a missing value in every row",
            remedy=(*way, ", or remove these clients' rows"),
        )
    clients = []
    for i, client in enumerate(names):
        members = slice(None) if len(names) == 1 else numbers[rows] == i  # a slice makes no copy
        clients.append(
            ClientTable(
                name=client,
                path=table.path,
                feature_names=table.feature_names,
                X=table.X[members],
                labels=None if table.labels is None else table.labels[members],
                rows=rows[members],
                n_rows_in_file=len(table.kept),
                n_dropped=int(n_dropped[i]),
                is_named=table.is_named,
            )
        )
    return clients


def _refuse_shared_names(clients: list[ClientTable]) -> None:
    seen: dict[str, ClientTable] = {}
    for client in clients:
        same = seen.setdefault(client.name, client)
        if same is not client:
            raise DataError(
                f"client {client.name!r} is in file {str(same.path)!r} and in {str(client.path)!r}; put its "
                "rows in one file, or rename one of the two"
            )
