"""What the figures of a study show, in numbers: means over runs, by clients per round and by rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedkmeans._utils.typing import FloatArray
from fedkmeans.errors import StudyError
from fedkmeans.study.cells import best_runs, cells_of, check_best, check_metric, choose_clients, runs_of
from fedkmeans.study.plan import Plan


def averages(plan: Plan, frame: pd.DataFrame, metric: str = "score", best: float = 0.5) -> pd.DataFrame:
    """Mean and standard deviation of a metric over the best runs, for all numbers of clients per round.

    Parameters
    ----------
    plan : Plan
    frame : DataFrame
        Of `fedkmeans.study.frame.results`.
    metric : str
        A key of `METRICS`.
    best : float in (0, 1]
        Of n runs, the ⌈best n⌉ with the lowest score count, whatever the metric; 1 is all.

    Returns
    -------
    DataFrame of shape (n_points, 8)
        ``data`` (the title), ``distribution``, ``algorithm``, ``clients_per_round`` (missing for pooled
        runs, which stand in every distribution), ``runs`` that count and ``of`` how many, ``mean``,
        ``std`` (of a sample; NaN for one run). Cells without a run that has the metric are left out.
    """
    check_metric(frame, metric)
    check_best(best)
    points = []
    for place, algorithm in cells_of(plan):
        runs = runs_of(frame, place, algorithm).dropna(subset=[metric])
        for number, group in runs.groupby("clients_per_round", dropna=False):
            values = best_runs(group, best)[metric]
            points.append(
                (place.data.title, place.dealt.name, algorithm.name, number, len(values), len(group),
                 values.mean(), values.std(ddof=1))
            )  # fmt: skip
    names = ["data", "distribution", "algorithm", "clients_per_round", "runs", "of", "mean", "std"]
    return pd.DataFrame(points, columns=names).astype({"clients_per_round": "Int64"})


def mean_curves(plan: Plan, frame: pd.DataFrame, clients: int | None = None) -> pd.DataFrame:
    """Mean and standard deviation of the score after some rounds.

    A run's score between two rounds at which it was looked at lies on the straight line between them;
    after its last round it stays, so that the mean is over the same runs everywhere.

    Parameters
    ----------
    plan : Plan
    frame : DataFrame
        Of `fedkmeans.study.frame.results`.
    clients : int or None
        Clients per round; None for the largest number that there are runs with.

    Returns
    -------
    DataFrame of shape (n_points, 7)
        ``data`` (the title), ``distribution``, ``algorithm``, ``round`` (0 is the start), ``runs``,
        ``mean``, ``std`` (of a sample; NaN for one run).

    Raises
    ------
    StudyError
        If no run with so many clients per round has a curve.
    """
    clients = choose_clients(frame, clients)
    parts = []
    for place, algorithm in cells_of(plan):
        runs = runs_of(frame, place, algorithm)
        runs = runs[runs["clients_per_round"] == clients]
        curves = [_curve(run) for run in runs.to_dict("records") if isinstance(run["curve"], Mapping)]
        if curves:
            cell = {"data": place.data.title, "distribution": place.dealt.name, "algorithm": algorithm.name}
            parts.append(_mean_curve(curves).assign(**cell))
    if not parts:
        raise StudyError("no run has a curve to draw; the first runs of algorithms that take rounds do")
    names = ["data", "distribution", "algorithm", "round", "runs", "mean", "std"]
    return pd.concat(parts, ignore_index=True)[names]


def _curve(run: Mapping[Any, Any]) -> tuple[FloatArray, FloatArray]:
    """Rounds, ascending, and the scores after them; the last round is among them, looked at or not."""
    # One shot has no centroids to start from: its round 0 is its result.
    looked_at = {} if run["stop_reason"] == "one shot" else run["curve"]
    points = {int(number): float(score) for number, score in looked_at.items()}
    points[int(run["rounds"])] = float(run["score"])
    rounds = sorted(points)
    return np.array(rounds, float), np.array([points[number] for number in rounds])


def _mean_curve(curves: Sequence[tuple[FloatArray, FloatArray]]) -> pd.DataFrame:
    rounds = np.unique(np.concatenate([rounds for rounds, _ in curves]))
    scores = pd.DataFrame([np.interp(rounds, *curve) for curve in curves])
    mean, std = scores.mean(), scores.std(ddof=1)
    return pd.DataFrame({"round": rounds.astype(int), "runs": len(curves), "mean": mean, "std": std})
