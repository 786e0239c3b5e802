"""What a study's page shows, as plain data: numbers, texts, lists and dicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedkmeans._utils.typing import FloatArray
from fedkmeans.study.figures import Look, looks_of
from fedkmeans.study.page.pictures import ends, matched, strip, view_of
from fedkmeans.study.plan import AlgorithmPlan, Plan
from fedkmeans.study.plots import INK, MARKERS, PALETTE
from fedkmeans.study.results import METRICS, averages, curve_of, is_better, places_of
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


class Cell(NamedTuple):
    """Runs that differ only in their number and seed.

    Attributes
    ----------
    data, algorithm : int
        Positions in the plan.
    place : int or None
        Position in `places`; None for pooled data.
    clients : int or None
        Clients per round; None for pooled data.
    """

    data: int
    place: int | None
    algorithm: int
    clients: int | None


def page_content(plan: Plan, frame: pd.DataFrame, centroids: Mapping[str, FloatArray]) -> dict[str, Any]:
    """Return all that the page draws.

    Parameters
    ----------
    plan : Plan
    frame : DataFrame
        From `load_results`.
    centroids : mapping of key to ndarray of shape (k, m)
        Of the first runs.
    """
    groups, looks, places = group_runs(plan, frame), looks_of(plan), places_of(plan)
    metrics = [name for name in METRICS if frame[name].notna().any()]
    clients = sorted(int(n) for n in frame["clients_per_round"].dropna().unique())
    kept = _kept(groups, frame, centroids)
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
            share: {name: _tables(plan, frame, name, clients, best) for name in metrics}
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
    tidied: dict[str, Any] = tidy(content)
    return tidied


def _algorithm(one: AlgorithmPlan, look: Look) -> dict[str, Any]:
    settings = ", ".join(f"{name} = {value}" for name, value in one.parameters.items())
    dashes = () if look.linestyle == "-" else look.linestyle[1]
    return {
        "name": one.name,
        "title": one.title,
        "kind": one.algorithm,
        "pooled": one.is_pooled,
        "settings": settings,
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
    for run in frame.itertuples():
        n = None if pd.isna(run.clients_per_round) else int(run.clients_per_round)
        place = None if n is None else places.index((run.data, run.distribution))
        cell = Cell(data.index(run.data), place, algorithms.index(run.algorithm), n)
        groups.setdefault(cell, []).append(run.Index)
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
    plan: Plan, frame: pd.DataFrame, metric: str, clients: Iterable[int], best: float
) -> dict[str, Any]:
    """Return the tables of a metric by clients per round ("none" if all are pooled)."""
    return {
        "none" if n is None else str(n): _rows(plan, summarize(plan, frame, metric, n, best), _TABLE)
        for n in clients or [None]
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
    return [
        {"cell": index} | _curve(run)
        for index, rows in enumerate(groups.values())
        for run in frame.loc[rows].to_dict(orient="records")
        if isinstance(run["curve"], Mapping)
    ]


def _curve(run: Mapping[Any, Any]) -> dict[str, Any]:
    rounds, scores = curve_of(run)
    moved = {int(r): value for r, value in run["movement"].items()}
    return {
        "run": run["run"],
        "round": [int(r) for r in rounds],
        "score": scores.tolist(),
        "movement": [moved.get(int(r)) for r in rounds],
    }


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


def _kept(
    groups: Mapping[Cell, list[int]], frame: pd.DataFrame, centroids: Mapping[str, FloatArray]
) -> dict[Cell, FloatArray]:
    kept = {}
    for cell, rows in groups.items():
        keys = [key for key in frame.loc[rows, "key"] if key in centroids]
        if keys:
            kept[cell] = centroids[keys[0]]
    return kept


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
