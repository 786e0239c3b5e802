"""``fedkmeans inspect``."""

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedkmeans.cli import console
from fedkmeans.cli.console import count, exchanged, number, why_stopped
from fedkmeans.cli.files import Source, note_on_headers, notes_on_columns, notes_on_rows, reading
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
    if not is_model(path):
        found, show = _data(data), _show_data
    elif data != Source((path,)):
        raise ParameterError(f"{str(path)!r} is a model, and the options are for data; leave them out")
    else:
        model = Model.load(path)
        found = {"path": str(path), "centroids": model.centroids.tolist(), **model.card}
        show = _show_model
    (console.write_json if json else show)(found)


def _show_model(found: dict[str, Any]) -> None:
    data, result, history = found["data"], found["result"], found["history"]
    known = [value for value in history.get("movement", []) if value is not None]
    algorithm = ALGORITHMS.get(found["algorithm"])
    pooled = algorithm is not None and algorithm.pooled
    n_done = count(result["n_rounds"], "step" if pooled else "round")
    moved = f"{known[0]:.3g} in the first round, {known[-1]:.3g} in the last" if known else ""
    sent, n_starts = exchanged(history), len(set(history.get("restart", [])))
    rows = [
        ("algorithm", found["algorithm"]),
        ("made", f"{found['created']} with fedkmeans {found['versions'].get('fedkmeans')}"),
        ("clients", f"{len(data['clients']):,} with {count(data['n_samples'], 'row')}"),
        ("columns", _few(data["feature_names"] or [f"{data['n_features']:,} without names"])),
        ("centroids", f"{result['n_clusters']:,} × {data['n_features']:,}"),
        ("stopped after", f"{n_done}: {why_stopped(result['stop_reason'], pooled)}"),
        ("score per sample", number(result["score_per_sample"])),
        ("score per client", f"{number(result['score_per_client'])}  (mean of the clients' scores)"),
        ("seed", found["seed"]),
        ("computed by", result.get("kernel") or ""),
        ("parameters", ", ".join(f"{name}={value}" for name, value in found["parameters"].items())),
        ("movement", moved),
        ("sent in rounds", f"{sent} ({n_starts} starts)" if sent and n_starts > 1 else sent),
    ]
    title = f"Model {found['path']!r}" + (" (interrupted)" if result["interrupted"] else "")
    console.show_facts(title, rows)
    if result["n_clusters"] * data["n_features"] <= _MOST_CELLS:
        names = data["feature_names"] or [f"x{i}" for i in range(data["n_features"])]
        _show_centroids(names, found["centroids"])


def _show_centroids(names: list[str], centroids: list[list[float]]) -> None:
    """Show one centroid per column, or one per row if there are many."""
    cells = [[number(float(value)) for value in centroid] for centroid in centroids]
    if len(names) <= _MOST_ACROSS < len(centroids):
        rows = [[str(i), *row] for i, row in enumerate(cells)]
        console.show_grid("Centroids", [], ["centroid", *names], rows)
        return
    for start in range(0, len(centroids), _MOST_ACROSS):
        some = range(start, min(start + _MOST_ACROSS, len(centroids)))
        rows = [[name, *(cells[i][j] for i in some)] for j, name in enumerate(names)]
        console.show_grid("Centroids", ["column"], [f"centroid {i}" for i in some], rows)


def _few(names: list[str]) -> str:
    shown = ", ".join(repr(name) if "," in name else name for name in names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES:,} more"


def _data(source: Source) -> dict[str, Any]:
    files: list[dict[str, Any]] = []
    columns: dict[str, list[_Facts]] = {}
    is_named: dict[Path, bool] = {}
    for file in data_files(source.paths):
        raw = read_raw(file, header=source.header)
        is_named[file] = raw.is_named
        facts = {name: _facts(column, raw.n_rows) for name, column in (raw.columns | raw.apart).items()}
        for name, fact in facts.items():
            columns.setdefault(name, []).append(fact)
        missing = sum(fact[2] for fact in facts.values())
        files.append({"file": file.name, "n_rows": raw.n_rows, "n_columns": len(facts), "n_missing": missing})
    described = [_described(name, facts) for name, facts in columns.items()]
    note_on_headers(source, is_named)
    path = str(source.paths[0])
    return {"path": path, "files": files, "columns": described, "fit": _what_fit_says(source)}


# Of a column in a file: type, rows, missing values, and minimum, maximum and total of the others.
_Facts: TypeAlias = tuple[str, int, int, float, float, float]


def _facts(column: Column, n_rows: int) -> _Facts:
    known = ~missing_mask(column)
    values = np.empty(0)
    if numeric_dtype(column) is not None:
        values = numbers(column)[known].astype(np.float64)
    low, high = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
    return type_name(column), n_rows, int((~known).sum()), low, high, float(values.sum())


def _described(name: str, files: list[_Facts]) -> dict[str, Any]:
    """Describe a column over all files; None for what is not finite, which JSON has no number for."""
    types, n_rows, n_missing, lows, highs, totals = zip(*files, strict=True)
    facts = {
        "name": name,
        "type": ", ".join(dict.fromkeys(types)),
        "n_rows": sum(n_rows),
        "n_missing": sum(n_missing),
        "minimum": min(lows),
        "maximum": max(highs),
        "total": sum(totals),
    }
    has_numbers = min(lows) <= max(highs)
    facts["mean"] = sum(totals) / (sum(n_rows) - sum(n_missing)) if has_numbers else np.nan
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
    n_rows, n_columns = sum(len(table.X) for table in tables), tables[0].X.shape[1]
    message = (
        f"{count(len(tables), 'client')}, {count(n_rows, 'row')}, {count(n_columns, 'column')} to cluster"
    )
    notes = [*notes_on_rows(tables), *notes_on_columns(tables)]
    return {"works": True, "messages": [message], "notes": notes}


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
    rows = [[name, *map(number, numbers)] for name, *numbers in (file.values() for file in found["files"])]
    console.show_grid(f"Data {found['path']!r}", ["file"], ["rows", "columns", "missing values"], rows)
    rows = [[c["name"], c["type"], *(number(c[key]) for key in _NUMBERS)] for c in found["columns"]]
    console.show_grid("Columns", ["column", "type"], list(_NUMBERS.values()), rows)
    says = found["fit"]
    verdict = "fit can use it: " if says["works"] else "fit would refuse it: "
    for message in says["messages"][:_MOST_MESSAGES]:
        console.say(verdict + message)
    more = len(says["messages"]) - _MOST_MESSAGES
    if more > 0:
        console.say(f"… and {count(more, 'more file')}")
    for note in says["notes"]:
        console.note(note)
