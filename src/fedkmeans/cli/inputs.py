"""Reading what a `Source` names, for fitting and for use with a model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedkmeans._utils.checks import check_choice
from fedkmeans._utils.seeding import generator
from fedkmeans._utils.typing import DataArray, FloatArray, IntArray
from fedkmeans.cli import console
from fedkmeans.cli.source import BuiltIn, Source, names
from fedkmeans.data import PARTITIONERS, ClientTable, Dataset, load_dataset, partition, read_clients
from fedkmeans.data.clients import data_files
from fedkmeans.data.readers import TEXT_SUFFIXES, read_raw
from fedkmeans.data.tables import Table
from fedkmeans.data.text import find_layout
from fedkmeans.data.wording import listing
from fedkmeans.errors import ModelError, ParameterError
from fedkmeans.model import Model

# Beyond this ratio of standard deviations the wider column alone decides which centroid is nearest.
_UNEVEN = 100.0
_USUAL_CLIENTS = 10
_MOST_NAMED = 5
_BLOCK_ROWS = 2**16


@dataclass(frozen=True)
class Client:
    """One client's rows `X` (n, m), and their true labels (n,) where there are any."""

    name: str
    X: DataArray
    feature_names: tuple[str, ...] | None
    labels: DataArray | None = None


def read_source(source: Source, fixed_columns: bool = False) -> list[ClientTable]:
    """Read the files, and say so when rows were left out or columns have no names.

    With `fixed_columns` the columns are those of a model: names that are not to be split, and errors
    do not advise to choose others.
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
    """Return the keywords of `read_clients` and `read_table` for what was asked."""
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
    """Say which text files have no header, unless it was said that they have none."""
    found = [path for path, named in is_named.items() if not named and path.suffix.lower() in TEXT_SUFFIXES]
    if not found or source.header is False:
        return
    files = listing([str(path) for path in found], 3)
    if len(found) == 1:
        console.note(f"{files} has no header line; its columns are called x0, x1, …")
    else:
        console.note(f"{files} have no header line; their columns are called x0, x1, …")


def as_clients(tables: Sequence[ClientTable]) -> list[Client]:
    """Keep of each table what a fit needs."""
    return [Client(table.name, table.X, table.feature_names, table.labels) for table in tables]


# --- built-in data -----------------------------------------------------------------------------


def check_way(option: str, how: str, given: Collection[str], more: Collection[str] = ()) -> str:
    """Check the name of a way to deal rows out and that its options are there; return the name."""
    known = how.replace("_", "-")
    check_choice(option, known, {*PARTITIONERS, *more})
    takes = set(PARTITIONERS[known].options) if known in PARTITIONERS else set()
    for name in sorted(takes - set(given)):
        raise ParameterError(f"{option} {known} needs --{name}; see --help")
    for name in sorted(set(given) - takes):
        raise ParameterError(f"{option} {known} takes no --{name}; leave it out")
    return known


def deal_out(built_in: BuiltIn, seed: int) -> list[Client]:
    """Load a built-in data set and deal it out, unless it comes divided into clients already."""
    dataset = load_dataset(built_in.name)
    if dataset.clients is None:
        given = [name for name, _ in built_in.options]
        how = check_way("--distribution", built_in.how or "iid", given)
        n_clients = _USUAL_CLIENTS if built_in.n_clients is None else built_in.n_clients
        rng = generator(seed, "partition")
        numbers = partition(how, dataset.X, dataset.y, n_clients, rng, **dict(built_in.options))
        return split(dataset, numbers, None)
    if built_in.how is not None or built_in.n_clients is not None or built_in.options:
        raise ParameterError(
            f"data set {built_in.name!r} comes divided into clients; leave out --distribution and --n-clients"
        )
    return split(dataset, dataset.clients, dataset.client_names)


def split(dataset: Dataset, numbers: DataArray, client_names: tuple[str, ...] | None) -> list[Client]:
    """Cut a data set into its clients; the rows are sorted once, and the clients are views of them."""
    order = np.argsort(numbers, kind="stable")
    X, y = dataset.X[order], dataset.y[order]
    sizes = np.bincount(numbers)
    stops = np.cumsum(sizes)
    width = len(str(len(sizes) - 1))
    called = client_names or tuple(f"client-{i:0{width}d}" for i in range(len(sizes)))
    return [
        Client(name, X[stop - size : stop], dataset.feature_names, y[stop - size : stop])
        for name, size, stop in zip(called, sizes, stops, strict=True)
    ]


# --- data for a model --------------------------------------------------------------------------


def read_for_model(model: Model, source: Source) -> list[ClientTable]:
    """Read the columns that a model needs, found by name; without names in a file, by position."""
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
    for known in (source.label, source.client_column):
        extra.pop(known or "", None)
    _note_on_unused(list(extra))
    columns = None if unnamed else model.column_names
    return read_source(replace(source, columns=columns), fixed_columns=True)


def _note_on_unused(extra: list[str]) -> None:
    if len(extra) > _MOST_NAMED:
        console.note(f"{len(extra):,} columns that the model does not use are ignored.")
    elif extra:
        console.note(f"columns that the model does not use are ignored: {listing(extra)}.")


def column_names(file: Path, header: bool | None = None) -> tuple[tuple[str, ...], bool]:
    """Return the column names of a file, and whether they are the file's own."""
    if file.is_file() and file.suffix.lower() in TEXT_SUFFIXES:
        layout = find_layout(file, header=header)
        return layout.names, layout.has_header
    raw = read_raw(file, header=header)
    return raw.names, raw.is_named


