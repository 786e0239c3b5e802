"""``fedkmeans inspect``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from fedkmeans.cli import console
from fedkmeans.cli.inputs import as_clients, note_on_scales
from fedkmeans.data import read_clients
from fedkmeans.data.clients import data_files
from fedkmeans.data.columns import Column, fill, missing_mask, numeric_dtype, type_name
from fedkmeans.data.readers import RawTable, read_raw
from fedkmeans.errors import DataError
from fedkmeans.model import Model, is_model


def run_inspect(path: Path, as_json: bool) -> None:
    """Show a model, or data and what `fit` would say to it."""
    found, show = (_model(path), _show_model) if is_model(path) else (_data(path), _show_data)
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        show(found)


# --- a model -----------------------------------------------------------------------------------


def _model(path: Path) -> dict[str, Any]:
    model = Model.load(path)
    return {"path": str(path), "centroids": model.centroids.tolist(), **model.card}


def _show_model(found: dict[str, Any]) -> None:
    data, result = found["data"], found["result"]
    history = found["history"].get("movement", [])
    known = [value for value in history if value is not None]
    parameters = ", ".join(f"{name}={value}" for name, value in found["parameters"].items())
    rows = [
        ("algorithm", found["algorithm"]),
        ("made", f"{found['created']} with fedkmeans {found['versions'].get('fedkmeans')}"),
        ("clients", f"{len(data['clients'])} with {data['n_samples']:,} rows"),
        ("columns", _few(data["feature_names"] or [f"{data['n_features']} without names"])),
        ("centroids", f"{result['n_clusters']} × {data['n_features']}"),
        ("rounds", f"{result['n_rounds']:,}, stopped by {result['stop_reason']}"),
        ("score per sample", console.number(result["score_per_sample"])),
        ("score per client", console.number(result["score_per_client"])),
        ("seed", found["seed"]),
        ("parameters", parameters),
    ]
    if known:
        rows.append(("movement", f"{known[0]:.3g} in the first round, {known[-1]:.3g} in the last"))
    title = f"Model {found['path']!r}" + (" (interrupted)" if result["interrupted"] else "")
    console.show_facts(title, rows)
    if result["n_clusters"] * data["n_features"] > _MOST_CELLS:
        return
    names = data["feature_names"] or [f"x{i}" for i in range(data["n_features"])]
    header = [("column", False), *((f"centroid {i}", True) for i in range(result["n_clusters"]))]
    table = [
        [name, *(console.number(float(centroid[j])) for centroid in found["centroids"])]
        for j, name in enumerate(names)
    ]
    console.show_grid("Centroids", header, table)


def _few(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


_MOST_NAMES = 20
_MOST_CELLS = 200  # beyond this a table of centroids is no longer read


# --- data --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnFacts:
    """What is known of a column over all files; `total` is the sum of the values that are there."""

    name: str
    type: str
    n_rows: int
    n_missing: int
    minimum: float | None = None
    maximum: float | None = None
    total: float = 0.0

    @property
    def mean(self) -> float | None:
        """Mean of the values that are there."""
        known = self.n_rows - self.n_missing
        return None if self.minimum is None or not known else self.total / known

    def with_(self, other: ColumnFacts) -> ColumnFacts:
        """Add what another file tells of the same column."""
        bounds = [f for f in (self, other) if f.minimum is not None]
        return replace(
            self,
            type=self.type if other.type in self.type.split(", ") else f"{self.type}, {other.type}",
            n_rows=self.n_rows + other.n_rows,
            n_missing=self.n_missing + other.n_missing,
            minimum=min((f.minimum for f in bounds if f.minimum is not None), default=None),
            maximum=max((f.maximum for f in bounds if f.maximum is not None), default=None),
            total=self.total + other.total,
        )


def _column(name: str, column: Column, n_rows: int) -> ColumnFacts:
    absent = missing_mask(column)
    facts = ColumnFacts(name, type_name(column), n_rows, int(absent.sum()))
    if numeric_dtype(column) is None or absent.all():
        return facts
    values = np.empty(int((~absent).sum()))
    fill(values, column, ~absent)
    return replace(facts, minimum=float(values.min()), maximum=float(values.max()), total=float(values.sum()))


def _data(path: Path) -> dict[str, Any]:
    files: list[dict[str, Any]] = []
    columns: dict[str, ColumnFacts] = {}
    for file in data_files([path]):
        raw = read_raw(file)
        facts = [_column(name, column, raw.n_rows) for name, column in _all_columns(raw)]
        for fact in facts:
            columns[fact.name] = columns[fact.name].with_(fact) if fact.name in columns else fact
        missing = sum(fact.n_missing for fact in facts)
        files.append({"file": file.name, "n_rows": raw.n_rows, "n_columns": len(facts), "n_missing": missing})
    described = [_finite({**asdict(fact), "mean": fact.mean}) for fact in columns.values()]
    return {"path": str(path), "files": files, "columns": described, "fit": _what_fit_says(path)}


def _finite(facts: dict[str, Any]) -> dict[str, Any]:
    """Replace what JSON has no number for, by nothing."""
    return {
        key: None if isinstance(value, float) and not np.isfinite(value) else value
        for key, value in facts.items()
    }


def _all_columns(raw: RawTable) -> list[tuple[str, Column]]:
    apart = [("y", raw.labels), ("client", raw.clients)]
    own = list(zip(raw.names, raw.columns, strict=True))
    return own + [(name, column) for name, column in apart if column is not None]


def _what_fit_says(path: Path) -> dict[str, Any]:
    try:
        clients = as_clients(read_clients(data_files([path])))
    except DataError as error:
        return {"works": False, "message": str(error)}
    n_rows = sum(len(client.X) for client in clients)
    message = f"{len(clients)} client(s), {n_rows:,} rows, {clients[0].X.shape[1]} columns to cluster"
    return {"works": True, "message": message, "note": note_on_scales(clients)}


def _show_data(found: dict[str, Any]) -> None:
    header = [("file", False), ("rows", True), ("columns", True), ("missing values", True)]
    rows = [
        [file["file"], *(console.number(file[key]) for key in ("n_rows", "n_columns", "n_missing"))]
        for file in found["files"]
    ]
    console.show_grid(f"Data {found['path']!r}", header, rows)
    header = [("column", False), ("type", False), *((name, True) for name in _NUMBERS.values())]
    rows = [[c["name"], c["type"], *(console.number(c[key]) for key in _NUMBERS)] for c in found["columns"]]
    console.show_grid("Columns", header, rows)
    says = found["fit"]
    console.say(("fit can use it: " if says["works"] else "fit would refuse it: ") + says["message"])
    if says.get("note"):
        console.note(says["note"])


_NUMBERS = {"n_missing": "missing", "minimum": "min", "mean": "mean", "maximum": "max"}
