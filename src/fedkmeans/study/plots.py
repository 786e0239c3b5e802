"""Pictures of data in the plane, of clients and of runs; each function returns a matplotlib figure.

Nothing here uses pyplot, its global state or a display.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkmeans._utils.atomic_io import atomic_path
from fedkmeans._utils.cache_folder import prepare_matplotlib
from fedkmeans._utils.typing import DataArray, FloatArray, IntArray
from fedkmeans.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of Okabe and Ito, which people with colour vision deficiencies can distinguish. Without the yellow,
# which is too faint on white.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#000000", "#56B4E9")
FAINT = "#C9CED6"
_TINTS = ("#BFD9EA", "#F6DFAE", "#B9E0D3", "#EFD5E2", "#D3D6DB")
INK = "#222222"
GRID = "#E6E8EC"
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINES = ("-", "--", "-.", ":")
_CROSS: dict[str, Any] = {"s": 70, "marker": "x", "c": INK, "linewidths": 1.6, "zorder": 6}
_EDGE: dict[str, Any] = {"edgecolors": INK, "linewidths": 0.9}
_PANEL = 4.2  # inches


def save_figure(fig: Figure, path: str | os.PathLike[str], *, dpi: int = 150) -> Path:
    """Write a figure in one step, in the format that the suffix of `path` names.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
    path : str or path-like
        For instance ``paths.png`` or ``paths.svg``; PNG without a suffix.
    dpi : int, default=150
        Dots per inch, for raster formats.
    """
    path = Path(path)
    kind = path.suffix.lstrip(".").lower() or "png"
    if kind not in fig.canvas.get_supported_filetypes():
        raise DataError(
            f"cannot draw a {path.suffix!r} file: {str(path)!r}; end the name in .png, .svg or .pdf"
        )
    with atomic_path(path) as temporary:
        fig.savefig(temporary, format=kind, dpi=dpi, bbox_inches="tight", pad_inches=0.1)
    return path


def plot_data(
    X: DataArray, labels: IntArray, *, names: Mapping[Any, str] | None = None, title: str = "Data"
) -> Figure:
    """Draw the rows, coloured by label.

    Parameters
    ----------
    X : ndarray of shape (n, 2)
    labels : ndarray of shape (n,)
        True classes, or clusters.
    names : mapping of label to text, optional
        For the legend; a label without a name is called ``label 3``.
    title : str
    """
    fig, (ax,) = panels(X, [title])
    labels = np.asarray(labels)
    for number, label in enumerate(np.unique(labels)):
        rows = X[labels == label]
        # Larger points for small groups, such as outliers.
        size = 14 if len(rows) < 0.05 * len(X) else 5
        text = (names or {}).get(label, f"label {label}")
        dots(ax, rows, s=size, label=f"{text} ({len(rows):,} rows)", **_style(number))
    legend(fig, ax, n_columns=2)
    return fig


def plot_clients(X: DataArray, clients: Mapping[str, IntArray], *, n_shown: int = 5) -> Figure:
    """Draw how rows are distributed among clients, one panel for each distribution.

    A few clients are coloured and the others are faint, as a hundred colours cannot be distinguished.

    Parameters
    ----------
    X : ndarray of shape (n, 2)
    clients : mapping of title to ndarray of shape (n,)
        For each panel, the client of each row.
    n_shown : int, default=5
        Number of clients to colour.
    """
    fig, axes = panels(X, list(clients))
    for ax, owners in zip(axes, clients.values(), strict=True):
        owners = np.asarray(owners)
        ids = np.unique(owners)
        dots(ax, X, s=3, c=FAINT, linewidths=0, label=f"all {len(ids)} clients")
        # Spread evenly over the numbers, as partitioners may order clients.
        chosen = ids[np.unique(np.linspace(0, len(ids) - 1, n_shown).round().astype(int))]
        for number, client in enumerate(chosen):
            dots(ax, X[owners == client], s=11, label=f"client {client}", **_style(number))
    legend(fig, axes[0], n_columns=n_shown + 1)
    fig.suptitle("The same rows, distributed in different ways", fontsize=12, color=INK)
    return fig


def plot_paths(
    X: DataArray,
    paths: Mapping[str, FloatArray],
    *,
    clients: IntArray | None = None,
    reference: FloatArray | None = None,
) -> Figure:
    """Draw the path of the centroids over a faint picture of the rows.

    Parameters
    ----------
    X : ndarray of shape (n, 2)
    paths : mapping of title to ndarray of shape (rounds + 1, k, 2)
        For each panel, the centroids before the first round and after each.
    clients : ndarray of shape (n,), optional
        Numbers of the rows' clients; the rows of a client share a tint.
    reference : ndarray of shape (k, 2), optional
        Centroids of k-means on the pooled data, drawn as crosses in every panel.
    """
    fig, axes = panels(X, list(paths))
    tints = [FAINT] * len(X) if clients is None else [_TINTS[client % len(_TINTS)] for client in clients]
    for ax, path in zip(axes, paths.values(), strict=True):
        dots(ax, X, s=4, c=tints, linewidths=0)
        colours = [PALETTE[number % len(PALETTE)] for number in range(path.shape[1])]
        for colour, line in zip(colours, path.transpose(1, 0, 2), strict=True):
            ax.plot(line[:, 0], line[:, 1], color=colour, linewidth=2.2, zorder=3, solid_capstyle="round")
        dots(ax, path[0], s=38, c="white", zorder=4, label="start", **_EDGE)
        dots(ax, path[-1], s=80, c=colours, zorder=5, label="end", **_EDGE)
        if reference is not None:
            dots(ax, reference, label="k-means on the pooled data", **_CROSS)
    legend(fig, axes[0])
    return fig


def plot_movement(histories: Mapping[str, Mapping[str, FloatArray]], *, tol: float | None = None) -> Figure:
    """Draw how far the centroids moved in each round, on logarithmic scales, for several runs.

    Parameters
    ----------
    histories : mapping of name to mapping of name to ndarray of shape (rounds,)
        For each run, the movement ‖C_new - C‖ of each round. Runs with the same outer name share their
        colour, runs with the same inner name their line style. Movements of zero and NaN are left out.
    tol : float, optional
        The movement at which a run stops, drawn as a line.
    """
    fig = new_figure((8.4, 4.2))
    ax = fig.add_subplot()
    lines: dict[str, str] = {}
    for number, (group, runs) in enumerate(histories.items()):
        for name, history in runs.items():
            movement = np.asarray(history, dtype=np.float64)
            rounds = np.flatnonzero(movement > 0)
            colour = PALETTE[number % len(PALETTE)]
            line = lines.setdefault(name, _LINES[len(lines) % len(_LINES)])
            label = f"{group}, {name} ({len(movement):,} rounds)"
            # A marker shows where it ends.
            end: dict[str, Any] = {"marker": "o", "markersize": 5, "markevery": list(range(len(rounds)))[-1:]}
            ax.plot(rounds + 1, movement[rounds], line, color=colour, label=label, linewidth=1.8, **end)
    if tol is not None:
        ax.axhline(tol, color=INK, linewidth=1, linestyle=(0, (1, 2)), label=f"stop below {tol:g}")
    ax.set(xlabel="round", ylabel="movement ‖ΔC‖ (units of the data)", xscale="log", yscale="log")
    ax.set_xlim(left=1)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.grid(color=GRID, linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title("How far the centroids move in each round", fontsize=11, color=INK)
    ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    return fig


def new_figure(size: tuple[float, float]) -> Figure:
    """Make a figure of that width and height in inches, without a window."""
    prepare_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # "compressed" closes the gaps between maps with fixed proportions.
    fig = Figure(figsize=size, layout="compressed")
    FigureCanvasAgg(fig)
    return fig


def panels(X: DataArray, titles: Sequence[str], n_columns: int = 3) -> tuple[Figure, list[Axes]]:
    """Return a figure with one map of the plane for each title, all with the same limits."""
    if not titles:
        raise DataError("nothing to draw; give at least one panel")
    if X.ndim != 2 or X.shape[1] != 2 or not len(X):
        raise DataError(
            f"a map needs rows of two columns, got an array of shape {X.shape}; choose two columns, "
            "or project the rows first (for instance with scikit-learn's PCA)"
        )
    across = min(n_columns, len(titles))
    down = math.ceil(len(titles) / across)
    extent = np.ptp(X, axis=0)
    # Proportions of the data, within limits; a single row, or a line, has no extent.
    ratio = float(np.clip(extent[1] / extent[0], 0.5, 1.5)) if extent.all() else 1.0
    fig = new_figure((_PANEL * across, _PANEL * ratio * down + 0.9))
    axes = fig.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for ax, title in zip(axes.flat, titles, strict=False):
        ax.set_title(title, fontsize=11, color=INK)
        ax.set_aspect("equal", adjustable="box")
        ax.spines[["top", "right"]].set_visible(False)
    for unused in axes.flat[len(titles) :]:
        unused.set_axis_off()
    for ax in axes[-1]:
        ax.set_xlabel("first column")
    for ax in axes[:, 0]:
        ax.set_ylabel("second column")
    return fig, list(axes.flat[: len(titles)])


def dots(ax: Axes, points: DataArray, **style: Any) -> None:
    """Draw points, shape (n, 2), on a map."""
    ax.scatter(points[:, 0], points[:, 1], **style)


def _style(number: int) -> dict[str, Any]:
    """Return colour and marker of the group of that number; the pair repeats after 49 groups."""
    turn, colour = divmod(number, len(PALETTE))
    return {"c": PALETTE[colour], "marker": MARKERS[turn % len(MARKERS)], "linewidths": 0}


def legend(fig: Figure, ax: Axes, n_columns: int = 3) -> None:
    """Explain the points of a map below the figure."""
    look: dict[str, Any] = {"ncols": n_columns, "frameon": False, "fontsize": 9}
    made: Any = fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", **look)
    for handle in made.legend_handles:
        handle.set_sizes([42])  # larger than on the map, to show the colour
