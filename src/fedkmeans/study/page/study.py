"""The page of a study: one HTML file that needs no network."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import pandas as pd
from plotly.offline import get_plotlyjs

from fedkmeans._utils.atomic_io import atomic_path
from fedkmeans._utils.typing import FloatArray
from fedkmeans.study.grid import tasks_of
from fedkmeans.study.page.content import page_content
from fedkmeans.study.plan import DataPlan, Plan
from fedkmeans.study.results import places_of


def write_report(
    plan: Plan, frame: pd.DataFrame, centroids: Mapping[str, FloatArray], path: str | Path
) -> None:
    """Write the page of a study: tables, interactive figures, and the centroids.

    Parameters
    ----------
    plan : Plan
    frame : DataFrame
        The finished runs, from `load_results`.
    centroids : mapping of key to ndarray of shape (k, m)
        Centroids of the first runs, from `Store.centroids`.
    path : path
        The file; it loads nothing else.
    """
    with atomic_path(path) as temporary:
        temporary.write_text(page(plan, frame, centroids), encoding="utf-8")


def page(plan: Plan, frame: pd.DataFrame, centroids: Mapping[str, FloatArray]) -> str:
    """Return the text of the page; see `write_report`."""
    return Template(part("page.html")).substitute(
        title=escape(plan.title),
        facts=described(facts(plan, frame)),
        commands="\n".join(escape(line) for line in commands(plan)),
        style=part("page.css"),
        plotly=get_plotlyjs(),
        data=script_json(page_content(plan, frame, centroids)),
        script=part("page.js") + part("tabs.js"),
    )


def script_json(content: object) -> str:
    """Return JSON that is safe between script tags."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def described(pairs: Iterable[tuple[str, str]]) -> str:
    """Return pairs of a name and a text as HTML, for the head of a page."""
    return "\n".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in pairs)


def part(name: str) -> str:
    """Return the text of a file of this folder."""
    return (files("fedkmeans.study.page") / name).read_text(encoding="utf-8")


# --- head of the page --------------------------------------------------------------------------


def facts(plan: Plan, frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Return what was run, as pairs of a name and a text."""
    finished = str(frame["finished"].max()).replace("T", " ").replace("+00:00", " UTC")
    rules = [one.rule for data in plan.data for one in data.distributions]
    who = f"{plan.n_clients:,}" if any(rules) else "those of the data"
    asked = _listed([f"{n:,}" for n in plan.clients_per_round], "or")
    done = int((frame["run"] < plan.runs).sum())
    more = f", and {len(frame) - done:,} more" if len(frame) > done else ""
    return [
        *[("Data", _data_text(plan, frame, data)) for data in plan.data],
        ("Clients", f"{who}; {asked} per round"),
        ("Algorithms", ", ".join(one.title for one in plan.algorithms)),
        ("Runs", f"{done:,} of {len(tasks_of(plan)):,} done ({plan.runs:,} of each combination){more}"),
        ("Seed", str(plan.seed)),
        ("Last run", finished),
        ("Computing time", duration(float(frame["seconds"].sum()))),
        ("Versions", _versions_text(frame)),
    ]


def commands(plan: Plan) -> list[str]:
    """Return the commands that run the study again and write the page."""
    file = plan.folder / f"{plan.name}.toml"
    # Relative to the current folder, or else without folders, which are private.
    here = Path.cwd()
    path = shlex.quote(str(file.relative_to(here)) if file.is_relative_to(here) else file.name)
    return ["pip install fedkmeans", f"fedkmeans study run {path}", f"fedkmeans study report {path}"]


def _data_text(plan: Plan, frame: pd.DataFrame, data: DataPlan) -> str:
    titles = _listed([place.title for place in places_of(plan) if place.data == data], "and")
    how = titles if data.distributions[0].rule is not None else f"with its own clients ({titles})"
    digest = frame.loc[frame["data"] == data.name, "rows"].dropna()
    shape = re.match(r"(\d+)x(\d+)-", str(digest.iloc[0])) if len(digest) else None
    size = f"{int(shape[1]):,} rows of {int(shape[2]):,} columns, " if shape else ""
    return f"{data.title}: {size}k = {data.k}, {how}"


def _versions_text(frame: pd.DataFrame) -> str:
    found: dict[str, set[str]] = {}
    for versions in frame["versions"].dropna():
        for name, version in versions.items():
            found.setdefault(name, set()).add(version)
    order = sorted(found, key=lambda name: (name != "fedkmeans", name != "python", name))
    return ", ".join(f"{name} {'/'.join(sorted(found[name]))}" for name in order)


def _listed(words: list[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def duration(seconds: float) -> str:
    """Return a time as text: 4.2 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02d} min"
