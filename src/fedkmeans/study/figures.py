"""Figures of a study: metrics against the number of clients per round, and the score against the rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedkmeans._utils.typing import FloatArray
from fedkmeans.study.plan import AlgorithmPlan, Plan
from fedkmeans.study.plots import INK, PALETTE, new_figure
from fedkmeans.study.results import (
    METRICS,
    Place,
    averages,
    cells_of,
    check_metric,
    choose_clients,
    mean_curves,
    places_of,
    runs_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DEFAULT = ("score", "accuracy", "v_measure")
_LABELS = METRICS | {
    "score": "score:\nmean squared distance",
    "excess": "score above\nthe reference (%)",
    "rounds_to_within": "rounds until\nnear the reference",
}
_BAND: dict[str, Any] = {"alpha": 0.17, "linewidth": 0}
_ACROSS = 3  # panels side by side
_WIDE, _HIGH = 3.1, 2.35  # inches of a panel
_GRID = "#E6E8EC"
# Without black, the colour of pooled runs.
_COLOURS = tuple(colour for colour in PALETTE if colour != "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (6, 1.6, 1.2, 1.6)), (0, (1.2, 1.2)), (0, (9, 2.5)))
_POOLED_DASHES: tuple[Any, ...] = ((0, (2.5, 1.5)), (0, (1, 1)), (0, (7, 2, 1, 2)))


# --- metrics by clients per round --------------------------------------------------------------


def draw(plan: Plan, frame: pd.DataFrame, metrics: Sequence[str] = (), best: float = 0.5) -> Figure:
    """Draw mean and standard deviation of metrics over the best runs, by the number of clients per round.

    Parameters
    ----------
    plan : Plan
    frame : DataFrame
        From `load_results`.
    metrics : sequence of str
        Keys of `METRICS`, one row of panels each. If empty: score, accuracy and v-measure, or only the
        score if no data has labels.
    best : float in (0, 1]
        Share of the runs of each cell that counts, see `averages`.

    Returns
    -------
    matplotlib.figure.Figure
        One column of panels for each distribution. A cell with one run has no band.
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
            here = (points["data"] == place.data.title) & (points["distribution"] == place.distribution.name)
            line = points[here & (points["algorithm"] == algorithm.name)]
            if len(line):
                _draw_line(axes[place, metric], line, looks[algorithm.name], _shift(plan, algorithm, numbers))
    for ax in axes.values():
        _clients_axis(ax, numbers)
    points = pd.concat(shown)
    return _finished(fig, plan, axes.values(), points["algorithm"], _about(points, best))


def _shift(plan: Plan, algorithm: AlgorithmPlan, numbers: Sequence[int]) -> float:
    """Return how far a point is moved aside: with one number of clients, points would hide each other."""
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
    """Return the scale that keeps the closest two numbers further apart, and the limits."""
    if len(numbers) == 1:
        return "linear", numbers[0] - 0.5, numbers[0] + 0.5
    least, most = numbers[0], numbers[-1]
    if _least_gap(np.log(numbers)) > _least_gap(np.array(numbers, float)) + 1e-9:
        room = (most / least) ** 0.05
        return "log", least / room, most * room
    room = 0.05 * (most - least)
    return "linear", least - room, most + room


def _least_gap(places: FloatArray) -> float:
    """Return the least distance between two successive numbers, as a share of the whole width."""
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


