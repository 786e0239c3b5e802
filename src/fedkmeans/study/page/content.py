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
from fedkmeans.study.plots import INK, PALETTE
from fedkmeans.study.results import METRICS, Place, averages, cells_of, curve_of, is_better, places_of
from fedkmeans.study.tables import summarize

# Most runs to draw; more make a browser slow.
MOST_RUNS = 10_000
# The same colours, lighter, for a dark page.
_DARK = dict(
    zip(
        (*PALETTE, INK),
        ("#4BA3E3", "#E69F00", "#1FB58A", "#D993BD", "#EE7F45", "#E4E4E4", "#9AD4F5", "#E4E4E4"),
        strict=True,
    )
)
# Plotly's names for matplotlib's markers.
_SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "P": "cross",
    "X": "x",
}
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
    groups, looks = group_runs(plan, frame), looks_of(plan)
    metrics = [name for name in METRICS if frame[name].notna().any()]
    clients = sorted(int(n) for n in frame["clients_per_round"].dropna().unique())
    views = data_views(plan, groups, frame, centroids)
    content = {
        "name": plan.name,
        "metrics": [{"name": name, "title": METRICS[name], "better": is_better(name)} for name in metrics],
        "algorithms": [_algorithm(one, looks[one.name]) for one in plan.algorithms],
        "data": [
            {"name": one.name, "title": one.title, "view": views[number]}
            for number, one in enumerate(plan.data)
        ],
        "places": [_place(plan, place) for place in places(plan)],
        "clients": clients,
        "tables": {
            share: {name: tables(plan, frame, name, clients, best) for name in metrics}
            for share, best in _SHARES.items()
        },
        "averages": {
            share: {name: points(plan, frame, name, best) for name in metrics}
            for share, best in _SHARES.items()
        },
        "cells": [cell._asdict() | summary(frame.loc[rows]) for cell, rows in groups.items()],
        "runs": runs(frame, groups, metrics),
        "curves": curves(frame, groups),
        "centroids": pictures(groups, frame, centroids, views),
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


def places(plan: Plan) -> list[Place]:
    """Return each data set with each distribution, in the order of the tables."""
    return [place for group in places_of(plan).values() for place in group]


def _place(plan: Plan, place: Place) -> dict[str, Any]:
    several = len({data.title for data in plan.data}) > 1
    return {
        "data": plan.data.index(place.data),
        "title": place.title,
        "label": f"{place.data.title}, {place.title}" if several else place.title,
    }


def group_runs(plan: Plan, frame: pd.DataFrame) -> dict[Cell, list[int]]:
    """Return the rows of the frame that belong to each cell, in the order of the frame."""
    data = {one.name: number for number, one in enumerate(plan.data)}
    algorithms = {one.name: number for number, one in enumerate(plan.algorithms)}
    known = {(place.data.name, place.distribution.name): number for number, place in enumerate(places(plan))}
    columns = [frame[name] for name in ("data", "distribution", "algorithm", "clients_per_round")]
    groups: dict[Cell, list[int]] = {}
    for row, name, distribution, algorithm, n in zip(frame.index, *columns, strict=True):
        pooled = pd.isna(n)
        place = None if pooled else known[name, distribution]
        cell = Cell(data[name], place, algorithms[algorithm], None if pooled else int(n))
        groups.setdefault(cell, []).append(row)
    return groups


def summary(runs: pd.DataFrame) -> dict[str, Any]:
    """Return how the runs of a cell stopped, and how long they took."""
    return {
        "runs": len(runs),
        "stops": runs["stop_reason"].value_counts().to_dict(),
        "rounds": [runs["rounds"].mean(), runs["rounds"].min(), runs["rounds"].max()],
        "seconds": [runs["seconds"].mean(), runs["seconds"].sum()],
    }


def points(plan: Plan, frame: pd.DataFrame, metric: str, best: float) -> list[dict[str, Any]]:
    """Return the result of `averages`, with positions of place and algorithm instead of names."""
    known = {(place.data.title, place.distribution.name): number for number, place in enumerate(places(plan))}
    algorithms = [one.name for one in plan.algorithms]
    return [
        {
            "place": known[row["data"], row["distribution"]],
            "algorithm": algorithms.index(row["algorithm"]),
            "clients": row["clients_per_round"],
            **{name: row[name] for name in ("runs", "of", "mean", "std")},
        }
        for row in averages(plan, frame, metric, best).to_dict(orient="records")
    ]


def tables(
    plan: Plan, frame: pd.DataFrame, metric: str, clients: Iterable[int], best: float
) -> dict[str, Any]:
    """Return the rows of the tables of a metric by clients per round ("none" if all are pooled)."""
    return {str(n): _table(plan, frame, metric, n, best) for n in clients} or {
        "none": _table(plan, frame, metric, None, best)
    }


def _table(
    plan: Plan, frame: pd.DataFrame, metric: str, clients: int | None, best: float
) -> list[dict[str, Any]]:
    names = ["runs", "mean", "best", "std", "paper_mean", "paper_best", "paper_std", "off_by_std", "z"]
    numbers = summarize(plan, frame, metric, clients, best)[names].itertuples(index=False)
    all_places = places(plan)
    return [
        {
            "place": all_places.index(place),
            "algorithm": plan.algorithms.index(algorithm),
            **dict(zip(names, row, strict=True)),
        }
        for (place, algorithm), row in zip(cells_of(plan), numbers, strict=True)
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


def data_views(
    plan: Plan,
    groups: Mapping[Cell, list[int]],
    frame: pd.DataFrame,
    centroids: Mapping[str, FloatArray],
) -> list[dict[str, Any]]:
    """Return how to show the centroids of each data set, and which values are white and black."""
    views: list[dict[str, Any]] = []
    for number in range(len(plan.data)):
        found = [one for cell, one in _kept(groups, frame, centroids).items() if cell.data == number]
        if not found:
            views.append({"kind": "missing"})
            continue
        columns = found[0].shape[1]
        paper, ink = ends(found)
        views.append({"kind": view_of(columns), "columns": columns, "paper": paper, "ink": ink})
    return views


def pictures(
    groups: Mapping[Cell, list[int]],
    frame: pd.DataFrame,
    centroids: Mapping[str, FloatArray],
    views: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return the centroids of each cell, by its number: a picture, or rows of numbers.

    Centroids of one data set are matched with those of its first cell, so that they can be compared.
    """
    first: dict[int, FloatArray] = {}
    shown: dict[str, Any] = {}
    numbers = {cell: index for index, cell in enumerate(groups)}
    for cell, found in _kept(groups, frame, centroids).items():
        view = views[cell.data]
        ordered = matched(found, first.setdefault(cell.data, found))
        if view["kind"] == "images":
            shown[str(numbers[cell])] = strip(ordered, view["paper"], view["ink"])
        elif view["kind"] != "none":
            shown[str(numbers[cell])] = ordered.tolist()
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
    if value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, int | np.integer):
        return int(value)
    number = float(value)
    return float(f"{number:.{_DIGITS}g}") if math.isfinite(number) else None
