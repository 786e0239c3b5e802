"""Which columns of a file are features, and whether they are numbers."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedkmeans.data.columns import Column, numeric_dtype, type_name
from fedkmeans.data.layout import MISSING, is_number
from fedkmeans.data.readers import TEXT_SUFFIXES, RawTable
from fedkmeans.data.text import find_layout, rows_of_text
from fedkmeans.data.wording import CHOOSE_COLUMNS, drop_these, listing, nearest, short, visible
from fedkmeans.errors import DataError, Setting

# Options of the command line for columns with a special role.
_OPTIONS = {"label": "--label", "client": "--client-column"}

_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+(e[+-]?\d+)?", re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:(,\d{3})+|([ '’\u00a0\u202f]\d{3})+)(\.\d+)?")
_EITHER = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


@dataclass(frozen=True)
class Roles:
    """Roles of columns as the caller gives them; `fixed` if a model determines the columns."""

    columns: Sequence[str] | None
    drop: Sequence[str]
    label: str | None
    client: str | None
    fixed: bool


def special_column(
    who: str, by_name: dict[str, Column], name: str | None, own: Column | None, own_name: str, role: str
) -> Column | None:
    """Find the label or client column: the column `name`, or the one that the format stores separately."""
    if name is None or (own is not None and name == own_name):
        return own
    if name not in by_name:
        raise DataError(
            f"{who} has no {role} column {name!r}; {nearest(name, tuple(by_name))}",
            remedy=("Correct ", Setting(f"{role}=...", typed=_OPTIONS[role]), "."),
        )
    return by_name[name]


def choose(who: str, known: tuple[str, ...], roles: Roles) -> tuple[str, ...]:
    """Return the names of the features in order."""
    there = set(known)
    for argument, wanted in (("columns", roles.columns or ()), ("drop", roles.drop)):
        for name in wanted:
            if name not in there:
                wrong = Setting(f"{argument}=[...]", typed=f"--{argument}")
                raise DataError(
                    f"{who} has no column {name!r}; {nearest(name, known)}",
                    remedy="Give the file the columns of the model."
                    if roles.fixed
                    else ("Correct ", wrong, "."),
                )
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


def _refuse_two_roles(who: str, names: tuple[str, ...], roles: Roles) -> None:
    times = Counter(names)
    for name in times:
        if times[name] > 1:
            raise DataError(f"{who}: columns names {name!r} {times[name]} times; name it once (--columns)")
        role, option = (
            ("is also in drop", "--drop")
            if name in roles.drop
            else ("is also the label", "--label")
            if name == roles.label
            else ("is also the client column", "--client-column")
            if name == roles.client
            else (None, None)
        )
        if role:
            raise DataError(
                f"{who}: {name!r} is in columns and {role}; take it out of one of them (--columns, {option})"
            )


def refuse_non_numeric(path: Path, who: str, raw: RawTable, names: tuple[str, ...], roles: Roles) -> None:
    """Refuse features that are not numeric; the message names all of them and shows the first value."""
    by_name = dict(zip(raw.names, raw.columns, strict=True))
    bad = [name for name in names if numeric_dtype(by_name[name]) is None]
    if not bad:
        return
    types = ", ".join(sorted({visible(type_name(by_name[name])) for name in bad}))
    shown, guess = "", None
    for place, value, row in _values(path, raw, bad[0]):
        text = value.strip() if isinstance(value, str) else str(value)
        if text not in MISSING and not is_number(text):
            shown = f"; {place} has {short(value)} in {bad[0]!r}"
            guess = _guess(text, bad[0], row, raw.names)
            break
    remedy = guess or (
        "correct the values in the file"
        if roles.fixed
        else ("leave them out with ", drop_these(bad), ", or name the numeric ones with ", CHOOSE_COLUMNS)
    )
    raise DataError(
        f"{who}: columns that are not numeric ({types}): {listing(bad, len(bad))}{shown}", remedy=remedy
    )


def _values(path: Path, raw: RawTable, name: str) -> Iterator[tuple[str, object, list[str]]]:
    """Yield the place of each value of a column, the value and, for text files, the complete row."""
    position = raw.names.index(name)
    if path.suffix.lower() in TEXT_SUFFIXES:
        for line, row in rows_of_text(path, find_layout(path, header=raw.is_named)):
            yield f"line {line}", row[position], row
        return
    column = raw.columns[position]
    for i, value in enumerate(column if isinstance(column, np.ndarray) else _scalars(column), 1):
        if value is not None:
            yield f"row {i}", value, []


def _scalars(column: Column) -> Iterator[object]:
    return (scalar.as_py() for scalar in column)


def _guess(text: str, name: str, row: list[str], names: tuple[str, ...]) -> str | None:
    """Suggest what a non-numeric text may be, with the remedy; None if there is no suggestion."""
    if text == name and [" ".join(field.split()) for field in row[: len(names)]] == list(names):
        return "that line repeats the header (files joined together?), remove it"
    if _EITHER.fullmatch(text):
        return "decimal commas or thousands separators? export with decimal points and no separators"
    if _THOUSANDS.fullmatch(text):
        return "thousands separators? export without them"
    if _DECIMAL_COMMA.fullmatch(text):
        return "decimal commas? export with points"
    return None
