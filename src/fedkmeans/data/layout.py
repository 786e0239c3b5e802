"""The layout of a text file, detected from its first lines."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TextIO

from fedkmeans.data.wording import one_line, subject
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


@dataclass(frozen=True)
class Layout:
    """The layout of a text file.

    Attributes
    ----------
    delimiter : str
    names : tuple of str
        From the header, or x0, x1, … if there is none.
    has_header : bool
    n_skip : int
        Records before the first row: empty lines, and the header.
    runs_of_blanks : bool
        Whether any number of blanks separates two values, as in many old scientific files.
    ends_with_delimiter : bool
        Whether a delimiter ends the header. The file then has one more column, without a name.
    """

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    n_skip: int
    runs_of_blanks: bool
    ends_with_delimiter: bool = False

    @property
    def n_columns(self) -> int:
        """Number of values in each row of the file."""
        return len(self.names) + self.ends_with_delimiter


def find_layout(path: Path, client_name: str | None = None, header: bool | None = None) -> Layout:
    """Detect the layout of a text file from its first line that is not empty.

    Parameters
    ----------
    path : pathlib.Path
    client_name : str, optional
        Name of the client, for error messages.
    header : bool, optional
        Whether that line is a header. By default, it is one unless all fields are numbers.

    Raises
    ------
    DataError
        The file is no text, or its first line may be a header or data: 0,1,2 or 2019,2020,2021.
    """
    who = subject(path, client_name)
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
    return Layout(
        " " if blanks else delimiter, names[:-1] if ends else names, header, n_empty + header, blanks, ends
    )


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
    try:
        with path.open("rb") as handle:
            if handle.read(2) in _UTF16:
                raise DataError(
                    f"{who} is UTF-16 text, not UTF-8; save it as 'CSV UTF-8', or convert it with "
                    "iconv -f UTF-16 -t UTF-8"
                )
        # Later readers report bytes further down that are not UTF-8.
        with path.open(encoding="utf-8-sig", newline="", errors="surrogateescape") as lines:
            record, n_empty = _record(_bounded(lines), who)
            has_more = any(line.strip() for line in _bounded(lines))
    except OSError as error:
        raise DataError(f"{who} cannot be read: {one_line(error)}; check its permissions") from error
    if "\0" in record:
        raise DataError(f"{who} is binary, not text; give it the suffix of its format or export it as CSV")
    if any("\ud800" <= letter <= "\udfff" for letter in record):
        raise DataError(f"{who} is not UTF-8 text; save it as UTF-8 CSV")
    return record, n_empty, has_more


def _bounded(lines: TextIO) -> Iterator[str]:
    # Do not read a large file without line breaks as one line.
    return iter(lambda: lines.readline(_LONGEST_LINE), "")


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
    numbers = [int(value) for value in values]
    return all(a < b for a, b in pairwise(numbers))
