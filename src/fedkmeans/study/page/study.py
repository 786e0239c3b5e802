"""A study as one HTML file, to be opened in a browser with or without a network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import pandas as pd
from plotly.offline import get_plotlyjs

from fedkmeans._utils.atomic_io import atomic_path
from fedkmeans._utils.typing import FloatArray
from fedkmeans.study.page.content import page_content
from fedkmeans.study.page.head import commands, facts
from fedkmeans.study.plan import Plan


def write_report(
    plan: Plan, frame: pd.DataFrame, centroids: Mapping[str, FloatArray], path: str | Path
) -> None:
    """Write the page of a study: tables, interactive figures, and the centroids.

    Parameters
    ----------
    plan : Plan
    frame : DataFrame
        The finished runs, as `fedkmeans.study.frame.results` gives them.
    centroids : mapping of key to ndarray of shape (k, m)
        Those of the first runs, as `Store.centroids` gives them.
    path : path
        Where to. All that the page needs is in this file; it loads nothing.
    """
    text = page(plan, frame, centroids)
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def page(plan: Plan, frame: pd.DataFrame, centroids: Mapping[str, FloatArray]) -> str:
    """The text of the page; see `write_report`."""
    return Template(part("page.html")).substitute(
        title=escape(plan.title),
        facts=described(facts(plan, frame)),
        commands="\n".join(escape(line) for line in commands(plan)),
        style=part("page.css"),
        plotly=get_plotlyjs(),
        data=script_json(page_content(plan, frame, centroids)),
        script=part("page.js"),
    )


def script_json(content: object) -> str:
    """JSON that can stand between script tags, whatever its texts are."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def described(pairs: Iterable[tuple[str, str]]) -> str:
    """Pairs of a name and a text, as the head of a page has them."""
    return "\n".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in pairs)


def part(name: str) -> str:
    """Text of a file that pages are made of."""
    return (files("fedkmeans.study.page") / name).read_text(encoding="utf-8")
