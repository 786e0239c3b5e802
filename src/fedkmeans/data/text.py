"""Delimited text (CSV and the like): its layout, its columns by pyarrow, and its rows as they stand."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from fedkmeans.data.wording import count, reading, subject
from fedkmeans.errors import DataError, Setting

# Spellings of missing values; pyarrow compares them exactly.
MISSING = ("", "?", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "null", "NULL", "Null", "None")

_DELIMITERS = (",", ";", "\t", "|")
_LONGEST_LINE = 1 << 24
_MOST_HEADER_LINES = 1000
# A quotation mark opens a quoted field only at the start of a field, as in csv and pyarrow.
_QUOTED = re.compile(r'(?:^|(?<=[,;\t|]))"(?:[^"]|"")*"')
_OPEN_QUOTE = re.compile(r'(?:^|[,;\t|])"')
_WHOLE = re.compile(r"[0-9]{1,18}")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_WRONG_ROW = re.compile(r"Expected \d+ columns, got \d+")


@dataclass(frozen=True)
class Layout:
    """The layout of a text file.

    Attributes
    ----------
    delimiter : str
        A blank stands for any number of blanks between two values, as in many old scientific files.
    names : tuple of str
        From the header, or x0, x1, … if there is none.
    has_header : bool
    n_skip : int
        Records before the first row: empty lines, and the header.
    ends_with_delimiter : bool
        Whether a delimiter ends the header. The file then has one more column, without a name.
    """

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    n_skip: int
    ends_with_delimiter: bool = False

    @property
    def n_columns(self) -> int:
        """Number of values in each row of the file."""
        return len(self.names) + self.ends_with_delimiter


# --- the layout --------------------------------------------------------------------------------


def find_layout(path: Path, header: bool | None = None, who: str | None = None) -> Layout:
    """Detect the layout of a text file from its first line that is not empty.

    That line is a header unless all fields are numbers, or as `header` says. A line that may be either
    (0,1,2 or 2019,2020,2021) is refused. Errors call the file `who`.
    """
    who = who or subject(path)
    record, n_empty, has_more = _first_record(path, who)
    plain = _QUOTED.sub("", record)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=plain.count)
    # Files with the suffix of CSV are never separated by blanks: a CSV file whose only column is
    # "blood pressure" has one column.
    blanks = delimiter not in plain and path.suffix.lower() in (".txt", ".data") and len(record.split()) > 1
    split = (
        record.split() if blanks else next(csv.reader(io.StringIO(record, newline=""), delimiter=delimiter))
    )
    fields = [" ".join(field.split()) for field in split]  # a line break within a name becomes a blank
    if header is None:
        if has_more and _may_be_names(fields):
            raise DataError(
                f"{who} starts with {','.join(fields[:3])}{',…' if len(fields) > 3 else ''}, which may be "
                "column names or data",
                remedy=(
                    "say which with ",
                    Setting("header=True or header=False", typed="--header yes or --header no"),
                ),
            )
        header = not _all_numbers(fields)
    names = tuple(fields) if header else tuple(f"x{i}" for i in range(len(fields)))
    ends = header and len(names) > 1 and not names[-1]
    delimiter = " " if blanks else delimiter
    return Layout(delimiter, names[:-1] if ends else names, header, n_empty + header, ends)


def is_number(text: str) -> bool:
    """Return whether pyarrow reads a text as a number; Python's float also accepts 1_000."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _first_record(path: Path, who: str) -> tuple[str, int, bool]:
    """Return the first record that is not empty, the number of empty lines before it, and if more follow.

    The record is one line, or several if a quoted field contains line breaks.
    """
    with reading(who, "check its permissions", OSError):
        with path.open("rb") as handle:
            if handle.read(2) in _UTF16:
                raise DataError(
                    f"{who} is UTF-16 text, not UTF-8; save it as 'CSV UTF-8', or convert it with "
                    "iconv -f UTF-16 -t UTF-8"
                )
        # Later readers report bytes further down that are not UTF-8.
        with path.open(encoding="utf-8-sig", newline="", errors="surrogateescape") as text:
            # Do not read a large file without line breaks as one line.
            lines = iter(lambda: text.readline(_LONGEST_LINE), "")
            record, n_empty = _record(lines, who)
            has_more = any(line.strip() for line in lines)
    if "\0" in record:
        raise DataError(f"{who} is binary, not text; give it the suffix of its format or export it as CSV")
    if any("\ud800" <= letter <= "\udfff" for letter in record):
        raise DataError(f"{who} is not UTF-8 text; save it as UTF-8 CSV")
    return record, n_empty, has_more


