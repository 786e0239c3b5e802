"""The data that a command reads, for fitting and for use with a model; and checks of places to write to."""

import csv
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedkmeans._utils.checks import check_choice
from fedkmeans._utils.seeding import generator
from fedkmeans._utils.typing import DataArray, FloatArray
from fedkmeans.cli import console
from fedkmeans.client.site import Site
from fedkmeans.data import PARTITIONERS, ClientTable, load_dataset, partition, read_clients
from fedkmeans.data.clients import data_files
from fedkmeans.data.readers import READERS, TEXT_SUFFIXES, read_raw
from fedkmeans.data.tables import Table
from fedkmeans.data.text import find_layout
from fedkmeans.data.wording import listing
from fedkmeans.errors import DataError, ModelError, ParameterError
from fedkmeans.model import FILE_SUFFIX, Model, check_destination, is_model

# Beyond this ratio of standard deviations the wider column dominates all distances.
_UNEVEN = 100.0
_USUAL_CLIENTS = 10
_MOST_NAMED = 5
_BLOCK_ROWS = 2**16


@dataclass(frozen=True)
class Source:
    """Files and folders, and how to read them.

    `columns` and `drop` are as typed: whether a comma separates names depends on the columns of the files.
    `header` says whether the first line of a text file names the columns; None means that it is guessed.
    """

    paths: tuple[Path, ...] = ()
    label: str | None = None
    client_column: str | None = None
    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    missing: str = "error"
    header: bool | None = None

    @classmethod
    def of(cls, data: Path | Sequence[Path] | None, header: str | None = None, **options: Any) -> Self:
        """Make a source of the options as typed."""
        paths = (data,) if isinstance(data, Path) else tuple(data or ())
        several = {name: tuple(value) for name, value in options.items() if isinstance(value, list)}
        return cls(paths, header=None if header is None else header == "yes", **{**options, **several})


def read_source(source: Source, fixed_columns: bool = False) -> list[ClientTable]:
    """Read the files; note rows that are left out and columns without names.

    With `fixed_columns` the columns are those of a model: their names are not split, and errors do not
    advise choosing others.
    """
    files = data_files(source.paths)
    keywords = reading(source, files)
    if fixed_columns:
        keywords |= {"columns": source.columns, "fixed_columns": True}
    tables = read_clients(files, **keywords)
    for note in notes_on_rows(tables):
        console.note(note)
    if not fixed_columns:
        note_on_headers(source, {table.path: table.is_named for table in tables})
    return tables


def reading(source: Source, files: Sequence[Path]) -> dict[str, Any]:
    """Return the source as keywords of `read_clients` and `read_table`."""
    columns, drop = source.columns, source.drop
    known: tuple[str, ...] = ()
    if files and any("," in text for text in (*(columns or ()), *drop)):
        # Only the columns tell whether a comma separates two names or is part of one.
        known, _ = column_names(files[0], source.header)
    return {
        "columns": None if columns is None else names(columns, known),
        "drop": names(drop, known),
        "label": source.label,
        "client": source.client_column,
        "missing": source.missing.replace("-", "_"),
        "header": source.header,
    }


def notes_on_rows(tables: Sequence[ClientTable | Table]) -> list[str]:
    """Say how many rows were left out, if any."""
    n_dropped = sum(table.n_dropped for table in tables)
    if not n_dropped:
        return []
    rows = f"{n_dropped:,} of {n_dropped + sum(len(table.X) for table in tables):,} rows"
    have = "has a missing value and is" if n_dropped == 1 else "have a missing value and are"
    return [f"{rows} {have} left out."]


def note_on_headers(source: Source, is_named: Mapping[Path, bool]) -> None:
    """Note which text files have no header, unless the user said so."""
    found = [path for path, named in is_named.items() if not named and path.suffix.lower() in TEXT_SUFFIXES]
    if found and source.header is not False:
        have, their = ("has", "its") if len(found) == 1 else ("have", "their")
        files = listing(map(str, found), 3)
        console.note(f"{files} {have} no header line; {their} columns are called x0, x1, …")


def names(values: Iterable[str], known: Collection[str] = ()) -> tuple[str, ...]:
    """Split names at commas, unless the whole is the name of a column.

    As in CSV, a name with a comma is put in quotes.
    """
    found: list[str] = []
    for value in values:
        # A quotation mark means something only where there is a comma to protect.
        parts = [value]
        if value not in known and "," in value:
            parts = next(csv.reader([value], skipinitialspace=True))
        found += [part if part in known else part.strip() for part in parts]
    return tuple(name for name in found if name)


