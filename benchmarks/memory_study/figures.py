"""The two pictures of the study."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from benchmarks.memory_study.cases import OWN
from benchmarks.memory_study.grid import CURVE_RULES, DEFAULT, DISTRIBUTIONS, DWF, RANDOM
from fedkmeans.study.plots import FAINT, INK, PALETTE

TITLES = {"iid": "IID", "half-iid": "half-IID", "non-iid": "non-IID", OWN: ""}
LOOKS = {
    DWF: {"color": PALETTE[4], "linestyle": ":", "marker": "s", "label": "paper DWF"},
    "forgetting 0.98": {
        "color": PALETTE[1],
        "linestyle": "-.",
        "marker": "^",
        "label": "forgetting totals, γ = 0.98, turns",
    },
    RANDOM: {"color": PALETTE[2], "linestyle": "--", "marker": "D", "label": "last word, random clients"},
    DEFAULT: {"color": PALETTE[0], "linestyle": "-", "marker": "o", "label": "last word, turns (default)"},
}
assert set(LOOKS) == set(CURVE_RULES)
# Below a tenth of a percent the axis is linear: zero and what lies below pooled can be shown.
_LINEAR = 0.1
_TICKS = (0, 0.1, 1, 10, 100)
_SHOWN = (20, 50, 100, 500)


def _percent(value: float, _: object = None) -> str:
    return f"{value:g}"


def _percent_axis(ax: Axes, which: str, low: float, high: float) -> None:
    """A scale that is logarithmic above a tenth of a percent and linear below."""
    axis = getattr(ax, f"{which}axis")
    getattr(ax, f"set_{which}scale")("symlog", linthresh=_LINEAR, linscale=0.6)
    getattr(ax, f"set_{which}lim")(low, high)
    axis.set_ticks([tick for tick in (-1, -0.1, *_TICKS) if low <= tick <= high])
    axis.set_major_formatter(FuncFormatter(_percent))
    axis.set_minor_locator(NullLocator())


def draw_curves(curves: pd.DataFrame) -> Figure:
    """Percent above pooled against rounds on MNIST-10k, one panel a distribution.

    Parameters
    ----------
    curves : DataFrame
        Of `tables.curves`.
    """
    fig = Figure(figsize=(11, 4.2), layout="constrained")
    axes = fig.subplots(1, len(DISTRIBUTIONS), sharey=True)
    low = min(-0.2, 1.2 * (curves["mean"] - curves["sd"].fillna(0)).min())
    high = 1.3 * (curves["mean"] + curves["sd"].fillna(0)).max()
    for ax, distribution in zip(axes, DISTRIBUTIONS, strict=True):
        part = curves[curves["distribution"] == distribution]
        for rule, look in LOOKS.items():
            line = part[part["rule"] == rule]
            if not len(line):
                continue
            spread = line["sd"].fillna(0)
            plain = {key: look[key] for key in ("color", "linestyle", "label")}
            ax.fill_between(
                line["round"],
                line["mean"] - spread,
                line["mean"] + spread,
                color=look["color"],
                alpha=0.18,
                lw=0,
            )
            ax.plot(line["round"], line["mean"], lw=2, **plain)
        ax.axhline(0, color=INK, lw=0.9, zorder=2.5)
        ax.set_xscale("log")
        ax.set_xlim(1, 500)
        ax.set_xticks([1, 10, 20, 50, 100, 200, 500], labels=["1", "10", "20", "50", "100", "200", "500"])
        ax.xaxis.set_minor_locator(NullLocator())
        _percent_axis(ax, "y", low, high)
        ax.grid(color=FAINT, lw=0.5)
        ax.set_title(TITLES[distribution])
        ax.set_xlabel("rounds")
    axes[0].set_ylabel("score above pooled k-means (%)")
    handles, labels = max((ax.get_legend_handles_labels() for ax in axes), key=lambda pair: len(pair[1]))
    fig.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    fig.suptitle("MNIST-10k, k = 20, 10 of 100 clients a round; mean over seeds, ± one standard deviation")
    return fig


def draw_budgets(summary: pd.DataFrame) -> Figure:
    """Percent above pooled after 20 to 500 rounds for all data sets, 10 and 5 clients a round.

    Parameters
    ----------
    summary : DataFrame
        Of `tables.summary`.
    """
    shown = summary[summary["n"].isin([5, 10]) & summary["rule"].isin(LOOKS)]
    cells = shown[["data", "distribution"]].drop_duplicates().sort_values(["data", "distribution"])
    names = [_cell_name(data, distribution) for data, distribution in cells.itertuples(index=False)]
    places = {pair: i for i, pair in enumerate(cells.itertuples(index=False, name=None))}
    values = shown[[f"mean_{budget}" for budget in _SHOWN]].to_numpy()
    low, high = min(-0.2, 1.3 * np.nanmin(values)), max(2.0, 1.4 * np.nanmax(values))
    fig = Figure(figsize=(11, 2.2 + 0.52 * len(cells)), layout="constrained")
    axes = np.atleast_2d(fig.subplots(2, len(_SHOWN), sharex=True, sharey=True))
    for row, n in zip(axes, (10, 5), strict=True):
        for ax, budget in zip(row, _SHOWN, strict=True):
            _dots(ax, shown[shown["n"] == n], places, budget)
            _percent_axis(ax, "x", low, high)
            ax.set_title(f"{n} a round, {budget} rounds", fontsize=10)
            ax.set_yticks(range(len(names)), labels=names)
        row[0].set_ylim(len(names) - 0.5, -0.5)
    for ax in axes[-1]:
        ax.set_xlabel("above pooled (%)")
    looks = {
        label: handle
        for ax in axes.flat
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    fig.legend(looks.values(), looks.keys(), loc="outside lower center", ncols=4, frameon=False)
    fig.suptitle("Mean score over seeds, in percent above pooled k-means from the same start")
    return fig


def _cell_name(data: str, distribution: str) -> str:
    return f"{data} {TITLES[distribution]}".strip()


def _dots(ax: Axes, cell: pd.DataFrame, places: dict[tuple[str, str], int], budget: int) -> None:
    ax.grid(axis="x", color=FAINT, lw=0.5)
    for place in places.values():
        ax.axhline(place, color=FAINT, lw=0.5, zorder=0)
    ax.axvline(0, color=INK, lw=0.9, zorder=2.5)
    for rule, look in LOOKS.items():
        part = cell[cell["rule"] == rule]
        if len(part):
            y = [places[pair] for pair in zip(part["data"], part["distribution"], strict=True)]
            ax.scatter(
                part[f"mean_{budget}"], y, s=34, alpha=0.9, zorder=3,
                color=look["color"], marker=look["marker"], label=look["label"],
            )  # fmt: skip
