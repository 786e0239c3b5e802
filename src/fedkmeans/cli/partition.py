"""``fedkmeans partition``."""

import re
import shlex
from collections.abc import Sequence
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
from fedkmeans.cli import console, files
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
    data: Path | None,
    n_clients: int | None,
    column: str | None,
    seed: int,
    format: str,  # noqa: A002 (the name of the option)
    source: dict[str, Any],
    built_in: dict[str, Any],
) -> None:
    """Write one file per client; the folder appears complete or not at all."""
    dataset = built_in.pop("dataset", None)
    how = files.check_way("--how", how, () if how == _BY_COLUMN else built_in, more=(_BY_COLUMN,))
    check_choice("--format", format, ("csv", "parquet", "npz"))
    files.check_new_folder(out)
    rows = _read(files.Source.of(data, client_column=column, **source), dataset, how)
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
    chosen = np.split(np.argsort(numbers, kind="stable"), np.cumsum(sizes)[:-1])
    with files.writing(out), atomic_folder(out) as folder:
        for name, some in zip(names, chosen, strict=True):
            _write(folder / f"{name}.{format}", rows, some)
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


def _read(source: files.Source, dataset: str | None, how: str) -> RowsToDeal:
    if (dataset is None) == (not source.paths):
        raise ParameterError("give either a data file or a built-in data set with --dataset; see --help")
    if (how == _BY_COLUMN) != (source.client_column is not None):
        raise ParameterError("--column NAME belongs to --how by-column, and by-column needs it")
    if dataset is not None and source.header is not None:
        raise ParameterError("--header belongs to a data file, not to --dataset")
    if dataset is None:
        table = read_table(source.paths[0], **files.reading(source, source.paths))
        for note in files.notes_on_rows([table]):
            console.note(note)
        files.note_on_headers(source, {table.path: table.is_named})
        return RowsToDeal(table.X, table.feature_names, table.labels, source.label or "y", table.clients)
    built_in = load_dataset(dataset)
    names = built_in.feature_names or tuple(f"x{i}" for i in range(built_in.X.shape[1]))
    if source.client_column is not None:
        raise ParameterError(f"data set {dataset!r} has no columns that name clients; choose another --how")
    return RowsToDeal(built_in.X, names, built_in.y, "label" if "label" not in names else "true label")


def _dealt(
    rows: RowsToDeal, how: str, n_clients: int | None, seed: int, options: dict[str, float]
) -> tuple[IntArray, Sequence[str]]:
    if n_clients is None:
        raise ParameterError(f"--how {how} needs the number of clients; give --n-clients N")
    if PARTITIONERS[how].takes == "y" and rows.labels is None:
        raise ParameterError(f"--how {how} deals rows out by their labels; name their column with --label")
    rng = generator(check_integer("--seed", seed, least=0), "partition")
    return partition(how, rows.X, rows.labels, n_clients, rng, **options), files.numbered(n_clients)


def _by_column(rows: RowsToDeal) -> tuple[IntArray, Sequence[str]]:
    if rows.owners is None:
        raise DataError("the file names no client in any row; choose another --how")
    numbers, names = by_column(rows.owners)
    called = [re.sub(r"[^\w.-]+", "_", name).lstrip(".") or "_" for name in names]  # valid as names of files
    for i, file in enumerate(called):
        # Without case, as some file systems do not distinguish it.
        first = [other.lower() for other in called].index(file.lower())
        if first != i:
            raise DataError(
                f"clients {names[first]!r} and {names[i]!r} would both be written as {file!r}; rename one"
            )
    return numbers, called


def _write(path: Path, rows: RowsToDeal, chosen: IntArray) -> None:
    if path.suffix == ".npz":
        labels = {} if rows.labels is None else {"y": rows.labels[chosen]}
        np.savez_compressed(path, allow_pickle=False, X=rows.X[chosen], **labels)
    elif path.suffix == ".csv":
        pa_csv.write_csv(_table(rows, chosen), path)
    else:
        pq.write_table(_table(rows, chosen), path)


def _table(rows: RowsToDeal, chosen: IntArray) -> Any:
    columns = dict(zip(rows.names, rows.X[chosen].T, strict=True))
    if rows.labels is not None:
        columns[rows.label_name] = rows.labels[chosen]
    return pa.table(columns)