def draw_curves(plan: Plan, frame: pd.DataFrame, clients: int | None = None, metric: str = "score") -> Figure:
    """Draw how the algorithms converge: the score against the rounds, on a logarithmic scale.

    Parameters
    ----------
    plan : Plan
    frame : DataFrame
        From `load_results`; the first runs of each cell have a curve.
    clients : int or None
        Clients per round; None for the largest number.
    metric : {"score", "excess"}

    Returns
    -------
    matplotlib.figure.Figure
        One panel for each distribution. Lines and bands are those of `mean_curves` and end with a marker;
        pooled runs are a horizontal line at their mean.
    """
    curves = mean_curves(plan, frame, clients, metric)
    fig, axes = lay_out(places_of(plan), {metric: _LABELS[metric]}, "rounds")
    looks, shown = looks_of(plan), set(curves["algorithm"])
    for place, algorithm in cells_of(plan):
        ax, look = axes[place, metric], looks[algorithm.name]
        if algorithm.is_pooled:
            values = runs_of(frame, place, algorithm)[metric].dropna()
            if len(values):
                ax.axhline(values.mean(), **look.line, zorder=2)
                shown.add(algorithm.name)
            continue
        here = (curves["data"] == place.data.title) & (curves["distribution"] == place.distribution.name)
        _draw_curve(ax, curves[here & (curves["algorithm"] == algorithm.name)], look)
    for ax in axes.values():
        _rounds_axis(ax, int(curves["round"].max()))
        if metric == "excess" and ax.lines:
            _excess_axis(ax)
    note = f"{_about_curves(curves)}; {choose_clients(frame, clients)} clients per round"
    return _finished(fig, plan, axes.values(), shown, note)


def _draw_curve(ax: Axes, curve: pd.DataFrame, look: Look) -> None:
    if not len(curve):
        return
    x, mean, std = (curve[name].to_numpy(float) for name in ("round", "mean", "std"))
    ax.plot(x, mean, **look.line, **look.dots, markevery=[len(x) - 1], zorder=3)
    _draw_spread(ax, x, mean, std, look)


def _rounds_axis(ax: Axes, most: int) -> None:
    """Make the axis logarithmic from round 1 on, with a place for the start, round 0, before it."""
    from matplotlib.ticker import FixedLocator

    ax.set_xscale("symlog", linthresh=1, linscale=0.4)
    tens = [10**power for power in range(len(str(most)))]
    ax.set_xticks([0, *tens], labels=["0", *(f"{ten:,}" for ten in tens)])
    ax.xaxis.set_minor_locator(FixedLocator([digit * ten for ten in tens for digit in range(2, 10)]))
    ax.set_xlim(0, 1.3 * most)