def check_way(option: str, how: str, given: Collection[str], more: Collection[str] = ()) -> str:
    """Check the name of a partitioner and that its options are given; return the name."""
    known = how.replace("_", "-")
    check_choice(option, known, {*PARTITIONERS, *more})
    takes = set(PARTITIONERS[known].options) if known in PARTITIONERS else set()
    for name in sorted(takes - set(given)):
        raise ParameterError(f"{option} {known} needs --{name}; see --help")
    for name in sorted(set(given) - takes):
        raise ParameterError(f"{option} {known} takes no --{name}; leave it out")
    return known


def deal_out(
    dataset: str,
    seed: int,
    kernel: str,
    distribution: str | None = None,
    n_clients: int | None = None,
    **options: float,
) -> list[Site]:
    """Load a built-in data set and divide it among clients, unless it is divided already."""
    data = load_dataset(dataset)
    numbers, names = data.clients, data.client_names
    if numbers is None:
        how = check_way("--distribution", distribution or "iid", options)
        n_clients = _USUAL_CLIENTS if n_clients is None else n_clients
        numbers = partition(how, data.X, data.y, n_clients, generator(seed, "partition"), **options)
    elif distribution is not None or n_clients is not None or options:
        raise ParameterError(
            f"data set {dataset!r} comes divided into clients; leave out --distribution and --n-clients"
        )
    sizes = np.bincount(numbers)
    starts = np.cumsum(sizes) - sizes
    # Sorted once: the sites share one table, and a round of all of them is one call of the kernel.
    X = data.X[np.argsort(numbers, kind="stable")]
    names = names or numbered(len(sizes))
    return Site.from_shared_table(X, names, starts.tolist(), None, data.feature_names, kernel=kernel)


def numbered(n_clients: int) -> tuple[str, ...]:
    """Return names of clients that have none."""
    width = len(str(n_clients - 1))
    return tuple(f"client-{i:0{width}d}" for i in range(n_clients))


def read_for_model(model: Model, source: Source) -> list[ClientTable]:
    """Read the columns that a model needs: by name, or by position in files without names."""
    files = data_files(source.paths)
    unnamed: list[Path] = []
    extra: dict[str, None] = {}
    for file in files:
        found, is_named = column_names(file, source.header)
        if not is_named and len(found) == model.centroids.shape[1]:
            unnamed.append(file)
            continue
        extra.update(dict.fromkeys(model.check_columns(found, who=f"File {str(file)!r}")))
    if unnamed and len(unnamed) < len(files):
        raise ModelError(
            f"File {str(unnamed[0])!r} has no column names and others have; give all of them a header."
        )
    unused = [name for name in extra if name not in (source.label, source.client_column)]
    if len(unused) > _MOST_NAMED:
        console.note(f"{len(unused):,} columns that the model does not use are ignored.")
    elif unused:
        console.note(f"columns that the model does not use are ignored: {listing(unused)}.")
    columns = None if unnamed else model.column_names
    return read_source(replace(source, columns=columns), fixed_columns=True)


def column_names(file: Path, header: bool | None = None) -> tuple[tuple[str, ...], bool]:
    """Return the column names of a file, and whether they are the file's own."""
    if file.is_file() and file.suffix.lower() in TEXT_SUFFIXES:
        layout = find_layout(file, header=header)
        return layout.names, layout.has_header
    raw = read_raw(file, header=header)
    return raw.names, raw.is_named


