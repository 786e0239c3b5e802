"""Reading what a `Source` names, for fitting and for use with a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedkmeans.cli import console
from fedkmeans.cli.source import BuiltIn, Source
from fedkmeans.data import ClientTable, Dataset, load_dataset, partition, read_clients
from fedkmeans.data.clients import data_files
from fedkmeans.data.messages import listing
from fedkmeans.data.readers import TEXT_SUFFIXES, read_raw
from fedkmeans.data.text import find_layout
from fedkmeans.errors import ModelError, ParameterError
from fedkmeans.model import Model
from fedkmeans.seeding import generator
from fedkmeans.typing import DataArray, FloatArray

# Beyond this ratio of standard deviations the wider column alone decides which centroid is nearest.
_UNEVEN = 100.0
_USUAL_CLIENTS = 10
_BLOCK_ROWS = 2**16


@dataclass(frozen=True)
class Client:
    """One client's rows `X` (n, m), and their true labels (n,) where there are any."""

    name: str
    X: DataArray
    feature_names: tuple[str, ...] | None
    labels: DataArray | None = None


def read_source(source: Source) -> list[ClientTable]:
    """Read the files, and say so when rows were left out."""
    tables = read_clients(data_files(source.paths), **_reading(source))
    n_dropped = sum(table.n_dropped for table in tables)
    if n_dropped:
        n_rows = n_dropped + sum(len(table.X) for table in tables)
        console.note(f"{n_dropped:,} of {n_rows:,} rows have a missing value and are left out.")
    return tables


def _reading(source: Source) -> dict[str, Any]:
    return {
        "columns": source.columns,
        "drop": source.drop,
        "label": source.label,
        "client": source.client_column,
        "missing": source.missing.replace("-", "_"),
    }


def as_clients(tables: Sequence[ClientTable]) -> list[Client]:
    """Keep of each table what a fit needs."""
    return [Client(table.name, table.X, table.feature_names, table.labels) for table in tables]


# --- built-in data -----------------------------------------------------------------------------


def deal_out(built_in: BuiltIn, seed: int) -> list[Client]:
    """Load a built-in data set and deal it out, unless it comes divided into clients already."""
    dataset = load_dataset(built_in.name)
    if dataset.clients is None:
        how = "iid" if built_in.how is None else built_in.how
        n_clients = _USUAL_CLIENTS if built_in.n_clients is None else built_in.n_clients
        rng = generator(seed, "partition")
        numbers = partition(how, dataset.X, dataset.y, n_clients, rng, **dict(built_in.options))
        return split(dataset, numbers, None)
    if built_in.how is not None or built_in.n_clients is not None or built_in.options:
        raise ParameterError(
            f"data set {built_in.name!r} comes divided into clients; leave out --distribution and --n-clients"
        )
    return split(dataset, dataset.clients, dataset.client_names)


def split(dataset: Dataset, numbers: DataArray, names: tuple[str, ...] | None) -> list[Client]:
    """Cut a data set into its clients; the rows are sorted once, and the clients are views of them."""
    order = np.argsort(numbers, kind="stable")
    X, y = dataset.X[order], dataset.y[order]
    sizes = np.bincount(numbers)
    stops = np.cumsum(sizes)
    width = len(str(len(sizes) - 1))
    called = names or tuple(f"client-{i:0{width}d}" for i in range(len(sizes)))
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
        names, is_named = column_names(file)
        if not is_named and len(names) == model.centroids.shape[1]:
            unnamed.append(file)
            continue
        extra.update(dict.fromkeys(model.check_columns(names, who=f"File {str(file)!r}")))
    if unnamed and len(unnamed) < len(files):
        raise ModelError(
            f"File {str(unnamed[0])!r} has no column names and others have; give all of them a header."
        )
    for known in (source.label, source.client_column):
        extra.pop(known or "", None)
    if extra:
        console.note(f"columns that the model does not use are ignored: {listing(extra)}.")
    columns = None if unnamed else model.column_names
    return read_source(
        Source(source.paths, source.label, source.client_column, columns, missing=source.missing)
    )


def column_names(file: Path) -> tuple[tuple[str, ...], bool]:
    """Return the column names of a file, and whether they are the file's own."""
    if file.is_file() and file.suffix.lower() in TEXT_SUFFIXES:
        layout = find_layout(file)
        return layout.names, layout.has_header
    raw = read_raw(file)
    return raw.names, raw.is_named


# --- scales ------------------------------------------------------------------------------------


def note_on_scales(clients: Sequence[Client]) -> str | None:
    """Say so when columns differ so much in scale that the widest decide alone."""
    spread = _standard_deviations([client.X for client in clients])
    varying = np.flatnonzero(spread > 0)
    if len(varying) < 2:
        return None
    low, high = varying[spread[varying].argmin()], varying[spread[varying].argmax()]
    if spread[high] <= _UNEVEN * spread[low]:
        return None
    names = clients[0].feature_names or tuple(f"x{i}" for i in range(len(spread)))
    return (
        f"columns differ much in scale (standard deviation of {names[high]!r} {spread[high]:.3g}, of "
        f"{names[low]!r} {spread[low]:.3g}), and k-means follows the wide ones; unless all have the same "
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
