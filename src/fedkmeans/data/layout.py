"""How a text file is laid out, worked out from its first lines."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TextIO

from fedkmeans.data.messages import one_line, subject
from fedkmeans.errors import DataError, Setting

# What stands for a missing value; as pyarrow compares exactly, common spellings are all here.
MISSING = ("", "?", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "null", "NULL", "Null", "None")

_DELIMITERS = (",", ";", "\t", "|")
_LONGEST_LINE = 1 << 24
_MOST_HEADER_LINES = 1000
# A quotation mark opens a quoted field only where a field starts, as for csv and for pyarrow.
_QUOTED = re.compile(r'(?:^|(?<=[,;\t|]))"(?:[^"]|"")*"')
_OPEN_QUOTE = re.compile(r'(?:^|[,;\t|])"')
_WHOLE = re.compile(r"[0-9]{1,18}")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Layout:
    """How a text file is laid out.

    Attributes
    ----------
    delimiter : str
    names : tuple of str
        From the header, or x0, x1, … when there is none.
    has_header : bool
    n_skip : int
        Records before the first row: empty lines, and the header.
    runs_of_blanks : bool
        Whether any run of blanks separates two values, as in many old scientific files.
    ends_with_delimiter : bool
        Whether a delimiter ends the header, so that there is one more column, nameless and not in `names`.
    """

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    n_skip: int
    runs_of_blanks: bool
    ends_with_delimiter: bool = False

    @property
    def n_columns(self) -> int:
        """Values that each row of the file must have."""
        return len(self.names) + self.ends_with_delimiter


def find_layout(path: Path, client_name: str | None = None, header: bool | None = None) -> Layout:
    """Look at the first line of a text file that is not empty, and work out the layout from it.

    Parameters
    ----------
    path : pathlib.Path
    client_name : str, optional
        Whose file it is, for error messages.
    header : bool, optional
        Whether that line holds the column names. Not given, it does unless it is all numbers.

    Raises
    ------
    DataError
        The file is no text, or its first line may be names as well as numbers: 0,1,2 or 2019,2020,2021.
    """
    who = subject(path, client_name)
    record, n_empty, has_more = _first_record(path, who)
    plain = _QUOTED.sub("", record)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=plain.count)
    # Only files that do not call themselves CSV may be separated by blanks: a CSV with one column
    # called "blood pressure" has one column.
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
    """Tell whether a text is a number as pyarrow reads one; Python's float takes 1_000 as well."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _first_record(path: Path, who: str) -> tuple[str, int, bool]:
    """Return the first record that is not empty, how many empty lines stand before it, and if more follow.

    The record is one line, or several where a quoted field holds line breaks.
    """
    try:
        with path.open("rb") as handle:
            if handle.read(2) in _UTF16:
                raise DataError(
                    f"{who} is UTF-16 text, not UTF-8; save it as 'CSV UTF-8', or convert it with "
                    "iconv -f UTF-16 -t UTF-8"
                )
        # Whatever is not UTF-8 further down is another reader's business.
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
    # A file without line breaks, perhaps no text at all, is not read whole to look at its start.
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
    """Whether a line is data: numbers and missing values, with at least one number."""
    values = [field for field in fields if field not in MISSING]
    return bool(values) and all(is_number(value) for value in values)


def _may_be_names(fields: list[str]) -> bool:
    """Whether a line of numbers may be a header: whole numbers that increase, as 0,1,2 or years do."""
    values = [field for field in fields if field]
    if not all(_WHOLE.fullmatch(value) for value in values):
        return False
    if len(values) < 2:
        return values == ["0"]  # pandas' name for a single column; any other number is rather a value
    numbers = [int(value) for value in values]
    return all(a < b for a, b in pairwise(numbers))
