"""What the figures of a study have in common: panels, looks of algorithms, a legend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedkmeans.study.cells import Place
from fedkmeans.study.plan import Plan
from fedkmeans.study.plots import INK, PALETTE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ACROSS = 3  # panels side by side
_WIDE, _HIGH = 3.1, 2.35  # inches of a panel
_GRID = "#E6E8EC"
# Without black, which is for pooled runs.
_COLOURS = tuple(colour for colour in PALETTE if colour != "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (6, 1.6, 1.2, 1.6)), (0, (1.2, 1.2)), (0, (9, 2.5)))
_POOLED_DASHES: tuple[Any, ...] = ((0, (2.5, 1.5)), (0, (1, 1)), (0, (7, 2, 1, 2)))


@dataclass(frozen=True, slots=True)
class Look:
    """Colour, kind of line and marker of an algorithm: it can be told by any of them."""

    color: str
    linestyle: Any
    marker: str
    linewidth: float

    @property
    def line(self) -> dict[str, Any]:
        """Without the marker."""
        return {"color": self.color, "linestyle": self.linestyle, "linewidth": self.linewidth}

    @property
    def dots(self) -> dict[str, Any]:
        """Of the marker; a white rim keeps those apart that lie upon each other."""
        return {"marker": self.marker, "markersize": 5.5, "markeredgecolor": "white", "markeredgewidth": 0.6}


def looks_of(plan: Plan) -> dict[str, Look]:
    """The look of each algorithm of the plan; those on pooled data are black and have no marker."""
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

    Places of one title stand side by side, each with its own y axis: what is a catastrophe on non-IID data
    would make everything else look alike. Titles that do not fit
    beside each other stand one below the other, each with all its rows.

    Parameters
    ----------
    titles : mapping of title to places
    rows : mapping of name to text
        What the y axes are called.
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
    """Which panels stand side by side."""
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
    """Keep matplotlib from reading what stands between two dollar signs as a formula."""
    return text.replace("$", r"\$")


def _dress(ax: Axes, y_label: str | None, x_label: str | None) -> None:
    ax.grid(color=_GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8.5, labelbottom=x_label is not None)
    ax.set_ylabel(y_label or "", fontsize=9)
    ax.set_xlabel(x_label or "", fontsize=9)


def add_legend(fig: Figure, plan: Plan, shown: Iterable[str], note: str) -> None:
    """Put the algorithms that are shown below the panels, once, and the note above them."""
    from matplotlib.lines import Line2D

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


def _columns(labels: Sequence[str], inches: float) -> int:
    """Columns of a legend that is about as wide as the figure, all about equally full."""
    across = max(1, int(inches / (0.75 + 0.075 * max(map(len, labels)))))
    return -(-len(labels) // -(-len(labels) // across))
