"""Figures of a study: metrics against the number of clients per round, and how the score falls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedkmeans._utils.typing import FloatArray
from fedkmeans.study.averages import averages, mean_curves
from fedkmeans.study.cells import cells_of, check_metric, choose_clients, places_of, runs_of
from fedkmeans.study.frame import METRICS
from fedkmeans.study.panels import Look, add_legend, lay_out, looks_of, no_formula
from fedkmeans.study.plan import AlgorithmPlan, Plan
from fedkmeans.study.plots import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DEFAULT = ("score", "accuracy", "v_measure")
_LABELS = METRICS | {"score": "score:\nmean squared distance"}
_BAND: dict[str, Any] = {"alpha": 0.17, "linewidth": 0}


# --- metrics by clients per round --------------------------------------------------------------


def draw(plan: Plan, frame: pd.DataFrame, metrics: Sequence[str] = (), best: float = 0.5) -> Figure:
    """Draw metrics against the number of clients per round: mean and standard deviation of the best runs.

    Parameters
    ----------
    plan : Plan
    frame : DataFrame
        Of `fedkmeans.study.frame.results`.
    metrics : sequence of str
        Keys of `METRICS`, a row of panels each. If empty: score, accuracy and v-measure, or the score
        alone where no data has labels.
    best : float in (0, 1]
        Share of the runs of each cell that count, see `averages`.

    Returns
    -------
    matplotlib.figure.Figure
        A column of panels for each distribution; panels of one metric and one data title share their
        y axis. A cell with one run has no band.
    """
    chosen = metrics or [metric for metric in _DEFAULT if frame[metric].notna().any()]
    rows = {metric: _LABELS[check_metric(frame, metric)] for metric in chosen}
    fig, axes = lay_out(places_of(plan), rows, "clients per round")
    numbers = sorted(int(number) for number in frame["clients_per_round"].dropna().unique())
    looks, shown = looks_of(plan), []
    for metric in rows:
        points = averages(plan, frame, metric, best)
        shown.append(points)
        for place, algorithm in cells_of(plan):
            here = (points["data"] == place.data.title) & (points["distribution"] == place.dealt.name)
            line = points[here & (points["algorithm"] == algorithm.name)]
            if len(line):
                _draw_line(axes[place, metric], line, looks[algorithm.name], _shift(plan, algorithm, numbers))
    for ax in axes.values():
        _clients_axis(ax, numbers)
        if not ax.lines:
            ax.text(0.5, 0.5, "no values", transform=ax.transAxes, ha="center", va="center", color=INK)
    points = pd.concat(shown)
    add_legend(fig, plan, points["algorithm"], _about(points, best))
    fig.suptitle(no_formula(plan.title), fontsize=11.5, color=INK)
    return fig


def _shift(plan: Plan, algorithm: AlgorithmPlan, numbers: Sequence[int]) -> float:
    """How far beside its place a point is drawn: where all have one place, they would hide each other."""
    if len(numbers) != 1 or algorithm.is_pooled:
        return 0.0
    names = [one.name for one in plan.algorithms if not one.is_pooled]
    return 0.6 * ((names.index(algorithm.name) + 0.5) / len(names) - 0.5)


def _draw_line(ax: Axes, line: pd.DataFrame, look: Look, shift: float) -> None:
    """Draw an algorithm's points in a panel, or the level of pooled runs."""
    mean, std = line["mean"].to_numpy(float), line["std"].to_numpy(float)
    if line["clients_per_round"].isna().any():
        ax.axhline(mean[0], **look.line, zorder=2)
        if not math.isnan(std[0]):
            ax.axhspan(
                mean[0] - std[0], mean[0] + std[0], color=look.color, zorder=1, **_BAND | {"alpha": 0.1}
            )
        return
    x = line["clients_per_round"].to_numpy(float) + shift
    ax.plot(x, mean, **look.line, **look.dots, zorder=3)
    _draw_spread(ax, x, mean, std, look)


def _draw_spread(ax: Axes, x: FloatArray, mean: FloatArray, std: FloatArray, look: Look) -> None:
    if np.isnan(std).all():
        return
    if len(x) > 1:
        ax.fill_between(x, mean - std, mean + std, color=look.color, zorder=1.5, **_BAND)
    else:  # a band would have no width
        ax.errorbar(x, mean, std, fmt="none", ecolor=look.color, elinewidth=1.3, capsize=3, zorder=2.5)


