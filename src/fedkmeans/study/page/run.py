"""The page of one run: result, rounds and clients in one HTML file without scripts."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pandas as pd

from fedkmeans._utils.atomic_io import atomic_path
from fedkmeans.model import Model
from fedkmeans.study.page.content import ends, strip, view_of
from fedkmeans.study.page.study import described, part
from fedkmeans.study.plots import new_figure

_MOST_CLIENTS = 200  # in a table
_SHOWN = ("restart", "round", "movement", "estimate", "score", "participants", "asked")


def write_run_report(
    model: Model, path: str | Path, title: str, missing: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Write the page of a run.

    Parameters
    ----------
    model : Model
        With its model card, which has all that is shown.
    path : path
        The file; it loads nothing else.
    title : str
    missing : dict or None
        For each client that did not answer: the reason, once for each time.
    """
    with atomic_path(path) as temporary:
        temporary.write_text(page(model, title, missing or {}), encoding="utf-8")


def page(model: Model, title: str, missing: Mapping[str, Sequence[str]]) -> str:
    """Return the text of the page; see `write_run_report`."""
    return Template(part("run.html")).substitute(
        title=escape(title),
        style=part("page.css"),
        facts=described(_facts(model)),
        lead=escape(_lead(model.card)),
        figure=_figure(model.card["history"]),
        clients=_clients(model.card["data"]["clients"], missing),
        centroids=_centroids(model),
        settings=_table(["setting", "value"], sorted(model.card["parameters"].items())),
    )


def _facts(model: Model) -> list[tuple[str, str]]:
    card = model.card
    data, result = card["data"], card["result"]
    return [
        ("Clusters", f"{len(model.centroids):,}"),
        ("Rows", f"{data['n_samples']:,} at {len(data['clients']):,} clients"),
        ("Columns", f"{data['n_features']:,}"),
        ("Algorithm", str(card["algorithm"])),
        ("Rounds", f"{result['n_rounds']:,}"),
        ("Ended by", str(result["stop_reason"])),
        ("Score per sample", f"{result['score_per_sample']:,.6g}"),
        ("Seed", str(card["seed"])),
        ("Made", str(card["created"]).replace("T", " ").replace("+00:00", " UTC")),
        ("Versions", ", ".join(f"{name} {version}" for name, version in card["versions"].items())),
    ]


def _lead(card: Mapping[str, Any]) -> str:
    sent, received = (sum(card["history"].get(f"bytes_{way}") or [0]) for way in ("sent", "received"))
    lead = "Movement: how far the centroids moved in a round. Answers: clients that answered, of those asked."
    if not sent + received:
        return lead
    return f"{lead} In all rounds, {_size(sent)} were sent to clients and {_size(received)} to the server."


def _size(n_bytes: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:,.1f} {unit}"
    return f"{n_bytes:,} bytes"


def _figure(history: Mapping[str, Sequence[Any]]) -> str:
    """Return movement, score and answers by round as SVG, one line for each restart."""
    rounds = pd.DataFrame(dict(history)).reindex(columns=list(_SHOWN)).astype(float)
    if not len(rounds):
        return "<p>This algorithm has no rounds.</p>"
    panels = {"movement": "movement", "participants": "answers"}
    if np.isfinite(rounds["score"]).any():
        panels["score"] = "score per sample"
    elif np.isfinite(rounds["estimate"]).any():
        panels["estimate"] = "score, as the server estimates it"
    fig = new_figure((4.2 * len(panels), 3.0))
    for place, (name, label) in enumerate(panels.items()):
        ax = fig.add_subplot(1, len(panels), place + 1)
        _draw(ax, rounds, name)
        ax.set_ylabel(label)
    drawn = io.StringIO()
    fig.savefig(drawn, format="svg", facecolor="white")
    return drawn.getvalue()[drawn.getvalue().index("<svg") :]  # without the XML header


def _draw(ax: Any, rounds: pd.DataFrame, name: str) -> None:
    for _, restart in rounds[np.isfinite(rounds[name])].groupby("restart"):
        ax.plot(restart["round"], restart[name], marker=".", linewidth=1)
    ax.set_xlabel("round")
    ax.xaxis.get_major_locator().set_params(integer=True)
    if name == "movement" and (rounds[name] > 0).any():
        ax.set_yscale("log", nonpositive="mask")
    if name == "participants":
        first = rounds[rounds["restart"] == rounds["restart"].iloc[0]]
        ax.plot(first["round"], first["asked"], linestyle=":", linewidth=1, color="gray")
        ax.set_ylim(0, None)
        ax.yaxis.get_major_locator().set_params(integer=True)


def _clients(clients: Sequence[Mapping[str, Any]], missing: Mapping[str, Sequence[str]]) -> str:
    names = [client["name"] for client in clients]
    sizes = [f"{client['n_samples']:,}" for client in clients]
    rows = [(name, n, _why(missing.get(name, ()))) for name, n in zip(names, sizes, strict=True)]
    absent = [(name, "–", _why(reasons)) for name, reasons in missing.items() if name not in names]
    more = len(names) - _MOST_CLIENTS
    note = f"<p>… and {more:,} more</p>" if more > 0 else ""
    return _table(["client", "rows", "no answer"], [*rows[:_MOST_CLIENTS], *absent]) + note


def _why(reasons: Sequence[str]) -> str:
    counted = Counter(reasons).items()
    texts = [f"{times:,} time(s)" + (f": {reason}" if reason else "") for reason, times in counted]
    return "; ".join(texts) or "never"


def _centroids(model: Model) -> str:
    n_clusters, n_columns = model.centroids.shape
    view = view_of(n_columns)
    if view == "images":
        picture = strip(model.centroids, *ends([model.centroids]))
        alt = f"{n_clusters} centroids as pictures, one below the other"
        return f'<img class="strip" alt="{alt}" src="{picture}">'
    if view == "none":
        return f"<p>{n_clusters:,} centroids of {n_columns:,} columns are too many numbers for a page.</p>"
    names = model.feature_names or [f"x{j}" for j in range(n_columns)]
    rows = [
        (str(j), *(f"{number:,.5g}" for number in centroid)) for j, centroid in enumerate(model.centroids)
    ]
    return _table(["cluster", *names], rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    return f'<div class="scroll" tabindex="0">{table}</div>'
