"""``fedkmeans partition``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from fedkmeans._utils.checks import check_choice, check_integer
from fedkmeans._utils.seeding import generator
from fedkmeans._utils.typing import DataArray, IntArray
from fedkmeans.cli import console
from fedkmeans.cli.inputs import Source, check_way, note_on_headers, notes_on_rows, reading
from fedkmeans.cli.outputs import check_new_folder, writing
from fedkmeans.data import PARTITIONERS, atomic_folder, by_column, load_dataset, partition, read_table
from fedkmeans.errors import DataError, ParameterError

_BY_COLUMN = "by-column"


@dataclass(frozen=True)
class RowsToDeal:
    """Rows `X` (n, m), labels (n,) with the name of their column, and the owner of each row (n,)."""

    X: DataArray
    names: tuple[str, ...]
    labels: DataArray | None
    label_name: str
    owners: DataArray | None = None


def run_partition(
    *,
    how: str,
    out: Path,
    n_clients: int | None,
    column: str | None,
    seed: int,
    format: str,  # noqa: A002 (the name of the option)
    source: dict[str, Any],
    built_in: dict[str, Any],
) -> None:
    """Write one file per client; the folder appears complete or not at all."""
    data = Source.of(client_column=column, **source)
    dataset = built_in.pop("dataset", None)
    how = check_way("--how", how, () if how == _BY_COLUMN else built_in, more=(_BY_COLUMN,))
    write = WRITERS[check_choice("--format", format, WRITERS)]
    check_new_folder(out)
    rows = _read(data, dataset, how)
    if how != _BY_COLUMN:
        numbers, names = _dealt(rows, how, n_clients, seed, built_in)
    elif n_clients is not None or built_in:
        raise ParameterError(
            "by-column takes the clients from the column; leave out --n-clients, --p, --alpha"
        )
    else:
        numbers, names = _by_column(rows)
    sizes = np.bincount(numbers)
    # Sorted once, so that a thousand clients do not take a thousand passes over the rows.
    order, stops = np.argsort(numbers, kind="stable"), np.cumsum(sizes)
    with writing(out), atomic_folder(out) as folder:
        for name, size, stop in zip(names, sizes, stops, strict=True):
            write(folder / f"{name}.{format}", rows, order[stop - size : stop])
    facts = [
        ("clients", console.number(len(sizes))),
        ("rows", console.number(len(rows.X))),
        ("rows a client", f"{sizes.min():,} to {sizes.max():,}"),
        ("seed", seed),
    ]
    console.show_facts(f"Dealt out: {how}", facts)
    label = "" if rows.labels is None or format == "npz" else f" --label {shlex.quote(rows.label_name)}"
    place = shlex.quote(str(out))
    console.say(f"The files are in {str(out)!r}. To cluster them: fedkmeans fit {place} -k K{label}")


def _read(source: Source, dataset: str | None, how: str) -> RowsToDeal:
    if (dataset is None) == (not source.paths):
        raise ParameterError("give either a data file or a built-in data set with --dataset; see --help")
    if (how == _BY_COLUMN) != (source.client_column is not None):
        raise ParameterError("--column NAME belongs to --how by-column, and by-column needs it")
    if dataset is not None and source.header is not None:
        raise ParameterError("--header belongs to a data file, not to --dataset")
    if dataset is None:
        table = read_table(source.paths[0], **reading(source, source.paths))
        for note in notes_on_rows([table]):
            console.note(note)
        note_on_headers(source, {table.path: table.is_named})
        return RowsToDeal(table.X, table.feature_names, table.labels, source.label or "y", table.clients)
    built_in = load_dataset(dataset)
    names = built_in.feature_names or tuple(f"x{i}" for i in range(built_in.X.shape[1]))
    if source.client_column is not None:
        raise ParameterError(f"data set {dataset!r} has no columns that name clients; choose another --how")
    return RowsToDeal(built_in.X, names, built_in.y, "label" if "label" not in names else "true label")


def _dealt(
    rows: RowsToDeal, how: str, n_clients: int | None, seed: int, options: dict[str, float]
) -> tuple[IntArray, list[str]]:
    if n_clients is None:
        raise ParameterError(f"--how {how} needs the number of clients; give --n-clients N")
    if PARTITIONERS[how].takes == "y" and rows.labels is None:
        raise ParameterError(f"--how {how} deals rows out by their labels; name their column with --label")
    rng = generator(check_integer("--seed", seed, least=0), "partition")
    numbers = partition(how, rows.X, rows.labels, n_clients, rng, **options)
    width = len(str(n_clients - 1))
    return numbers, [f"client-{i:0{width}d}" for i in range(n_clients)]


def _by_column(rows: RowsToDeal) -> tuple[IntArray, list[str]]:
    if rows.owners is None:
        raise DataError("the file names no client in any row; choose another --how")
    numbers, names = by_column(rows.owners)
    files = [_file_name(name) for name in names]
    for i, file in enumerate(files):
        # Without case, as some file systems do not distinguish it.
        first = [other.lower() for other in files].index(file.lower())
        if first != i:
            raise DataError(
                f"clients {names[first]!r} and {names[i]!r} would both be written as {file!r}; rename one"
            )
    return numbers, files


def _file_name(client: str) -> str:
    """Return a valid file name for a client's name."""
    return re.sub(r"[^\w.-]+", "_", client).lstrip(".") or "_"


# --- files -------------------------------------------------------------------------------------


def _table(rows: RowsToDeal, chosen: IntArray) -> Any:
    part = rows.X[chosen]
    columns = [pa.array(part[:, j]) for j in range(part.shape[1])]
    names = list(rows.names)
    if rows.labels is not None:
        columns.append(pa.array(rows.labels[chosen]))
        names.append(rows.label_name)
    return pa.table(columns, names=names)


def _write_csv(path: Path, rows: RowsToDeal, chosen: IntArray) -> None:
    pa_csv.write_csv(_table(rows, chosen), path)


def _write_parquet(path: Path, rows: RowsToDeal, chosen: IntArray) -> None:
    pq.write_table(_table(rows, chosen), path)


def _write_npz(path: Path, rows: RowsToDeal, chosen: IntArray) -> None:
    labels = {} if rows.labels is None else {"y": rows.labels[chosen]}
    np.savez_compressed(path, allow_pickle=False, X=rows.X[chosen], **labels)


WRITERS: dict[str, Callable[[Path, RowsToDeal, IntArray], None]] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
    "npz": _write_npz,
}
