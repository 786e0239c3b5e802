"""Write the rows of a file with their labels."""

import csv
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.feather as pa_feather
import pyarrow.parquet as pq

from fedkmeans._utils.atomic_io import atomic_path
from fedkmeans._utils.typing import DataArray
from fedkmeans.data.columns import Mask
from fedkmeans.data.readers import RawTable, read_raw
from fedkmeans.data.text import Layout, as_written, rows_of_text
from fedkmeans.data.wording import listing, one_line, subject
from fedkmeans.errors import DataError, Setting

# Suffixes of files that labels can be written to.
WRITERS = (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".npy")

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
# Leading zeros, a plus sign, and integers with more digits than a double can hold.
_NOT_A_MEASUREMENT = r"^(?:\+|-?0[0-9]|-?[0-9]{16,}$)"


def write_labels(
    table_path: str | os.PathLike[str],
    labels: DataArray,
    out_path: str | os.PathLike[str],
    column: str = "cluster",
    kept: Mask | None = None,
    header: bool | None = None,
) -> None:
    """Write the rows of a data file with the labels as an additional column.

    The file is written atomically. From text to text, every value keeps its spelling, and a file
    without a header gets the names with which it was read (x0, x1, …). From text to another format,
    columns of numbers that would not be written as the same text again (001, +5) stay text.

    Parameters
    ----------
    table_path : str or path-like
        The data file, of any format that :func:`fedkmeans.data.read_table` reads.
    labels : ndarray of shape (n_kept,)
        One label for each kept row, in the order of the file.
    out_path : str or path-like
        ``.csv``, ``.tsv``, ``.parquet``, ``.feather``, ``.arrow``, or ``.npy`` for only the labels.
    column : str
        Name of the added column.
    kept : ndarray of bool, shape (n_rows_in_file,), optional
        Rows that have a label, as in `Table.kept`. The others get an empty field, a null, or -1 in
        ``.npy``.
    header : bool, optional
        Whether the first line of a text file is a header, as for :func:`fedkmeans.data.read_table`.

    Raises
    ------
    DataError
        Rows and labels do not match, the column exists already, or `out_path` cannot be written.
    """
    source, out = Path(table_path), Path(out_path)
    suffix = out.suffix.lower()
    if suffix not in WRITERS:
        raise DataError(f"{subject(out)}: labels can be written as {listing(WRITERS)}; choose one of these")
    if out.resolve() == source.resolve():
        raise DataError(f"{subject(out)} is the input; choose another file for the labels")
    raw = read_raw(source, header=header)
    if column in raw.columns | raw.apart:
        raise DataError(
            f"{subject(source)} already has a column {column!r}",
            remedy=("choose another name for the labels with ", Setting("column=...", typed="--column NAME")),
        )
    full = _for_every_row(source, raw.n_rows, labels, kept)
    try:
        with atomic_path(out) as temporary:
            _write(temporary, suffix, source, raw, column, full)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{subject(out)} cannot be written: {one_line(error)}; choose another place or format"
        ) from error


def _for_every_row(source: Path, n_rows: int, labels: DataArray, kept: Mask | None) -> Any:
    labels = np.asarray(labels)
    kept = np.ones(n_rows, dtype=bool) if kept is None else np.asarray(kept, dtype=bool)
    if kept.shape != (n_rows,) or labels.shape != (int(kept.sum()),):
        raise DataError(
            f"{subject(source)} has {n_rows} rows, of which {int(kept.sum())} kept, and there are "
            f"labels of shape {labels.shape}; give one label for each kept row"
        )
    full = np.zeros(n_rows, dtype=labels.dtype)
    full[kept] = labels
    return pa.array(full, mask=~kept)


def _write(path: Path, suffix: str, source: Path, raw: RawTable, column: str, labels: Any) -> None:
    delimiter = _DELIMITERS.get(suffix)
    if suffix == ".npy":
        buffer = io.BytesIO()  # np.save to a file does not report why a write failed
        np.save(buffer, labels.fill_null(-1).to_numpy(), allow_pickle=False)
        path.write_bytes(buffer.getvalue())
    elif delimiter is not None and raw.layout is not None:
        _copy_text(path, source, raw.layout, column, labels, delimiter)
    elif delimiter is not None:
        pa_csv.write_csv(_joined(source, raw, column, labels), path, pa_csv.WriteOptions(delimiter=delimiter))
    elif suffix == ".parquet":
        pq.write_table(_joined(source, raw, column, labels), path)
    else:
        pa_feather.write_feather(_joined(source, raw, column, labels), str(path))


def _copy_text(path: Path, source: Path, layout: Layout, column: str, labels: Any, delimiter: str) -> None:
    """Copy values as text: as numbers, 1.0 would become 1, and ? would be lost."""
    n_columns = len(layout.names)  # one less if each line ends with a delimiter
    with path.open("w", encoding="utf-8", newline="") as handle:
        out = csv.writer(handle, delimiter=delimiter, lineterminator="\n")
        out.writerow([*layout.names, column])
        try:
            for (_, row), label in zip(rows_of_text(source, layout), labels.to_pylist(), strict=True):
                out.writerow([*row[:n_columns], "" if label is None else label])
        except (ValueError, csv.Error) as error:
            raise DataError(
                f"{subject(source)} cannot be copied row by row: {one_line(error)}; save it as UTF-8 "
                "CSV, or write the labels as .parquet"
            ) from error


def _joined(source: Path, raw: RawTable, column: str, labels: Any) -> Any:
    """Return a pyarrow table of all columns and the labels."""
    columns = raw.columns | raw.apart
    if raw.layout is not None:
        # Nulls have no spelling, and binary columns are text that is not UTF-8.
        no_text = {name: c for name, c in columns.items() if str(c.type) not in ("string", "binary", "null")}
        written = as_written(source, raw.layout, no_text) if no_text else {}
        columns |= {name: text for name, text in written.items() if _differs(no_text[name], text)}
    arrays = [pa.array(c) if isinstance(c, np.ndarray) else c for c in columns.values()]
    return pa.table([*arrays, labels], names=[*columns, column])


def _differs(column: Any, text: Any) -> bool:
    """Return whether numbers or dates of a text file would lose their spelling."""
    if pa.types.is_floating(column.type):
        # 1.50 may become 1.5. But 01.5, +1.5 and integers beyond a double must keep their spelling.
        changed = pc.match_substring_regex(text, _NOT_A_MEASUREMENT)
    else:
        changed = pc.not_equal(pc.utf8_lower(text), pc.utf8_lower(pc.cast(column, pa.string())))
    return bool(pc.any(changed, min_count=0).as_py())