# --- columns that deserve a word ---------------------------------------------------------------


def notes_on_columns(clients: Sequence[Client]) -> list[str]:
    """Say so when columns are constant, or differ so much in scale that the widest decide alone."""
    called = clients[0].feature_names or tuple(f"x{i}" for i in range(clients[0].X.shape[1]))
    low = np.min([client.X.min(axis=0) for client in clients], axis=0)
    high = np.max([client.X.max(axis=0) for client in clients], axis=0)
    constant = [name for name, is_constant in zip(called, low == high, strict=True) if is_constant]
    notes = []
    if constant:
        what = "column {} is constant and says" if len(constant) == 1 else "columns {} are constant and say"
        notes.append(f"{what.format(listing(constant, _MOST_NAMED))} nothing about clusters.")
    # By value and not by spread, which rounding makes a little larger than 0 for a constant of 0.1.
    scales = _on_scales([client.X for client in clients], called, np.flatnonzero(low != high))
    return notes if scales is None else [*notes, scales]


def _on_scales(shards: Sequence[DataArray], called: Sequence[str], varying: IntArray) -> str | None:
    with np.errstate(over="ignore", invalid="ignore"):  # values too large are refused later, by name
        spread = _standard_deviations(shards)
    varying = varying[np.isfinite(spread[varying]) & (spread[varying] > 0)]
    if len(varying) < 2:
        return None
    low, high = varying[spread[varying].argmin()], varying[spread[varying].argmax()]
    if spread[high] <= _UNEVEN * spread[low]:
        return None
    return (
        f"columns differ much in scale (standard deviation of {called[high]!r} {spread[high]:,.3g}, of "
        f"{called[low]!r} {spread[low]:,.3g}), and k-means follows the wide ones; unless all have the same "
        "unit, bring them to one scale first."
    )


def _standard_deviations(shards: Sequence[DataArray]) -> FloatArray:
    """Pool means and variances by column, block by block, without a copy of all rows; shape (m,)."""
    blocks = [X[start : start + _BLOCK_ROWS] for X in shards for start in range(0, len(X), _BLOCK_ROWS)]
    sizes = np.array([len(block) for block in blocks], dtype=np.float64)[:, None]
    means = np.array([block.mean(axis=0, dtype=np.float64) for block in blocks])
    within = np.array([block.var(axis=0, dtype=np.float64) for block in blocks])
    mean = (sizes * means).sum(axis=0) / sizes.sum()
    pooled: FloatArray = (sizes * (within + (means - mean) ** 2)).sum(axis=0) / sizes.sum()
    return np.sqrt(pooled)