def _clients_axis(ax: Axes, numbers: Sequence[int]) -> None:
    from matplotlib.ticker import NullLocator

    if not numbers:  # all runs are pooled
        ax.set_xticks([])
        return
    scale, least, most = _clients_scale(numbers)
    ax.set_xscale(scale)
    ax.set_xticks(list(numbers), labels=[f"{number:,}" for number in numbers])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(least, most)


def _clients_scale(numbers: Sequence[int]) -> tuple[str, float, float]:
    """Scale and limits: the scale is the one that keeps the closest of the numbers further apart."""
    if len(numbers) == 1:
        return "linear", numbers[0] - 0.5, numbers[0] + 0.5
    least, most = numbers[0], numbers[-1]
    if _least_gap(np.log(numbers)) > _least_gap(np.array(numbers, float)) + 1e-9:
        room = (most / least) ** 0.05
        return "log", least / room, most * room
    room = 0.05 * (most - least)
    return "linear", least - room, most + room


def _least_gap(places: FloatArray) -> float:
    """Least distance of neighbours, as a share of the whole width."""
    return float(np.diff(places).min() / (places[-1] - places[0]))


def _about(points: pd.DataFrame, best: float) -> str:
    runs, of = (_range(points[name]) for name in ("runs", "of"))
    if of == "1":
        return "One run each"
    what = f"all {of} runs" if best == 1 else f"the {runs} of {of} runs with the lowest score"
    return f"Mean over {what}, ± one standard deviation"


def _range(counts: pd.Series[Any]) -> str:
    return f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"


# --- score by rounds ---------------------------------------------------------------------------


def draw_curves(plan: Plan, frame: pd.DataFrame, clients: int | None = None) -> Figure:
    """Draw the score against the rounds, on a logarithmic scale: how the algorithms converge.

    Parameters
    ----------
    plan : Plan
    frame : DataFrame
        Of `fedkmeans.study.frame.results`; the first runs of each cell have a curve.
    clients : int or None
        Clients per round; None for the largest number that there are runs with.

    Returns
    -------
    matplotlib.figure.Figure
        A panel for each distribution. Lines and bands are those of `mean_curves` and end with a marker;
        pooled runs are a horizontal line at the mean of their scores.
    """
    curves = mean_curves(plan, frame, clients)
    fig, axes = lay_out(places_of(plan), {"score": _LABELS["score"]}, "rounds")
    looks, shown = looks_of(plan), set(curves["algorithm"])
    for place, algorithm in cells_of(plan):
        ax, look = axes[place, "score"], looks[algorithm.name]
        if algorithm.is_pooled:
            scores = runs_of(frame, place, algorithm)["score"]
            if len(scores):
                ax.axhline(scores.mean(), **look.line, zorder=2)
                shown.add(algorithm.name)
            continue
        here = (curves["data"] == place.data.title) & (curves["distribution"] == place.dealt.name)
        _draw_curve(ax, curves[here & (curves["algorithm"] == algorithm.name)], look)
    for ax in axes.values():
        _rounds_axis(ax, int(curves["round"].max()))
    note = f"{_about_curves(curves)}; {choose_clients(frame, clients)} clients per round"
    add_legend(fig, plan, shown, note)
    fig.suptitle(no_formula(plan.title), fontsize=11.5, color=INK)
    return fig


def _draw_curve(ax: Axes, curve: pd.DataFrame, look: Look) -> None:
    if not len(curve):
        return
    x, mean, std = (curve[name].to_numpy(float) for name in ("round", "mean", "std"))
    ax.plot(x, mean, **look.line, **look.dots, markevery=[len(x) - 1], zorder=3)
    _draw_spread(ax, x, mean, std, look)


def _rounds_axis(ax: Axes, most: int) -> None:
    """Logarithmic from the first round on; the start, round 0, has a place before it."""
    from matplotlib.ticker import FixedLocator

    ax.set_xscale("symlog", linthresh=1, linscale=0.4)
    tens = [10**power for power in range(len(str(most)))]
    ax.set_xticks([0, *tens], labels=["0", *(f"{ten:,}" for ten in tens)])
    ax.xaxis.set_minor_locator(FixedLocator([digit * ten for ten in tens for digit in range(2, 10)]))
    ax.set_xlim(0, 1.3 * most)


def _about_curves(curves: pd.DataFrame) -> str:
    runs = _range(curves["runs"])
    if runs == "1":
        return "One run each"
    return f"Mean over {runs} runs, ± one standard deviation, where a run that has stopped keeps its score"
