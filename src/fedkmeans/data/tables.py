"""A data file as one numeric table, checked: what cannot be clustered is refused by name, with a remedy."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedkmeans._utils.typing import DataArray
from fedkmeans.data.choosing import Roles, choose, refuse_non_numeric, special_column
from fedkmeans.data.columns import Column, Mask, fill, label_values, missing_mask, numeric_dtype
from fedkmeans.data.messages import DROP_COLUMNS, DROP_ROWS, count, drop_these, listing, subject
from fedkmeans.data.readers import RawTable, read_raw
from fedkmeans.errors import DataError, ParameterError

MISSING_RULES = ("error", "drop_rows")


@dataclass(frozen=True)
class Table:
    """The numeric table in a file.

    Attributes
    ----------
    path : pathlib.Path
    feature_names : tuple of str
        x0, x1, … where the file names no columns.
    X : ndarray of shape (n_rows, n_features)
        Of the smallest type that holds all columns.
    labels : ndarray of shape (n_rows,) or None
        True labels: numbers, or text.
    file_clients : ndarray of shape (n_rows_in_file,) or None
        Client of every row of the file, kept or dropped.
    kept : ndarray of bool, shape (n_rows_in_file,)
        The rows of the file that are rows of `X`.
    is_named : bool
        Whether the names come from the file.
    """

    path: Path
    feature_names: tuple[str, ...]
    X: DataArray
    labels: DataArray | None
    file_clients: DataArray | None
    kept: Mask
    is_named: bool

    @property
    def clients(self) -> DataArray | None:
        """Client of each row of `X`, shape (n_rows,), or None when the file names none."""
        return None if self.file_clients is None else self.file_clients[self.kept]

    @property
    def n_dropped(self) -> int:
        """Rows of the file that were left out because a value is missing."""
        return int(len(self.kept) - self.kept.sum())


def read_table(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    label: str | None = None,
    client: str | None = None,
    missing: str = "error",
    client_name: str | None = None,
    header: bool | None = None,
    fixed_columns: bool = False,
) -> Table:
    """Read a data file: CSV and other delimited text, Parquet, Arrow/Feather, NumPy or LEAF JSON.

    Text without a header (a first line of numbers only) and NumPy arrays get the column names x0,
    x1, …; ``?``, ``NA``, ``NaN``, ``null`` and nothing at all are missing values; so is an empty line
    where there is one column only, while any other file may have empty lines. An ``.npz`` file holds
    ``X`` and perhaps ``y`` (the labels) and ``client``; a LEAF file always has labels and clients.

    Parameters
    ----------
    path : str or path-like
        The suffix tells the format.
    columns : sequence of str, optional
        Features, in this order; all columns but `label`, `client` and `drop` when not given.
    drop : sequence of str
        Columns to leave out.
    label, client : str, optional
        Columns with the true labels, and with the client of each row.
    missing : {"error", "drop_rows"}
        Refuse missing values, or leave out the rows that have one in a feature or in `label`. A row
        whose client is missing is refused in any case: it belongs to nobody.
    client_name : str, optional
        Whose file it is, for error messages.
    header : bool, optional
        Whether the first line of a text holds the column names. When not given, it does unless it is
        all numbers; a line such as 0,1,2 or 2019,2020,2021 may be either, and is then refused.
    fixed_columns : bool
        Whether the columns cannot be chosen, because a model needs them as they are; error messages then
        propose other remedies than to leave columns out.

    Returns
    -------
    Table

    Raises
    ------
    DataError
        The file or a column cannot be used; names the file, the column and the remedy.
    """
    if missing not in MISSING_RULES:
        raise ParameterError(f"unknown rule missing={missing!r}; choose one of {listing(MISSING_RULES)}")
    path = Path(path)
    who = subject(path, client_name)
    roles = Roles(columns, drop, label, client, fixed_columns)
    raw = read_raw(path, client_name, header)
    if not raw.n_rows:
        raise DataError(f"{who} has no rows; leave this file out, or export it again")
    by_name = dict(zip(raw.names, raw.columns, strict=True))
    labels = special_column(who, by_name, label, raw.labels, "y", "label")
    clients = special_column(who, by_name, client, raw.clients, "client", "client")
    names = choose(who, raw.names, roles)
    refuse_non_numeric(path, who, raw, names, roles)
    checked = {name: by_name[name] for name in names} | ({} if labels is None else {label or "y": labels})
    kept = _kept_rows(who, checked, raw.n_rows, missing, fixed_columns)
    label_array = None if labels is None else _values(who, label or "y", labels)[kept]
    client_array = None if clients is None else _client_values(who, client or "client", clients)
    X = _matrix(who, raw, names, kept)
    _refuse_infinite(who, X, names, fixed_columns)
    return Table(path, names, X, label_array, client_array, kept, raw.is_named)


def _kept_rows(who: str, checked: dict[str, Column], n_rows: int, missing: str, fixed: bool) -> Mask:
    kept = np.ones(n_rows, dtype=bool)
    counts: dict[str, int] = {}
    for name, column in checked.items():
        absent = missing_mask(column)
        if absent.any():
            counts[name] = int(absent.sum())
            kept &= ~absent
    if counts and missing == "error":
        found = ", ".join(f"{name!r} ({times})" for name, times in counts.items())
        rows = ("leave out these rows with ", DROP_ROWS)
        remedy = ("fill them in, or ", *rows) if fixed else (*rows, ", or the columns with ", DROP_COLUMNS)
        raise DataError(f"{who}: missing values in {found} of {count(n_rows, 'row')}", remedy=remedy)
    if not kept.any():
        worst = max(counts, key=lambda name: counts[name])
        raise DataError(
            f"{who}: every row has a missing value (most in {worst!r}, {counts[worst]} of {n_rows})",
            remedy="fill in the values" if fixed else ("leave out that column with ", drop_these([worst])),
        )
    return kept


def _matrix(who: str, raw: RawTable, names: tuple[str, ...], kept: Mask) -> DataArray:
    everything = names == raw.names and kept.all()
    by_name = dict(zip(raw.names, raw.columns, strict=True))
    columns = [by_name[name] for name in names]
    dtypes = [numeric_dtype(column) for column in columns]
    if raw.matrix is not None and everything and raw.matrix.dtype.kind != "b":
        X = np.ascontiguousarray(raw.matrix)
    else:
        # One array, filled a column at a time: there is never a second copy of the whole table.
        dtype = np.result_type(*(dtype for dtype in dtypes if dtype is not None))
        X = np.empty((int(kept.sum()), len(names)), dtype=dtype)
        for j, column in enumerate(columns):
            fill(X[:, j], column, None if kept.all() else kept)
    return X


def _refuse_infinite(who: str, X: DataArray, names: tuple[str, ...], fixed: bool) -> None:
    if X.dtype.kind != "f":
        return
    infinite = {name: int(np.isinf(X[:, j]).sum()) for j, name in enumerate(names)}
    found = ", ".join(f"{name!r} ({times})" for name, times in infinite.items() if times)
    if found:
        otherwise = () if fixed else (", or leave out the columns with ", DROP_COLUMNS)
        remedy = ("correct them in the file", *otherwise)
        raise DataError(f"{who}: infinite values in {found}", remedy=remedy)


def _values(who: str, name: str, column: Column) -> DataArray:
    try:
        return label_values(column)
    except UnicodeDecodeError as error:
        raise DataError(f"{who}: column {name!r} is not UTF-8 text; save the file as UTF-8") from error


def _client_values(who: str, name: str, column: Column) -> DataArray:
    absent = int(missing_mask(column).sum())
    if absent:
        raise DataError(
            f"{who}: client column {name!r} is empty in {count(absent, 'row')}; fill it in, or drop such rows"
        )
    return _values(who, name, column)