def notes_on_columns(tables: Sequence[ClientTable]) -> list[str]:
    """Note columns that are constant, and scales so different that the widest columns dominate."""
    called = tables[0].feature_names
    low = np.min([table.X.min(axis=0) for table in tables], axis=0)
    high = np.max([table.X.max(axis=0) for table in tables], axis=0)
    constant = [name for name, is_constant in zip(called, low == high, strict=True) if is_constant]
    notes = []
    if constant:
        what = "column {} is constant and says" if len(constant) == 1 else "columns {} are constant and say"
        notes.append(f"{what.format(listing(constant, _MOST_NAMED))} nothing about clusters.")
    # By value: the standard deviation of a constant 0.1 is a little larger than 0, due to rounding.
    varying = np.flatnonzero(low != high)
    with np.errstate(over="ignore", invalid="ignore"):  # values that are too large are refused later, by name
        spread = _standard_deviations([table.X for table in tables])
    varying = varying[np.isfinite(spread[varying]) & (spread[varying] > 0)]
    if len(varying) > 1:
        narrow, wide = varying[spread[varying].argmin()], varying[spread[varying].argmax()]
        if spread[wide] > _UNEVEN * spread[narrow]:
            notes.append(
                f"columns differ much in scale (standard deviation of {called[wide]!r} {spread[wide]:,.3g}, "
                f"of {called[narrow]!r} {spread[narrow]:,.3g}), and k-means follows the wide ones; unless "
                "all have the same unit, bring them to one scale first."
            )
    return notes


def _standard_deviations(shards: Sequence[DataArray]) -> FloatArray:
    """Pool means and variances by column, block by block, without a copy of all rows; shape (m,)."""
    blocks = [X[start : start + _BLOCK_ROWS] for X in shards for start in range(0, len(X), _BLOCK_ROWS)]
    sizes = np.array([len(block) for block in blocks], dtype=np.float64)[:, None]
    means = np.array([block.mean(axis=0, dtype=np.float64) for block in blocks])
    within = np.array([block.var(axis=0, dtype=np.float64) for block in blocks])
    mean = (sizes * means).sum(axis=0) / sizes.sum()
    pooled: FloatArray = (sizes * (within + (means - mean) ** 2)).sum(axis=0) / sizes.sum()
    return np.sqrt(pooled)


# --- places to write to ------------------------------------------------------------------------


def check_model_place(out: Path, force: bool) -> None:
    """Raise unless a model can be saved at `out`; with `force` a model there is replaced."""
    if out.suffix.lower() in READERS:
        raise ModelError(
            f"--out {str(out)!r} has the suffix of a data file; a model is a folder or NAME{FILE_SUFFIX}"
        )
    _refuse_here(out, f"a folder or NAME{FILE_SUFFIX}")
    _refuse_inside_model(out)
    check_destination(out)
    if not force and (out.is_file() or (out.is_dir() and any(out.iterdir()))):
        raise ModelError(f"{str(out)!r} holds a model; choose another --out, or replace it with --force")


def check_new_folder(out: Path) -> None:
    """Raise unless `out` can become a new folder."""
    _refuse_here(out, "a new folder")
    if out.is_dir() and any(out.iterdir()):
        raise DataError(f"folder {str(out)!r} is not empty; choose a new folder, or empty it first")
    if out.exists() and not out.is_dir():
        raise DataError(f"{str(out)!r} is a file, and a folder is needed; choose another name with --out")
    if out.suffix.lower() in READERS:
        raise DataError(
            f"--out {str(out)!r} has the suffix of a file, and several files go to a folder; name a folder"
        )
    _check_parent(out)


def check_new_file(out: Path, force: bool) -> None:
    """Raise unless `out` can become a file; with `force` a file there is replaced."""
    if out.is_dir():
        raise DataError(f"{str(out)!r} is a folder, and a file is needed; give the name of a file in it")
    if out.exists() and not force:
        raise DataError(f"file {str(out)!r} exists; choose another name, or replace it with --force")
    _check_parent(out)


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Report an error of writing with the name of the place, not with that of a temporary file."""
    try:
        yield
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else str(error)
        raise DataError(
            f"{str(out)!r} cannot be written: {cause}; check its permissions and the space on the disk"
        ) from error


def _refuse_here(out: Path, what: str) -> None:
    # An empty name also means the current folder, which must not be replaced.
    if out == Path():
        raise DataError(f"--out needs a name; give the name of {what}")


def _refuse_inside_model(out: Path) -> None:
    parent = out.absolute().parent
    if parent.is_dir() and is_model(parent):
        raise DataError(
            f"{str(out)!r} is inside the model {str(out.parent)!r}, which would no longer be one; choose "
            "another place"
        )


def _check_parent(out: Path) -> None:
    parent = out.resolve().parent
    if not parent.is_dir():
        raise DataError(
            f"{str(out)!r} cannot be written: {str(out.parent)!r} is not an existing folder; create it first"
        )
    _refuse_inside_model(out)
