"""Delimited text: how a file is laid out, and reading it with pyarrow."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from fedkmeans.data.messages import one_line, subject
from fedkmeans.errors import DataError

# What stands for a missing value; as pyarrow compares exactly, common spellings are all here.
MISSING = ("", "?", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "null", "NULL", "Null", "None")

_DELIMITERS = (",", ";", "\t", "|")
_LONGEST_LINE = 1 << 24
_WRONG_ROW = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")


@dataclass(frozen=True)
class Layout:
    """How a text file is laid out.

    Attributes
    ----------
    delimiter : str
    names : tuple of str
        From the header, or x0, x1, … when the first line is all numbers.
    has_header : bool
    n_skip : int
        Lines before the first row: empty ones, and the header.
    runs_of_blanks : bool
        Whether any run of blanks separates two values, as in many old scientific files.
    """

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    n_skip: int
    runs_of_blanks: bool


def find_layout(path: Path, client_name: str | None = None) -> Layout:
    """Look at the first line of a text file that is not empty, and work out the layout from it."""
    line, n_empty = _first_line(path, client_name)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=line.count)
    # Only files that do not call themselves CSV may be separated by blanks: a CSV with one column
    # called "blood pressure" has one column.
    blanks = delimiter not in line and path.suffix.lower() in (".txt", ".data") and len(line.split()) > 1
    fields = line.split() if blanks else next(csv.reader([line], delimiter=delimiter))
    fields = [field.strip() for field in fields]
    has_header = not _all_numbers(fields)
    names = tuple(fields) if has_header else tuple(f"x{i}" for i in range(len(fields)))
    return Layout(" " if blanks else delimiter, names, has_header, n_empty + has_header, blanks)


def read_text(path: Path, client_name: str | None = None) -> tuple[Layout, Any]:
    """Read a text file into a pyarrow table whose columns have the types that all their values fit."""
    layout = find_layout(path, client_name)
    try:
        return layout, _parse(path, layout, use_threads=True)
    except (pa.ArrowException, OSError) as error:
        cause = error
    if not _WRONG_ROW.search(str(cause)):
        raise DataError(
            f"{subject(path, client_name)} cannot be read as text: {one_line(cause)}; export it again"
        ) from cause
    return layout, _parse_to_name_row(path, layout, client_name)


def _parse(path: Path, layout: Layout, use_threads: bool) -> Any:
    return pa_csv.read_csv(
        _without_runs_of_blanks(path, layout.n_skip) if layout.runs_of_blanks else path,
        # Names are given and the header skipped, so that all readers of the file agree on them.
        read_options=pa_csv.ReadOptions(
            column_names=list(layout.names),
            skip_rows_after_names=0 if layout.runs_of_blanks else layout.n_skip,
            use_threads=use_threads,
        ),
        parse_options=pa_csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(null_values=list(MISSING), strings_can_be_null=True),
    )


def _parse_to_name_row(path: Path, layout: Layout, client_name: str | None) -> Any:
    """Read a file again that has a row of the wrong length, to say which: one thread alone counts rows."""
    try:
        return _parse(path, layout, use_threads=False)
    except pa.ArrowException as error:
        found = _WRONG_ROW.search(str(error))
        # pyarrow's own message ends with the row itself, which may be a patient's: it goes no further.
        row, expected, got = found.groups() if found else (None, len(layout.names), "another number of")
        raise DataError(
            f"{subject(path, client_name)}: row {row or '?'} has {got} values where {expected} columns are "
            "expected; correct that row, or export the file again"
        ) from None


def rows_of_text(path: Path, layout: Layout) -> Iterator[list[str]]:
    """Give the rows of a text file as they stand, values untouched, without the header."""
    with path.open(encoding="utf-8-sig", newline="") as handle:
        if layout.runs_of_blanks:
            rows: Iterator[list[str]] = (line.split() for line in handle)
        else:
            rows = csv.reader(handle, delimiter=layout.delimiter)
        filled = (row for row in rows if row)
        if layout.has_header:
            next(filled)
        yield from filled


def _first_line(path: Path, client_name: str | None) -> tuple[str, int]:
    """Return the first line that is not empty, and how many empty ones stand before it."""
    who = subject(path, client_name)
    try:
        with path.open("rb") as handle:
            n_empty = 0
            while not (line := handle.readline(_LONGEST_LINE)).strip():
                if not line:
                    raise DataError(f"{who} is empty; export it again with a header and rows")
                n_empty += 1
    except OSError as error:
        raise DataError(f"{who} cannot be read: {one_line(error)}; check the path") from error
    if b"\0" in line:
        raise DataError(f"{who} is binary, not text; give it the suffix of its format or export it as CSV")
    try:
        # A lone carriage return ends a line as well, in files from old Macintoshes.
        return line.decode("utf-8-sig").strip("\r\n").split("\r")[0], n_empty
    except UnicodeDecodeError as error:
        raise DataError(f"{who} is not UTF-8 text; save it as UTF-8 CSV") from error


def _all_numbers(fields: list[str]) -> bool:
    """Whether a line is data: numbers and missing values, with at least one number."""
    values = [field for field in fields if field not in MISSING]
    return bool(values) and all(_is_number(value) for value in values)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _without_runs_of_blanks(path: Path, n_skip: int) -> io.BytesIO:
    lines = (b" ".join(line.split()) for line in path.read_bytes().splitlines()[n_skip:])
    return io.BytesIO(b"\n".join(line for line in lines if line) + b"\n")
