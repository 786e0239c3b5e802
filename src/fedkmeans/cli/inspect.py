"""``fedkmeans inspect``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedkmeans.cli import console
from fedkmeans.cli.inputs import Source, as_clients, note_on_headers, notes_on_columns, notes_on_rows, reading
from fedkmeans.cli.text import count, exchanged, why_stopped
from fedkmeans.data import read_clients, read_table
from fedkmeans.data.clients import data_files, unique_names
from fedkmeans.data.columns import Column, missing_mask, numbers, numeric_dtype, type_name
from fedkmeans.data.readers import read_raw
from fedkmeans.errors import DataError, ParameterError, as_typed
from fedkmeans.model import Model, is_model
from fedkmeans.registry import ALGORITHMS

_MOST_NAMES = 20
_MOST_MESSAGES = 10
_MOST_CELLS = 200  # a larger table of centroids is not shown
_MOST_ACROSS = 5  # numbers that fit side by side in 80 columns
_NUMBERS = {"n_missing": "missing", "minimum": "min", "mean": "mean", "maximum": "max"}


def run_inspect(*, path: Path, json: bool, source: dict[str, Any]) -> None:
    """Show a model, or data and whether `fit` can use it."""
    data = Source.of(path, **source)
    if is_model(path) and data != Source((path,)):
        raise ParameterError(f"{str(path)!r} is a model, and the options are for data; leave them out")
    found, show = (_model(path), _show_model) if is_model(path) else (_data(data), _show_data)
    if json:
        console.write_json(found)
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
    algorithm = ALGORITHMS.get(found["algorithm"])
    pooled = algorithm is not None and algorithm.pooled
    n_done = count(result["n_rounds"], "step" if pooled else "round")
    rows = [
        ("algorithm", found["algorithm"]),
        ("made", f"{found['created']} with fedkmeans {found['versions'].get('fedkmeans')}"),
        ("clients", f"{len(data['clients']):,} with {count(data['n_samples'], 'row')}"),
        ("columns", _few(data["feature_names"] or [f"{data['n_features']:,} without names"])),
        ("centroids", f"{result['n_clusters']:,} × {data['n_features']:,}"),
        ("stopped after", f"{n_done}: {why_stopped(result['stop_reason'], pooled)}"),
        ("score per sample", console.number(result["score_per_sample"])),
        ("score per client", f"{console.number(result['score_per_client'])}  (mean of the clients' scores)"),
        ("seed", found["seed"]),
        *([("computed by", result["kernel"])] if result.get("kernel") else []),
        ("parameters", parameters),
    ]
    if known:
        rows.append(("movement", f"{known[0]:.3g} in the first round, {known[-1]:.3g} in the last"))
    sent = exchanged(found["history"])
    if sent:
        n_starts = len(set(found["history"]["restart"]))
        rows.append(("sent in rounds", sent + (f" ({n_starts} starts)" if n_starts > 1 else "")))
    title = f"Model {found['path']!r}" + (" (interrupted)" if result["interrupted"] else "")
    console.show_facts(title, rows)
    if result["n_clusters"] * data["n_features"] > _MOST_CELLS:
        return
    names = data["feature_names"] or [f"x{i}" for i in range(data["n_features"])]
    _show_centroids(names, found["centroids"])


def _show_centroids(names: list[str], centroids: list[list[float]]) -> None:
    """Show one centroid per column, or one per row if there are many."""
    cells = [[console.number(float(value)) for value in centroid] for centroid in centroids]
    if len(names) <= _MOST_ACROSS < len(centroids):
        header = [("centroid", True), *((name, True) for name in names)]
        console.show_grid("Centroids", header, [[str(i), *row] for i, row in enumerate(cells)])
        return
    for start in range(0, len(centroids), _MOST_ACROSS):
        some = range(start, min(start + _MOST_ACROSS, len(centroids)))
        header = [("column", False), *((f"centroid {i}", True) for i in some)]
        rows = [[name, *(cells[i][j] for i in some)] for j, name in enumerate(names)]
        console.show_grid("Centroids", header, rows)


def _few(names: list[str]) -> str:
    shown = ", ".join(repr(name) if "," in name else name for name in names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES:,} more"


# --- data --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnFacts:
    """A column over all files; missing values do not count in minimum, maximum and total."""

    name: str
    type: str
    n_rows: int
    n_missing: int
    minimum: float | None = None
    maximum: float | None = None
    total: float = 0.0

    @property
    def mean(self) -> float | None:
        """Mean of the values that are not missing."""
        known = self.n_rows - self.n_missing
        return None if self.minimum is None or not known else self.total / known

    def with_(self, other: ColumnFacts) -> ColumnFacts:
        """Combine with the same column of another file."""
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
    values = numbers(column)[~absent].astype(np.float64)
    return replace(facts, minimum=float(values.min()), maximum=float(values.max()), total=float(values.sum()))


def _data(source: Source) -> dict[str, Any]:
    files: list[dict[str, Any]] = []
    columns: dict[str, ColumnFacts] = {}
    is_named: dict[Path, bool] = {}
    for file in data_files(source.paths):
        raw = read_raw(file, header=source.header)
        is_named[file] = raw.is_named
        facts = [_column(name, column, raw.n_rows) for name, column in (raw.columns | raw.apart).items()]
        for fact in facts:
            columns[fact.name] = columns[fact.name].with_(fact) if fact.name in columns else fact
        missing = sum(fact.n_missing for fact in facts)
        files.append({"file": file.name, "n_rows": raw.n_rows, "n_columns": len(facts), "n_missing": missing})
    described = [_finite({**asdict(fact), "mean": fact.mean}) for fact in columns.values()]
    note_on_headers(source, is_named)
    path = str(source.paths[0])
    return {"path": path, "files": files, "columns": described, "fit": _what_fit_says(source)}


def _finite(facts: dict[str, Any]) -> dict[str, Any]:
    """Replace infinite values and NaN, which JSON has no number for, by None."""
    return {
        key: None if isinstance(value, float) and not np.isfinite(value) else value
        for key, value in facts.items()
    }


def _what_fit_says(source: Source) -> dict[str, Any]:
    files = data_files(source.paths)
    try:
        tables = read_clients(files, **reading(source, files))
    except DataError as error:
        refusals = _refusals(source, files) or [error]  # each file may be fine, but not together
        return {"works": False, "messages": [as_typed(refusal) for refusal in refusals], "notes": []}
    clients = as_clients(tables)
    n_rows, n_columns = sum(len(client.X) for client in clients), clients[0].X.shape[1]
    message = (
        f"{count(len(clients), 'client')}, {count(n_rows, 'row')}, {count(n_columns, 'column')} to cluster"
    )
    return {
        "works": True,
        "messages": [message],
        "notes": [*notes_on_rows(tables), *notes_on_columns(clients)],
    }


def _refusals(source: Source, files: list[Path]) -> list[DataError]:
    """Return why each file is refused, not only the first."""
    errors = []
    for name, file in zip(unique_names(files), files, strict=True):
        try:
            read_table(file, **reading(source, files), client_name=name)
        except DataError as error:
            errors.append(error)
    return errors


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
    verdict = "fit can use it: " if says["works"] else "fit would refuse it: "
    for message in says["messages"][:_MOST_MESSAGES]:
        console.say(verdict + message)
    more = len(says["messages"]) - _MOST_MESSAGES
    if more > 0:
        console.say(f"… and {count(more, 'more file')}")
    for note in says["notes"]:
        console.note(note)
