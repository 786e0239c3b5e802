"""Write the rows of a file with their labels."""

import csv
import io
import os
from collections.abc import Callable
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
from fedkmeans.data.readers import TEXT_SUFFIXES, RawTable, read_raw
from fedkmeans.data.text import as_written, find_layout, rows_of_text
from fedkmeans.data.wording import listing, one_line
from fedkmeans.errors import DataError, Setting

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
    writer = WRITERS.get(out.suffix.lower())
    if writer is None:
        raise DataError(
            f"file {str(out)!r}: labels can be written as {listing(WRITERS)}; choose one of these"
        )
    if out.resolve() == source.resolve():
        raise DataError(f"file {str(out)!r} is the input; choose another file for the labels")
    raw = read_raw(source, header=header)
    if column in _all_names(raw):
        raise DataError(
            f"file {str(source)!r} already has a column {column!r}",
            remedy=("choose another name for the labels with ", Setting("column=...", typed="--column NAME")),
        )
    full = _for_every_row(source, raw.n_rows, labels, kept)
    try:
        with atomic_path(out) as temporary:
            writer(temporary, source, raw, column, full)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"file {str(out)!r} cannot be written: {one_line(error)}; choose another place or format"
        ) from error


def _for_every_row(source: Path, n_rows: int, labels: DataArray, kept: Mask | None) -> Any:
    labels = np.asarray(labels)
    kept = np.ones(n_rows, dtype=bool) if kept is None else np.asarray(kept, dtype=bool)
    if kept.shape != (n_rows,) or labels.shape != (int(kept.sum()),):
        raise DataError(
            f"file {str(source)!r} has {n_rows} rows, of which {int(kept.sum())} kept, and there are "
            f"labels of shape {labels.shape}; give one label for each kept row"
        )
    full = np.zeros(n_rows, dtype=labels.dtype)
    full[kept] = labels
    return pa.array(full, mask=~kept)


def _all_names(raw: RawTable) -> tuple[str, ...]:
    return raw.names + tuple(_apart(raw))


def _apart(raw: RawTable) -> dict[str, Any]:
    """Return labels and clients that the format stores separately, under the names they have there."""
    return {
        name: values for name, values in (("y", raw.labels), ("client", raw.clients)) if values is not None
    }


def _joined(source: Path, raw: RawTable, column: str, labels: Any) -> Any:
    own = _faithful(source, raw) if source.suffix.lower() in TEXT_SUFFIXES else raw.columns
    columns = [pa.array(c) if isinstance(c, np.ndarray) else c for c in (*own, *_apart(raw).values())]
    return pa.table([*columns, labels], names=[*_all_names(raw), column])


def _faithful(source: Path, raw: RawTable) -> list[Any]:
    """Return the columns of a text file; as text if numbers or dates would lose their spelling."""
    converted = {j: c for j, c in enumerate(raw.columns) if not _is_text(c.type)}
    columns = list(raw.columns)
    if converted:
        written = as_written(source, find_layout(source, header=raw.is_named), converted)
        columns = [
            written[j] if j in written and _differs(c, written[j]) else c for j, c in enumerate(columns)
        ]
    return columns


def _is_text(kind: Any) -> bool:
    # Nulls have no spelling, and binary columns are text that is not UTF-8.
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_null(kind))


def _differs(column: Any, text: Any) -> bool:
    if pa.types.is_floating(column.type):
        # 1.50 may become 1.5. But 01.5, +1.5 and integers beyond a double must keep their spelling.
        changed = pc.match_substring_regex(text, _NOT_A_MEASUREMENT)
    else:
        changed = pc.not_equal(pc.utf8_lower(text), pc.utf8_lower(pc.cast(column, pa.string())))
    return bool(pc.any(changed, min_count=0).as_py())


def _write_text(path: Path, source: Path, raw: RawTable, column: str, labels: Any, delimiter: str) -> None:
    if source.suffix.lower() in TEXT_SUFFIXES:
        _copy_text(path, source, raw, column, labels, delimiter)
    else:
        pa_csv.write_csv(_joined(source, raw, column, labels), path, pa_csv.WriteOptions(delimiter=delimiter))


def _copy_text(path: Path, source: Path, raw: RawTable, column: str, labels: Any, delimiter: str) -> None:
    # Copy values as text: as numbers, 1.0 would become 1, and ? would be lost.
    layout = find_layout(source, header=raw.is_named)
    n_columns = len(layout.names)  # one less if each line ends with a delimiter
    with path.open("w", encoding="utf-8", newline="") as handle:
        out = csv.writer(handle, delimiter=delimiter, lineterminator="\n")
        out.writerow([*layout.names, column])
        try:
            for (_, row), label in zip(rows_of_text(source, layout), labels.to_pylist(), strict=True):
                out.writerow([*row[:n_columns], "" if label is None else label])
        except (ValueError, csv.Error) as error:
            raise DataError(
                f"file {str(source)!r} cannot be copied row by row: {one_line(error)}; save it as UTF-8 "
                "CSV, or write the labels as .parquet"
            ) from error


def _write_csv(path: Path, source: Path, raw: RawTable, column: str, labels: Any) -> None:
    _write_text(path, source, raw, column, labels, ",")


def _write_tsv(path: Path, source: Path, raw: RawTable, column: str, labels: Any) -> None:
    _write_text(path, source, raw, column, labels, "\t")


def _write_parquet(path: Path, source: Path, raw: RawTable, column: str, labels: Any) -> None:
    pq.write_table(_joined(source, raw, column, labels), path)


def _write_feather(path: Path, source: Path, raw: RawTable, column: str, labels: Any) -> None:
    pa_feather.write_feather(_joined(source, raw, column, labels), str(path))


def _write_npy(path: Path, source: Path, raw: RawTable, column: str, labels: Any) -> None:
    buffer = io.BytesIO()  # np.save to a file does not report why a write failed
    np.save(buffer, labels.fill_null(-1).to_numpy(), allow_pickle=False)
    path.write_bytes(buffer.getvalue())


WRITERS: dict[str, Callable[[Path, Path, RawTable, str, Any], None]] = {
    ".csv": _write_csv,
    ".tsv": _write_tsv,
    ".parquet": _write_parquet,
    ".feather": _write_feather,
    ".arrow": _write_feather,
    ".npy": _write_npy,
}
