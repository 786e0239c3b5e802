"""Read delimited text, with pyarrow or row by row without conversion."""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from fedkmeans.data.layout import MISSING, Layout, find_layout
from fedkmeans.data.wording import count, one_line, subject
from fedkmeans.errors import DataError

__all__ = ["MISSING", "Layout", "as_written", "find_layout", "read_text", "rows_of_text"]

_WRONG_ROW = re.compile(r"Expected \d+ columns, got \d+")


def read_text(path: Path, client_name: str | None = None, header: bool | None = None) -> tuple[Layout, Any]:
    """Read a text file into a pyarrow table, with a type for each column that fits all its values."""
    layout = find_layout(path, client_name, header)
    who = subject(path, client_name)
    try:
        table = _parse(path, layout)
    except (pa.ArrowException, OSError) as error:
        if _WRONG_ROW.search(str(error)):
            # pyarrow's message contains the row itself, which may be confidential; do not show it.
            raise _wrong_row(path, layout, who) from None
        raise DataError(f"{who} cannot be read as text: {one_line(error)}; export it again") from error
    if not layout.ends_with_delimiter:
        return layout, table
    last = table.num_columns - 1
    if table.column(last).null_count < table.num_rows:
        raise DataError(f"{who}: column {last + 1} has no name; name it in the file or export without it")
    return layout, table.remove_column(last)


def as_written(path: Path, layout: Layout, columns: dict[int, Any]) -> dict[int, Any]:
    """Read some columns again as text, without blanks around the values.

    Parameters
    ----------
    path : pathlib.Path
    layout : Layout
    columns : dict of int to pyarrow.ChunkedArray
        Columns by position, as returned by `read_text`; values that are null there are null in the result.
    """
    names = _own_names(layout)
    wanted = [names[j] for j in columns]
    convert = pa_csv.ConvertOptions(include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string()))
    table = _parse(path, layout, convert)
    nothing = pa.scalar(None, pa.string())
    return {
        j: pc.if_else(pc.is_valid(column), pc.utf8_trim_whitespace(table.column(names[j])), nothing)
        for j, column in columns.items()
    }


def rows_of_text(path: Path, layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """Yield each row without the header, as unconverted text, with the number of its first line."""
    # Bytes that are not UTF-8 become lone surrogates, which cause an error on writing.
    with path.open(encoding="utf-8-sig", newline="", errors="surrogateescape") as handle:
        numbered = _split_lines(handle) if layout.runs_of_blanks else _records(handle, layout.delimiter)
        for i, (line, row) in enumerate(numbered):
            if i < layout.n_skip:
                continue
            if row:
                yield line, row
            elif layout.n_columns == 1:
                yield line, [""]  # in a file with one column, an empty line is an empty value


def _split_lines(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    return ((line, text.split()) for line, text in enumerate(lines, 1))


def _records(lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        first = reader.line_num + 1  # a record may span lines, and line_num is its last
        try:
            yield first, next(reader)
        except StopIteration:
            return


def _own_names(layout: Layout) -> list[str]:
    """Return unique names, whatever the header says; pyarrow finds columns by name."""
    return [f"x{j}" for j in range(layout.n_columns)]


def _parse(path: Path, layout: Layout, convert: Any = None) -> Any:
    table = pa_csv.read_csv(
        _without_runs_of_blanks(path, layout.n_skip) if layout.runs_of_blanks else path,
        # Pass the names and skip the header, so that all readers of the file use the same names.
        read_options=pa_csv.ReadOptions(
            column_names=_own_names(layout),
            skip_rows_after_names=0 if layout.runs_of_blanks else layout.n_skip,
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=layout.delimiter,
            newlines_in_values=True,
            # In a file with one column, an empty line is a row with a missing value.
            ignore_empty_lines=layout.n_columns > 1,
        ),
        convert_options=convert or pa_csv.ConvertOptions(null_values=list(MISSING), strings_can_be_null=True),
    )
    if convert is not None:
        return table
    return table.rename_columns([*layout.names, ""] if layout.ends_with_delimiter else list(layout.names))


def _wrong_row(path: Path, layout: Layout, who: str) -> DataError:
    """Return an error with the line that has a wrong number of values; pyarrow reports only the row."""
    expected = layout.n_columns
    columns = f"{count(expected, 'column')} {'is' if expected == 1 else 'are'} expected"
    remedy = "correct that line, or export the file again"
    for line, row in rows_of_text(path, layout):
        if len(row) != expected:
            return DataError(f"{who}: line {line} has {count(len(row), 'value')} where {columns}; {remedy}")
    return DataError(f"{who}: a line has another number of values than the {columns}; {remedy}")


def _without_runs_of_blanks(path: Path, n_skip: int) -> io.BytesIO:
    lines = (b" ".join(line.split()) for line in path.read_bytes().splitlines()[n_skip:])
    return io.BytesIO(b"\n".join(line for line in lines if line) + b"\n")
