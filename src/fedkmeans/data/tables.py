"""Read a data file as one numeric table; columns that cannot be clustered are refused with a remedy."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedkmeans._utils.typing import DataArray
from fedkmeans.data.choosing import Roles, choose, refuse_non_numeric, special_column
from fedkmeans.data.columns import Column, Mask, fill, label_values, missing_mask, numeric_dtype
from fedkmeans.data.readers import RawTable, read_raw
from fedkmeans.data.wording import DROP_COLUMNS, DROP_ROWS, count, drop_these, listing, subject
from fedkmeans.errors import DataError, ParameterError

MISSING_RULES = ("error", "drop_rows")


@dataclass(frozen=True)
class Table:
    """The numeric table in a file.

    Attributes
    ----------
    path : pathlib.Path
    feature_names : tuple of str
        x0, x1, … if the file has no column names.
    X : ndarray of shape (n_rows, n_features)
        Of the smallest type for all columns.
    labels : ndarray of shape (n_rows,) or None
        True labels, as numbers or text.
    file_clients : ndarray of shape (n_rows_in_file,) or None
        Client of every row of the file, including dropped rows.
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
        """Client of each row of `X`, shape (n_rows,), or None if the file has no clients."""
        return None if self.file_clients is None else self.file_clients[self.kept]

    @property
    def n_dropped(self) -> int:
        """Number of rows that were dropped because a value is missing."""
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
    x1, …. Missing values are ``?``, ``NA``, ``NaN``, ``null`` and empty fields. Empty lines are
    skipped, except in a file with one column, where they are missing values. An ``.npz`` file contains
    ``X`` and optionally ``y`` (the labels) and ``client``. A LEAF file always has labels and clients.

    Parameters
    ----------
    path : str or path-like
        The suffix determines the format.
    columns : sequence of str, optional
        Features, in this order; by default all columns except `label`, `client` and `drop`.
    drop : sequence of str
        Columns to leave out.
    label, client : str, optional
        Columns with the true labels, and with the client of each row.
    missing : {"error", "drop_rows"}
        Refuse missing values, or drop rows with a missing value in a feature or in `label`. A row
        with a missing client is always refused.
    client_name : str, optional
        Name of the client, for error messages.
    header : bool, optional
        Whether the first line of a text file is a header. By default, it is one unless all fields are
        numbers. A line such as 0,1,2 or 2019,2020,2021 may be either and is refused.
    fixed_columns : bool
        Whether a model determines the columns; error messages then do not suggest to drop columns.

    Raises
    ------
    DataError
        The file or a column cannot be used; the message names the file, the column and the remedy.
    """
    if missing not in MISSING_RULES:
        raise ParameterError(f"unknown rule missing={missing!r}; choose one of {listing(MISSING_RULES)}")
    path = Path(path)
    who = subject(path, client_name)
    raw = read_raw(path, client_name, header)
    if not raw.n_rows:
        raise DataError(f"{who} has no rows; leave this file out, or export it again")
    return _checked_table(path, who, raw, Roles(columns, drop, label, client, fixed_columns), missing)


def _checked_table(path: Path, who: str, raw: RawTable, roles: Roles, missing: str) -> Table:
    by_name = dict(zip(raw.names, raw.columns, strict=True))
    labels = special_column(who, by_name, roles.label, raw.labels, "y", "label")
    clients = special_column(who, by_name, roles.client, raw.clients, "client", "client")
    names = choose(who, raw.names, roles)
    refuse_non_numeric(path, who, raw, names, roles)
    label_name = roles.label or "y"
    checked = {name: by_name[name] for name in names} | ({} if labels is None else {label_name: labels})
    kept = _kept_rows(who, checked, raw.n_rows, missing, roles.fixed)
    label_array = None if labels is None else _values(who, label_name, labels)[kept]
    client_array = None if clients is None else _client_values(who, roles.client or "client", clients)
    X = _matrix(raw, names, kept)
    _refuse_infinite(who, X, names, roles.fixed)
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


def _matrix(raw: RawTable, names: tuple[str, ...], kept: Mask) -> DataArray:
    everything = names == raw.names and kept.all()
    by_name = dict(zip(raw.names, raw.columns, strict=True))
    columns = [by_name[name] for name in names]
    dtypes = [numeric_dtype(column) for column in columns]
    if raw.matrix is not None and everything and raw.matrix.dtype.kind != "b":
        X = np.ascontiguousarray(raw.matrix)
    else:
        # Fill one array column by column, to avoid a second copy of the whole table.
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
