"""Read a data file as one numeric table; columns that cannot be clustered are refused with a remedy."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from fedkmeans._utils.typing import DataArray
from fedkmeans.data.columns import Column, Mask, missing_mask, numbers, numeric_dtype, type_name
from fedkmeans.data.readers import RawTable, read_raw
from fedkmeans.data.text import MISSING, is_number, rows_of_text
from fedkmeans.data.wording import (
    CHOOSE_COLUMNS,
    DROP_COLUMNS,
    DROP_ROWS,
    count,
    drop_these,
    listing,
    nearest,
    short,
    subject,
    visible,
)
from fedkmeans.errors import DataError, ParameterError, Setting, option_of

MISSING_RULES = ("error", "drop_rows")

# A text that is not a number may be one with decimal commas, with separators of thousands, or with either.
_DECIMAL_COMMA = r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?"
_THOUSANDS = r"[+-]?\d{1,3}(?:(,\d{3})+|([ '’\u00a0\u202f]\d{3})+)(\.\d+)?"
_EITHER = r"[+-]?[1-9]\d{0,2},\d{3}"


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
    return _checked_table(path, who, raw, _Roles(columns, drop, label, client, fixed_columns), missing)


@dataclass(frozen=True)
class _Roles:
    """Roles of columns as the caller gives them; `fixed` if a model determines the columns."""

    columns: Sequence[str] | None
    drop: Sequence[str]
    label: str | None
    client: str | None
    fixed: bool


def _checked_table(path: Path, who: str, raw: RawTable, roles: _Roles, missing: str) -> Table:
    labels = _special_column(who, raw, "label", roles.label, "y")
    clients = _special_column(who, raw, "client", roles.client, "client")
    names = _features(who, raw.names, roles)
    _refuse_non_numeric(path, who, raw, names, roles.fixed)
    label_name = roles.label or "y"
    checked = {name: raw.columns[name] for name in names} | ({} if labels is None else {label_name: labels})
    kept = _kept_rows(who, checked, raw.n_rows, missing, roles.fixed)
    client_name = roles.client or "client"
    n_absent = 0 if clients is None else int(missing_mask(clients).sum())
    if n_absent:
        raise DataError(
            f"{who}: client column {client_name!r} is empty in {count(n_absent, 'row')}; fill it in, or drop "
            "such rows"
        )
    label_array = None if labels is None else _values(who, label_name, labels)[kept]
    client_array = None if clients is None else _values(who, client_name, clients)
    X = _matrix(raw, names, kept)
    _refuse_infinite(who, X, names, roles.fixed)
    return Table(path, names, X, label_array, client_array, kept, raw.is_named)


# --- which columns -----------------------------------------------------------------------------


def _special_column(who: str, raw: RawTable, role: str, name: str | None, own_name: str) -> Column | None:
    """Return the label or client column: the column `name`, or the one that the format stores separately."""
    own = raw.apart.get(own_name)
    if name is None or (own is not None and name == own_name):
        return own
    if name not in raw.columns:
        raise DataError(
            f"{who} has no {role} column {name!r}; {nearest(name, raw.names)}",
            remedy=("Correct ", Setting(f"{role}=...", typed=option_of(role)), "."),
        )
    return raw.columns[name]


def _features(who: str, known: tuple[str, ...], roles: _Roles) -> tuple[str, ...]:
    """Return the names of the features in order."""
    there = set(known)
    for argument, wanted in (("columns", roles.columns or ()), ("drop", roles.drop)):
        for name in (name for name in wanted if name not in there):
            correct = ("Correct ", Setting(f"{argument}=[...]", typed=f"--{argument}"), ".")
            remedy = "Give the file the columns of the model." if roles.fixed else correct
            raise DataError(f"{who} has no column {name!r}; {nearest(name, known)}", remedy=remedy)
    if roles.columns is None:
        left_out = {*roles.drop, roles.label, roles.client}
        names = tuple(name for name in known if name not in left_out)
    else:
        names = tuple(roles.columns)
        _refuse_two_roles(who, names, roles)
    if not names:
        raise DataError(
            f"{who} has no columns left to cluster", remedy=("drop fewer, or name some with ", CHOOSE_COLUMNS)
        )
    return names


def _refuse_two_roles(who: str, names: tuple[str, ...], roles: _Roles) -> None:
    others = {roles.client: ("the client column", "--client-column"), roles.label: ("the label", "--label")}
    others |= dict.fromkeys(roles.drop, ("in drop", "--drop"))
    for name, times in Counter(names).items():
        if times > 1:
            raise DataError(f"{who}: columns names {name!r} {times} times; name it once (--columns)")
        if name in others:
            role, option = others[name]
            raise DataError(
                f"{who}: {name!r} is in columns and is also {role}; take it out of one of them (--columns, "
                f"{option})"
            )


# --- columns that are not numeric --------------------------------------------------------------


def _refuse_non_numeric(path: Path, who: str, raw: RawTable, names: tuple[str, ...], fixed: bool) -> None:
    """Refuse features that are not numeric; the message names all of them and shows the first value."""
    bad = [name for name in names if numeric_dtype(raw.columns[name]) is None]
    if not bad:
        return
    types = ", ".join(sorted({visible(type_name(raw.columns[name])) for name in bad}))
    shown, guess = "", None
    for place, value, row in _places(path, raw, bad[0]):
        text = value.strip() if isinstance(value, str) else str(value)
        if text not in MISSING and not is_number(text):
            shown = f"; {place} has {short(value)} in {bad[0]!r}"
            guess = _guess(text, bad[0], row, raw.names)
            break
    remedy = guess or (
        "correct the values in the file"
        if fixed
        else ("leave them out with ", drop_these(bad), ", or name the numeric ones with ", CHOOSE_COLUMNS)
    )
    raise DataError(
        f"{who}: columns that are not numeric ({types}): {listing(bad, len(bad))}{shown}", remedy=remedy
    )


def _places(path: Path, raw: RawTable, name: str) -> Iterator[tuple[str, object, list[str]]]:
    """Yield the place of each value of a column, the value and, for text files, the complete row."""
    if raw.layout is not None:
        position = raw.names.index(name)
        for line, row in rows_of_text(path, raw.layout):
            yield f"line {line}", row[position], row
        return
    for i, value in enumerate(raw.columns[name], 1):
        known = value if isinstance(value, np.generic) else value.as_py()
        if known is not None:
            yield f"row {i}", known, []


def _guess(text: str, name: str, row: list[str], names: tuple[str, ...]) -> str | None:
    """Suggest what a non-numeric text may be, with the remedy; None if there is no suggestion."""
    if text == name and [" ".join(field.split()) for field in row[: len(names)]] == list(names):
        return "that line repeats the header (files joined together?), remove it"
    if re.fullmatch(_EITHER, text):
        return "decimal commas or thousands separators? export with decimal points and no separators"
    if re.fullmatch(_THOUSANDS, text):
        return "thousands separators? export without them"
    return "decimal commas? export with points" if re.fullmatch(_DECIMAL_COMMA, text) else None


# --- values ------------------------------------------------------------------------------------


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
    if raw.matrix is not None and names == raw.names and kept.all() and raw.matrix.dtype.kind != "b":
        return np.ascontiguousarray(raw.matrix)
    # Fill one array column by column, to avoid a second copy of the whole table.
    columns = [raw.columns[name] for name in names]
    dtypes = [dtype for dtype in map(numeric_dtype, columns) if dtype is not None]
    X = np.empty((int(kept.sum()), len(names)), dtype=np.result_type(*dtypes))
    for j, column in enumerate(columns):
        X[:, j] = numbers(column)[kept]
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
    """Return labels or clients: numbers as numbers (0 for missing integers), everything else as text."""
    is_array = isinstance(column, np.ndarray)
    if not is_array and pa.types.is_integer(column.type):
        column = column.fill_null(0)
    if numeric_dtype(column) is not None:
        return numbers(column)
    try:
        texts = column.astype(str) if is_array else [_text(value) for value in column.to_pylist()]
    except UnicodeDecodeError as error:
        raise DataError(f"{who}: column {name!r} is not UTF-8 text; save the file as UTF-8") from error
    return np.array(texts, dtype=str)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
