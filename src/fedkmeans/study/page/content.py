"""What a study's page shows, as plain data: numbers, texts, lists and dicts."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from PIL import Image
from scipy.optimize import linear_sum_assignment

from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.study.figures import Look, looks_of
from fedkmeans.study.plan import AlgorithmPlan, Plan
from fedkmeans.study.plots import INK, MARKERS, PALETTE
from fedkmeans.study.results import METRICS, averages, curve_of, is_better, numbers_of_clients, places_of
from fedkmeans.study.tables import summarize

# Most runs to draw; more make a browser slow.
MOST_RUNS = 10_000
# The same colours, lighter, for a dark page.
_LIGHT = ("#4BA3E3", "#E69F00", "#1FB58A", "#D993BD", "#EE7F45", "#E4E4E4", "#9AD4F5", "#E4E4E4")
_DARK = dict(zip((*PALETTE, INK), _LIGHT, strict=True))
# Plotly's names for matplotlib's markers.
_SYMBOLS = dict(
    zip(MARKERS, ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x"), strict=True)
)
_POINT = ("clients", "runs", "of", "mean", "std")
_TABLE = ("runs", "mean", "best", "std", "paper_mean", "paper_best", "paper_std", "off_by_std", "z")
_SHARES = {"half": 0.5, "all": 1.0}
_DIGITS = 7
# Rows of at least so many numbers are pictures, if the number is a square.
_LEAST_PIXELS = 64
_MOST_COLUMNS = 50
# Few shades make small files.
_SHADES = 64


class Cell(NamedTuple):
    """Runs that differ only in their number and seed; pooled ones have neither a place nor clients."""

    data: int  # positions in the plan and in `places_of`
    place: int | None
    algorithm: int
    clients: int | None  # per round


def page_content(plan: Plan, frame: pd.DataFrame, centroids: Mapping[str, FloatArray]) -> dict[str, Any]:
    """Return all that the page draws; the arguments are those of `write_report`."""
    groups, looks, places = group_runs(plan, frame), looks_of(plan), places_of(plan)
    metrics = [name for name in METRICS if frame[name].notna().any()]
    clients = numbers_of_clients(frame)
    kept = {  # only first runs have centroids
        cell: centroids[key]
        for cell, rows in groups.items()
        for key in frame.loc[rows, "key"]
        if key in centroids
    }
    views = [_view([one for cell, one in kept.items() if cell.data == i]) for i in range(len(plan.data))]
    several = len({data.title for data in plan.data}) > 1
    content = {
        "name": plan.name,
        "metrics": [{"name": name, "title": METRICS[name], "better": is_better(name)} for name in metrics],
        "algorithms": [_algorithm(one, looks[one.name]) for one in plan.algorithms],
        "data": [
            {"name": one.name, "title": one.title, "view": view}
            for one, view in zip(plan.data, views, strict=True)
        ],
        "places": [
            {
                "data": plan.data.index(place.data),
                "title": place.title,
                "label": f"{place.data.title}, {place.title}" if several else place.title,
            }
            for place in places
        ],
        "clients": clients,
        "tables": {
            share: {name: _tables(plan, frame, name, clients or [None], best) for name in metrics}
            for share, best in _SHARES.items()
        },
        "averages": {
            share: {name: _rows(plan, averages(plan, frame, name, best), _POINT) for name in metrics}
            for share, best in _SHARES.items()
        },
        "cells": [cell._asdict() | _summary(frame.loc[rows]) for cell, rows in groups.items()],
        "runs": runs(frame, groups, metrics),
        "curves": curves(frame, groups),
        "centroids": _pictures(groups, kept, views),
    }
    return dict(tidy(content))


def _algorithm(one: AlgorithmPlan, look: Look) -> dict[str, Any]:
    dashes = () if look.linestyle == "-" else look.linestyle[1]
    return {
        "name": one.name,
        "title": one.title,
        "kind": one.algorithm,
        "pooled": one.is_pooled,
        "settings": ", ".join(f"{name} = {value}" for name, value in one.parameters.items()),
        "colour": {"light": look.color, "dark": _DARK.get(look.color, look.color)},
        "symbol": _SYMBOLS.get(look.marker, "star"),
        # In pixels; matplotlib counts in widths of the line.
        "dash": ",".join(f"{1.7 * length:g}px" for length in dashes) or "solid",
    }


def group_runs(plan: Plan, frame: pd.DataFrame) -> dict[Cell, list[int]]:
    """Return the rows of the frame that belong to each cell, in the order of the frame."""
    data, algorithms = [one.name for one in plan.data], [one.name for one in plan.algorithms]
    places = [(place.data.name, place.distribution.name) for place in places_of(plan)]
    groups: dict[Cell, list[int]] = {}
    for row, run in zip(frame.index, frame.to_dict("records"), strict=True):
        n = None if pd.isna(run["clients_per_round"]) else int(run["clients_per_round"])
        place = None if n is None else places.index((run["data"], run["distribution"]))
        cell = Cell(data.index(run["data"]), place, algorithms.index(run["algorithm"]), n)
        groups.setdefault(cell, []).append(row)
    return groups


def _summary(runs: pd.DataFrame) -> dict[str, Any]:
    """Return how the runs of a cell stopped, and how long they took."""
    return {
        "runs": len(runs),
        "stops": runs["stop_reason"].value_counts().to_dict(),
        "rounds": [runs["rounds"].mean(), runs["rounds"].min(), runs["rounds"].max()],
        "seconds": [runs["seconds"].mean(), runs["seconds"].sum()],
    }


def _tables(
    plan: Plan, frame: pd.DataFrame, metric: str, clients: Iterable[int | None], best: float
) -> dict[str, Any]:
    """Return the tables of a metric by clients per round ("none" if all are pooled)."""
    return {
        "none" if n is None else str(n): _rows(plan, summarize(plan, frame, metric, n, best), _TABLE)
        for n in clients
    }


def _rows(plan: Plan, cells: pd.DataFrame, columns: Iterable[str]) -> list[dict[str, Any]]:
    """Return some columns of means, with positions of place and algorithm instead of names."""
    places = [(place.data.title, place.distribution.name) for place in places_of(plan)]
    algorithms = [one.name for one in plan.algorithms]
    return [
        {
            "place": places.index((row["data"], row["distribution"])),
            "algorithm": algorithms.index(row["algorithm"]),
            **{name: row[name] for name in columns},
        }
        for row in cells.rename(columns={"clients_per_round": "clients"}).to_dict("records")
    ]


def runs(frame: pd.DataFrame, groups: Mapping[Cell, list[int]], metrics: Iterable[str]) -> dict[str, Any]:
    """Return the single runs, column by column; of very many, only those with low numbers."""
    number = {row: index for index, rows in enumerate(groups.values()) for row in rows}
    shown = frame.sort_values("run", kind="stable").head(MOST_RUNS).sort_index()
    names = ["run", "seed", *metrics, "rounds", "seconds", "stop_reason"]
    return {
        "of": len(frame),
        "cell": [number[row] for row in shown.index],
        **{name: shown[name].tolist() for name in names},
    }


def curves(frame: pd.DataFrame, groups: Mapping[Cell, list[int]]) -> list[dict[str, Any]]:
    """Return score and movement by round, of the runs that recorded them."""
    found = []
    for index, rows in enumerate(groups.values()):
        for run in frame.loc[rows].to_dict("records"):
            if isinstance(run["curve"], Mapping):
                rounds, scores = curve_of(run)
                moved = [run["movement"].get(f"{number:.0f}") for number in rounds]
                found.append(
                    {"cell": index, "run": run["run"], "round": rounds.astype(int).tolist(),
                     "score": scores.tolist(), "movement": moved}
                )  # fmt: skip
    return found


# --- centroids ---------------------------------------------------------------------------------


def _view(found: list[FloatArray]) -> dict[str, Any]:
    """Return how to show the centroids of a data set, and which values are white and black."""
    if not found:
        return {"kind": "missing"}
    columns = found[0].shape[1]
    paper, ink = ends(found)
    return {"kind": view_of(columns), "columns": columns, "paper": paper, "ink": ink}


def _pictures(
    groups: Iterable[Cell], kept: Mapping[Cell, FloatArray], views: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the centroids of each cell, by its number: a picture, or rows of numbers.

    Centroids of one data set are matched with those of its first cell, so that they can be compared.
    """
    first: dict[int, FloatArray] = {}
    shown: dict[str, Any] = {}
    for number, cell in enumerate(groups):
        view = views[cell.data]
        if cell not in kept or view["kind"] == "none":
            continue
        ordered = matched(kept[cell], first.setdefault(cell.data, kept[cell]))
        is_image = view["kind"] == "images"
        shown[str(number)] = strip(ordered, view["paper"], view["ink"]) if is_image else ordered.tolist()
    return shown


