"""The head of a study's page: what was run, and how to run it again."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pandas as pd

from fedkmeans.study.cells import places_of
from fedkmeans.study.grid import tasks_of
from fedkmeans.study.plan import DataPlan, Plan


def facts(plan: Plan, frame: pd.DataFrame) -> list[tuple[str, str]]:
    """What was run, as pairs of a name and a text."""
    finished = str(frame["finished"].max()).replace("T", " ").replace("+00:00", " UTC")
    return [
        *[("Data", _data_text(plan, frame, data)) for data in plan.data],
        ("Clients", _clients_text(plan)),
        ("Algorithms", ", ".join(one.title for one in plan.algorithms)),
        ("Runs", _runs_text(plan, frame)),
        ("Seed", str(plan.seed)),
        ("Last run", finished),
        ("Computing time", duration(float(frame["seconds"].sum()))),
        ("Versions", _versions_text(frame)),
    ]


def commands(plan: Plan) -> list[str]:
    """What to type to run the study again and to make the page."""
    file = plan.folder / f"{plan.name}.toml"
    # Seen from here, or else without folders, which are nobody's business.
    here = Path.cwd()
    shown = file.relative_to(here) if file.is_relative_to(here) else Path(file.name)
    path = shlex.quote(str(shown))
    return [
        "pip install fedkmeans",
        f"fedkmeans study run {path}",
        f"fedkmeans study report {path}",
    ]


def _data_text(plan: Plan, frame: pd.DataFrame, data: DataPlan) -> str:
    dealt = _listed([place.title for place in places_of(plan)[data.title] if place.data == data], "and")
    how = f"dealt out {dealt}" if data.distributions[0].rule is not None else f"comes divided ({dealt})"
    digest = frame.loc[frame["data"] == data.name, "rows"].dropna()
    shape = re.match(r"(\d+)x(\d+)-", str(digest.iloc[0])) if len(digest) else None
    size = f"{int(shape[1]):,} rows of {int(shape[2]):,} columns, " if shape else ""
    return f"{data.title}: {size}k = {data.k}, {how}"


def _clients_text(plan: Plan) -> str:
    rules = [one.rule for data in plan.data for one in data.distributions]
    who = f"{plan.n_clients:,}" if any(rules) else "those of the data"
    return f"{who}, of which {_listed([f'{n:,}' for n in plan.clients_per_round], 'or')} are asked in a round"


def _runs_text(plan: Plan, frame: pd.DataFrame) -> str:
    planned, done = len(tasks_of(plan)), int((frame["run"] < plan.runs).sum())
    more = len(frame) - done
    each = f"{plan.runs:,} of each combination"
    return f"{done:,} of {planned:,} done ({each})" + (f", and {more:,} more" if more else "")


def _versions_text(frame: pd.DataFrame) -> str:
    found: dict[str, list[str]] = {}
    for versions in frame["versions"].dropna():
        for name, version in versions.items():
            if version not in found.setdefault(name, []):
                found[name].append(version)
    order = sorted(found, key=lambda name: (name != "fedkmeans", name != "python", name))
    return ", ".join(f"{name} {'/'.join(sorted(found[name]))}" for name in order)


def _listed(words: list[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def duration(seconds: float) -> str:
    """Write a time for reading: 4.2 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02d} min"
