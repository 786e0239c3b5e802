"""Figures of a study: metrics against the number of clients per round, and the score against the rounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fedkmeans.study import results
from fedkmeans.study.plan import Plan
from fedkmeans.study.plots import GRID, INK, MARKERS, PALETTE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DEFAULT = ("score", "accuracy", "v_measure")
_LABELS = results.METRICS | {
    "score": "score:\nmean squared distance",
    "excess": "score above\nthe reference (%)",
    "rounds_to_within": "rounds until\nnear the reference",
}
_ACROSS = 3  # panels side by side
_WIDE, _HIGH = 3.1, 2.35  # inches of a panel
# Without black, the colour of pooled runs.
_COLOURS = tuple(colour for colour in PALETTE if colour != "#000000")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (6, 1.6, 1.2, 1.6)), (0, (1.2, 1.2)), (0, (9, 2.5)))
_POOLED_DASHES: tuple[Any, ...] = ((0, (2.5, 1.5)), (0, (1, 1)), (0, (7, 2, 1, 2)))


# --- metrics by clients per round --------------------------------------------------------------


def draw(plan: Plan, frame: pd.DataFrame, metrics: Sequence[str] = (), best: float = 0.5) -> Figure:
    """Draw mean and standard deviation of metrics over the best runs, by the number of clients per round.

    There is one column of panels for each distribution. A cell with one run has no band.

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
    """
    chosen = metrics or [metric for metric in _DEFAULT if frame[metric].notna().any()]
    rows = {metric: _LABELS[results.check_metric(frame, metric)] for metric in chosen}
    fig, axes = _lay_out(plan, rows, "clients per round")
    numbers, looks = results.numbers_of_clients(frame), looks_of(plan)
    points = pd.concat([results.averages(plan, frame, metric, best).assign(metric=metric) for metric in rows])
    for key, line in points.groupby([*results.CELL, "metric"], sort=False):
        title, distribution, name, metric = map(str, key)
        ax, look = axes[title, distribution, metric], looks[name]
        if line["clients_per_round"].notna().all():
            _draw_line(ax, look, line["clients_per_round"] + _shift(plan, name, numbers), line)
            continue
        mean, std = line["mean"].iloc[0], line["std"].iloc[0]
        ax.axhline(mean, **look.line, zorder=2)
        if not math.isnan(std):
            ax.axhspan(mean - std, mean + std, color=look.color, alpha=0.1, linewidth=0, zorder=1)
    for ax in axes.values():
        _clients_axis(ax, numbers)
    runs, of = _range(points["runs"]), _range(points["of"])
    what = f"all {of} runs" if best == 1 else f"the {runs} of {of} runs with the lowest score"
    about = "One run each" if of == "1" else f"Mean over {what}, ± one standard deviation"
    return _finished(fig, plan, axes.values(), points["algorithm"], about)


def _range(counts: pd.Series[Any]) -> str:
    return f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"


def _shift(plan: Plan, name: str, numbers: Sequence[int]) -> float:
    """Return how far a point is moved aside: with one number of clients, points would hide each other."""
    names = [one.name for one in plan.algorithms if not one.is_pooled]
    return 0.6 * ((names.index(name) + 0.5) / len(names) - 0.5) if len(numbers) == 1 else 0.0


def _draw_line(ax: Axes, look: Look, at: pd.Series[Any], line: pd.DataFrame, **style: Any) -> None:
    """Draw the means of an algorithm in a panel, and their spread."""
    x, mean, std = (column.to_numpy(float) for column in (at, line["mean"], line["std"]))
    ax.plot(x, mean, **look.line, **look.dots, **style, zorder=3)
    if np.isnan(std).all():
        return
    if len(x) > 1:
        ax.fill_between(x, mean - std, mean + std, color=look.color, alpha=0.17, linewidth=0, zorder=1.5)
    else:  # a band would have no width
        ax.errorbar(x, mean, std, fmt="none", ecolor=look.color, elinewidth=1.3, capsize=3, zorder=2.5)


def _clients_axis(ax: Axes, numbers: Sequence[int]) -> None:
    """Give the axis the scale that keeps the closest two numbers further apart."""
    from matplotlib.ticker import NullLocator

    if not numbers:  # all runs are pooled
        ax.set_xticks([])
        return
    least, most = numbers[0], numbers[-1]
    room = 0.05 * (most - least) or 0.5
    limits = least - room, most + room
    if len(numbers) > 1 and _least_gap(np.log(numbers)) > _least_gap(numbers) + 1e-9:
        ax.set_xscale("log")
        factor = (most / least) ** 0.05
        limits = least / factor, most * factor
    ax.set_xticks(list(numbers), labels=[f"{number:,}" for number in numbers])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(*limits)


def _least_gap(places: Any) -> float:
    """Return the least distance between two successive numbers, as a share of the whole width."""
    return float(np.diff(places).min() / np.ptp(places))


# --- score by rounds ---------------------------------------------------------------------------


def draw_curves(plan: Plan, frame: pd.DataFrame, clients: int | None = None, metric: str = "score") -> Figure:
    """Draw how the algorithms converge: the score against the rounds, on a logarithmic scale.

    There is one panel for each distribution. Lines and bands are those of `mean_curves`, which explains the
    parameters, and end with a marker; pooled runs are a horizontal line at their mean.
    """
    curves = results.mean_curves(plan, frame, clients, metric)
    fig, axes = _lay_out(plan, {metric: _LABELS[metric]}, "rounds")
    looks, shown = looks_of(plan), set(curves["algorithm"])
    for key, curve in curves.groupby(results.CELL, sort=False):
        title, distribution, name = map(str, key)
        ax = axes[title, distribution, metric]
        _draw_line(ax, looks[name], curve["round"], curve, markevery=[len(curve) - 1])
    pooled = frame[frame["clients_per_round"].isna()]
    for level in results.averages(plan, pooled, metric, 1).to_dict("records"):
        ax, look = axes[level["data"], level["distribution"], metric], looks[level["algorithm"]]
        ax.axhline(level["mean"], **look.line, zorder=2)
        shown.add(level["algorithm"])
    for ax in axes.values():
        _rounds_axis(ax, int(curves["round"].max()))
        if metric == "excess" and ax.lines:
            _excess_axis(ax)
    runs = _range(curves["runs"])
    about = f"Mean over {runs} runs, ± one standard deviation, where a run that has stopped keeps its score"
    asked = f"{results.choose_clients(frame, clients)} clients per round"
    note = f"{'One run each' if runs == '1' else about}; {asked}"
    return _finished(fig, plan, axes.values(), shown, note)


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


# --- panels, looks of algorithms, legend ---------------------------------------------------------


class Look(NamedTuple):
    """Colour, line style and marker of an algorithm; a pooled one has no marker."""

    color: str
    linestyle: Any
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """Style of the line, without the marker."""
        width = 1.8 if self.marker else 1.3
        return {"color": self.color, "linestyle": self.linestyle, "linewidth": width}

    @property
    def dots(self) -> dict[str, Any]:
        """Style of the marker; a white edge separates markers that overlap."""
        return {"marker": self.marker, "markersize": 5.5, "markeredgecolor": "white", "markeredgewidth": 0.6}


def looks_of(plan: Plan) -> dict[str, Look]:
    """Return the look of each algorithm of the plan."""
    colours, dashes, markers = map(itertools.cycle, (_COLOURS, _DASHES, MARKERS))
    pooled_dashes = itertools.cycle(_POOLED_DASHES)
    return {
        one.name: Look(INK, next(pooled_dashes), "")
        if one.is_pooled
        else Look(next(colours), next(dashes), next(markers))
        for one in plan.algorithms
    }


def _lay_out(
    plan: Plan, rows: Mapping[str, str], x_label: str
) -> tuple[Figure, dict[tuple[str, str, str], Axes]]:
    """Make a figure with a panel for each place and row; return it and them by data title and so on.

    Places of one title are side by side, each with its own y axis, as scores on non-IID data may differ
    much from others. Titles that do not fit side by side are below each other, each with all its rows.
    The rows are the names of metrics with the labels of their y axes.
    """
    lines = _lines(results.places_of(plan))
    several = len({data.title for data in plan.data}) > 1
    across = max(map(len, lines))
    fig = new_figure((_WIDE * across + 0.7, _HIGH * len(rows) * len(lines) + 1.3))
    grid = fig.subplots(len(rows) * len(lines), across, squeeze=False)
    axes: dict[tuple[str, str, str], Axes] = {}
    for (i, line), (j, row) in itertools.product(enumerate(lines), enumerate(rows)):
        for k, place in enumerate(line):
            ax = grid[i * len(rows) + j, k]
            axes[place.data.title, place.distribution.name, row] = ax
            starts, ends = k == 0 or line[k - 1].data.title != place.data.title, j == len(rows) - 1
            ax.grid(color=GRID, linewidth=0.8)
            ax.set_axisbelow(True)
            ax.spines[["top", "right"]].set_visible(False)
            ax.tick_params(labelsize=8.5, labelbottom=ends)
            ax.set_ylabel(rows[row] if starts else "", fontsize=9)
            ax.set_xlabel(x_label if ends else "", fontsize=9)
            if j == 0:
                title = f"{place.data.title}: {place.title}" if several else place.title
                ax.set_title(_no_formula(title), fontsize=10, color=INK)
    for ax in set(grid.flat) - set(axes.values()):
        ax.set_axis_off()
    return fig, axes


def _lines(places: Iterable[results.Place]) -> list[list[results.Place]]:
    """Return the panels of each line of the figure."""
    lines: list[list[results.Place]] = []
    for _, found in itertools.groupby(places, key=lambda place: place.data.title):
        group = list(found)
        if lines and len(lines[-1]) + len(group) <= _ACROSS:
            lines[-1] += group
        else:
            lines += [group[i : i + _ACROSS] for i in range(0, len(group), _ACROSS)]
    return lines


def _no_formula(text: str) -> str:
    """Escape dollar signs, between which matplotlib would read a formula."""
    return text.replace("$", r"\$")


def _finished(fig: Figure, plan: Plan, axes: Iterable[Axes], shown: Iterable[str], note: str) -> Figure:
    """Mark empty panels, and add the title and a legend of the algorithms that are shown, with the note."""
    from matplotlib.lines import Line2D

    for ax in axes:
        if not ax.lines:
            ax.text(0.5, 0.5, "no values", transform=ax.transAxes, ha="center", va="center", color=INK)

    looks, shown = looks_of(plan), set(shown)
    algorithms = [one for one in plan.algorithms if one.name in shown]
    labels = [_no_formula(one.title) + (" (pooled)" if one.is_pooled else "") for one in algorithms]
    handles = [Line2D([], [], **looks[one.name].line, **looks[one.name].dots) for one in algorithms]
    # As many columns as fit below the figure, or fewer if the last line would be short.
    across = max(1, int(fig.get_figwidth() / (0.75 + 0.075 * max(map(len, labels)))))
    look: dict[str, Any] = {"frameon": False, "fontsize": 9, "title_fontsize": 9, "handlelength": 3.2}
    n_columns = math.ceil(len(labels) / math.ceil(len(labels) / across))
    legend = fig.legend(handles, labels, loc="outside lower center", ncols=n_columns, title=note, **look)
    legend.get_title().set_color(INK)
    fig.suptitle(_no_formula(plan.title), fontsize=11.5, color=INK)
    return fig