def _record(lines: Iterator[str], who: str) -> tuple[str, int]:
    n_empty = 0
    for line in lines:
        if line.strip():
            break
        n_empty += 1
    else:
        raise DataError(f"{who} is empty; export it again with a header and rows")
    parts = [line]
    while _OPEN_QUOTE.search(_QUOTED.sub("", "".join(parts))):
        following = next(lines, None)
        if following is None or len(parts) == _MOST_HEADER_LINES:
            raise DataError(
                f"{who}: a quotation mark in line {n_empty + 1} is never closed; close or remove it"
            )
        parts.append(following)
    return "".join(parts).rstrip("\r\n"), n_empty


def _all_numbers(fields: list[str]) -> bool:
    """Return whether a line is data: numbers and missing values, with at least one number."""
    values = [field for field in fields if field not in MISSING]
    return bool(values) and all(is_number(value) for value in values)


def _may_be_names(fields: list[str]) -> bool:
    """Return whether a line of numbers may be a header: increasing integers, such as 0,1,2 or years."""
    values = [field for field in fields if field]
    if not all(_WHOLE.fullmatch(value) for value in values):
        return False
    if len(values) < 2:
        return values == ["0"]  # pandas' name for a single column; any other number is probably a value
    return all(int(a) < int(b) for a, b in pairwise(values))


# --- columns and rows --------------------------------------------------------------------------


def read_text(path: Path, who: str, header: bool | None) -> tuple[Layout, Any]:
    """Read a text file into a pyarrow table, with a type for each column that fits all its values."""
    layout = find_layout(path, header, who)
    with reading(who, "export it again", pa.ArrowException, OSError, why=" as text"):
        try:
            table = _parse(path, layout, null_values=list(MISSING), strings_can_be_null=True)
        except pa.ArrowException as error:
            if not _WRONG_ROW.search(str(error)):
                raise
            # pyarrow's message contains the row itself, which may be confidential; do not show it.
            raise _wrong_row(path, layout, who) from None
    if layout.ends_with_delimiter:
        last = len(layout.names)
        if table.column(last).null_count < table.num_rows:
            raise DataError(f"{who}: column {last + 1} has no name; name it in the file or export without it")
        table = table.remove_column(last)
    return layout, table.rename_columns(list(layout.names))


def as_written(path: Path, layout: Layout, columns: dict[str, Any]) -> dict[str, Any]:
    """Read columns again as text, without blanks around it; null where `columns` are null."""
    wanted = {name: f"x{layout.names.index(name)}" for name in columns}
    types = dict.fromkeys(wanted.values(), pa.string())
    table = _parse(path, layout, include_columns=list(types), column_types=types)
    nothing = pa.scalar(None, pa.string())
    return {
        name: pc.if_else(pc.is_valid(column), pc.utf8_trim_whitespace(table.column(wanted[name])), nothing)
        for name, column in columns.items()
    }


def rows_of_text(path: Path, layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """Yield each row without the header, as unconverted text, with the number of its first line."""
    # Bytes that are not UTF-8 become lone surrogates, which cause an error on writing.
    with path.open(encoding="utf-8-sig", newline="", errors="surrogateescape") as handle:
        lines = (" ".join(line.split()) for line in handle) if layout.delimiter == " " else handle
        reader = csv.reader(lines, delimiter=layout.delimiter)
        first = 1  # a record may span lines, and line_num is its last
        for i, row in enumerate(reader):
            # In a file with one column, an empty line is an empty value.
            if i >= layout.n_skip and (row or layout.n_columns == 1):
                yield first, row or [""]
            first = reader.line_num + 1


def _parse(path: Path, layout: Layout, **convert: Any) -> Any:
    """Read a text file with pyarrow, with the columns x0, x1, … whatever the header says."""
    source: Path | io.BytesIO = path
    if layout.delimiter == " ":
        lines = (b" ".join(line.split()) for line in path.read_bytes().splitlines())
        source = io.BytesIO(b"\n".join(lines) + b"\n")
    return pa_csv.read_csv(
        source,
        # Pass unique names and skip the header; pyarrow finds columns by name.
        read_options=pa_csv.ReadOptions(
            column_names=[f"x{j}" for j in range(layout.n_columns)],
            skip_rows_after_names=layout.n_skip,
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=layout.delimiter,
            newlines_in_values=True,
            # In a file with one column, an empty line is a row with a missing value.
            ignore_empty_lines=layout.n_columns > 1,
        ),
        convert_options=pa_csv.ConvertOptions(**convert),
    )


def _wrong_row(path: Path, layout: Layout, who: str) -> DataError:
    """Return an error with the line that has a wrong number of values; pyarrow reports only the row."""
    expected = layout.n_columns
    columns = f"{count(expected, 'column')} {'is' if expected == 1 else 'are'} expected"
    remedy = "correct that line, or export the file again"
    for line, row in rows_of_text(path, layout):
        if len(row) != expected:
            return DataError(f"{who}: line {line} has {count(len(row), 'value')} where {columns}; {remedy}")
    return DataError(f"{who}: a line has another number of values than the {columns}; {remedy}")