def _excess_axis(ax: Axes) -> None:
    """Make the axis logarithmic above 0.1 % and linear below, so that it has a place for zero."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    low, high = ax.get_ylim()
    ax.set_yscale("symlog", linthresh=0.1, linscale=0.6)
    ax.set_ylim(min(low, -0.05), high)
    ticks = [tick for tick in (-10, -1, -0.1, 0, 0.1, 1, 10, 100, 1000) if low <= tick <= high or tick == 0]
    ax.yaxis.set_ticks(ticks)
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
    ax.axhline(0, color=INK, linewidth=0.9, zorder=1.8)


def _about_curves(curves: pd.DataFrame) -> str:
    runs = _range(curves["runs"])
    if runs == "1":
        return "One run each"
    return f"Mean over {runs} runs, ± one standard deviation, where a run that has stopped keeps its score"


# --- panels, looks of algorithms, legend ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """Colour, line style and marker of an algorithm, each of which identifies it."""

    color: str
    linestyle: Any
    marker: str
    linewidth: float

    @property
    def line(self) -> dict[str, Any]:
        """Style of the line, without the marker."""
        return {"color": self.color, "linestyle": self.linestyle, "linewidth": self.linewidth}

    @property
    def dots(self) -> dict[str, Any]:
        """Style of the marker; a white edge separates markers that overlap."""
        return {"marker": self.marker, "markersize": 5.5, "markeredgecolor": "white", "markeredgewidth": 0.6}


def looks_of(plan: Plan) -> dict[str, Look]:
    """Return the look of each algorithm of the plan; pooled ones are black and have no marker."""
    pooled = [algorithm.name for algorithm in plan.algorithms if algorithm.is_pooled]
    others = [algorithm.name for algorithm in plan.algorithms if not algorithm.is_pooled]
    looks = {
        name: Look(
            _COLOURS[number % len(_COLOURS)],
            _DASHES[number % len(_DASHES)],
            _MARKERS[number % len(_MARKERS)],
            1.8,
        )
        for number, name in enumerate(others)
    }
    for number, name in enumerate(pooled):
        looks[name] = Look(INK, _POOLED_DASHES[number % len(_POOLED_DASHES)], "", 1.3)
    return looks


def lay_out(
    titles: Mapping[str, Sequence[Place]], rows: Mapping[str, str], x_label: str
) -> tuple[Figure, dict[tuple[Place, str], Axes]]:
    """Make a figure with a panel for each place and row.

    Places of one title are side by side, each with its own y axis, as scores on non-IID data may differ
    much from others. Titles that do not fit side by side are below each other, each with all its rows.

    Parameters
    ----------
    titles : mapping of title to places
    rows : mapping of name to text
        Labels of the y axes.
    x_label : str

    Returns
    -------
    fig : matplotlib.figure.Figure
    axes : dict of (place, name of row) to Axes
    """
    lines = _lines([list(group) for group in titles.values()])
    across = max(map(len, lines))
    fig = new_figure((_WIDE * across + 0.7, _HIGH * len(rows) * len(lines) + 1.3))
    grid = fig.subplots(len(rows) * len(lines), across, squeeze=False)
    axes: dict[tuple[Place, str], Axes] = {}
    for i, line in enumerate(lines):
        for j, (row, label) in enumerate(rows.items()):
            for k, place in enumerate(line):
                ax = axes[place, row] = grid[i * len(rows) + j, k]
                starts = k == 0 or line[k - 1].data.title != place.data.title
                _dress(ax, label if starts else None, x_label if j == len(rows) - 1 else None)
                if j == 0:
                    ax.set_title(_panel_title(place, len(titles)), fontsize=10, color=INK)
    for ax in set(grid.flat) - set(axes.values()):
        ax.set_axis_off()
    return fig, axes


def _lines(groups: Sequence[list[Place]]) -> list[list[Place]]:
    """Return the panels of each line of the figure."""
    lines: list[list[Place]] = []
    for group in groups:
        if lines and len(lines[-1]) + len(group) <= _ACROSS:
            lines[-1] += group
        else:
            lines += [group[i : i + _ACROSS] for i in range(0, len(group), _ACROSS)]
    return lines


def _panel_title(place: Place, n_titles: int) -> str:
    return no_formula(place.title if n_titles == 1 else f"{place.data.title}: {place.title}")


def no_formula(text: str) -> str:
    """Escape dollar signs, between which matplotlib would read a formula."""
    return text.replace("$", r"\$")


def _dress(ax: Axes, y_label: str | None, x_label: str | None) -> None:
    ax.grid(color=_GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8.5, labelbottom=x_label is not None)
    ax.set_ylabel(y_label or "", fontsize=9)
    ax.set_xlabel(x_label or "", fontsize=9)


def _finished(fig: Figure, plan: Plan, axes: Iterable[Axes], shown: Iterable[str], note: str) -> Figure:
    """Mark empty panels, and add the title and a legend of the algorithms that are shown, with the note."""
    from matplotlib.lines import Line2D

    for ax in axes:
        if not ax.lines:
            ax.text(0.5, 0.5, "no values", transform=ax.transAxes, ha="center", va="center", color=INK)

    looks, shown = looks_of(plan), set(shown)
    algorithms = [one for one in plan.algorithms if one.name in shown]
    labels = [no_formula(one.title) + (" (pooled)" if one.is_pooled else "") for one in algorithms]
    handles = [Line2D([], [], **looks[one.name].line, **looks[one.name].dots) for one in algorithms]
    legend = fig.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=_columns(labels, fig.get_figwidth()),
        frameon=False,
        fontsize=9,
        title=note,
        title_fontsize=9,
        handlelength=3.2,
    )
    legend.get_title().set_color(INK)
    fig.suptitle(no_formula(plan.title), fontsize=11.5, color=INK)
    return fig


def _columns(labels: Sequence[str], inches: float) -> int:
    """Return the number of columns of a legend about as wide as the figure."""
    across = max(1, int(inches / (0.75 + 0.075 * max(map(len, labels)))))
    return -(-len(labels) // -(-len(labels) // across))