def view_of(n_columns: int) -> str:
    """Return how to show centroids of so many columns: "images", "plane", "table" or "none"."""
    if n_columns >= _LEAST_PIXELS and math.isqrt(n_columns) ** 2 == n_columns:
        return "images"
    if n_columns == 2:
        return "plane"
    return "table" if n_columns <= _MOST_COLUMNS else "none"


def matched(centroids: FloatArray, reference: FloatArray) -> FloatArray:
    """Return the centroids (k, m) in the order of the nearest ones of the reference, one to one.

    If the shapes differ, the order is not changed.
    """
    if centroids.shape != reference.shape:
        return centroids
    a, b = np.nan_to_num(reference.astype(np.float64)), np.nan_to_num(centroids.astype(np.float64))
    distances = (a**2).sum(axis=1)[:, None] - 2 * a @ b.T + (b**2).sum(axis=1)
    order: IntArray = linear_sum_assignment(distances)[1]
    return centroids[order]


def ends(found: Sequence[FloatArray]) -> tuple[float, float]:
    """Return least and largest value of all centroids; first the one nearer to most values, drawn white."""
    values = np.concatenate([centroids.ravel() for centroids in found]).astype(np.float64)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    return (low, high) if np.nanmedian(values) <= (low + high) / 2 else (high, low)


def strip(centroids: FloatArray, paper: float, ink: float) -> str:
    """Return centroids (k, m) as square pictures below each other, as the data URI of a PNG file.

    The value `paper` is drawn white, and `ink` black.
    """
    side = math.isqrt(centroids.shape[1])
    depth = (np.nan_to_num(centroids, nan=paper).astype(np.float64) - paper) / ((ink - paper) or 1.0)
    steps = np.rint((1 - np.clip(depth, 0, 1)) * (_SHADES - 1))
    pixels = np.rint(steps * (255 / (_SHADES - 1))).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels.reshape(-1, side)).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def tidy(value: Any) -> Any:
    """Return the value as JSON can hold it: with few digits, and None for NaN and infinity."""
    if isinstance(value, Mapping):
        return {str(key): tidy(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [tidy(one) for one in value]
    if value is None or isinstance(value, str | bool):
        return value
    if pd.isna(value):
        return None
    if isinstance(value, int | np.integer):
        return int(value)
    number = float(value)
    return float(f"{number:.{_DIGITS}g}") if math.isfinite(number) else None
