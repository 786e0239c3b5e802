"""Tables of a study: mean, best and spread of each cell, beside the values of the paper."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedkmeans._utils.checks import check_choice
from fedkmeans.study import results
from fedkmeans.study.formats import FORMATS, NONE, SPANS, Block
from fedkmeans.study.paper_values import NO_VALUE, PAPER_ROUNDING, PAPER_RUNS, PAPER_VALUES
from fedkmeans.study.plan import Plan

_OURS = ["runs", "mean", "best", "std"]
_PAPER = ["paper_mean", "paper_best", "paper_std"]
_DIFFERENCE = ["off_by_std", "z"]
COLUMNS = (*results.CELL, "clients_per_round", *_OURS, *_PAPER, *_DIFFERENCE)


def render(
    plan: Plan,
    frame: pd.DataFrame,
    metric: str = "score",
    clients: int | None = None,
    form: str = "text",
    best: float = 1.0,
    rounds: int | None = None,
) -> str:
    r"""Return the results as a table, one block for each data title; it ends with a line break.

    Parameters
    ----------
    plan, frame, metric, clients, best
        As for `summarize`.
    form : {"text", "markdown", "latex", "csv"}
        LaTeX needs ``\usepackage{booktabs}``. CSV has full precision, one row per cell, and no notes.
    rounds : int or None
        Show the score after so many rounds, from the curves of the runs; None for that of the end.
    """
    check_choice("format", form, (*FORMATS, "csv"))
    if rounds is not None:
        frame = results.after_rounds(frame, rounds)
    summary = summarize(plan, frame, metric, clients, best)
    if rounds is not None:  # which the paper does not have
        summary = summary.assign(**dict.fromkeys([*_PAPER, *_DIFFERENCE], math.nan))
    if form == "csv":
        return summary.assign(metric=metric)[["metric", *COLUMNS]].to_csv(index=False)
    after = "" if rounds is None else f" after {rounds:,} rounds"
    better = "less" if results.is_better(metric) == "min" else "more"
    about = f"{results.METRICS[metric]}{after} ({better} is better)"
    notes = _about_runs(plan, summary, metric, results.choose_clients(frame, clients), best)
    blocks = [
        _block(plan, part, f"{one_line(title)}: {about}", notes, metric)
        for title, part in summary.groupby("data", sort=False)
    ]
    return FORMATS[form](blocks)


def summarize(
    plan: Plan, frame: pd.DataFrame, metric: str = "score", clients: int | None = None, best: float = 1.0
) -> pd.DataFrame:
    """Return mean, best and spread of each cell of the plan, with the values of the paper.

    Parameters
    ----------
    plan : Plan
    frame : DataFrame
        From `fedkmeans.study.results.load_results`.
    metric : str
        A key of `METRICS`.
    clients : int or None
        Clients per round; None for the largest number.
    best : float in (0, 1]
        As for `averages`. The accuracies and v-measures of the paper are those of the best half.

    Returns
    -------
    DataFrame of shape (n_cells, 13)
        Columns are `COLUMNS`. `data` is the title and `algorithm` the name in the plan. Pooled runs
        appear in every distribution of their data and have no `clients_per_round`. `runs` counts the
        runs that count and have the metric; a cell without any has a row too, with 0 and NaN. `std` is
        that of a sample, with runs - 1; NaN for one run.

        The values of the paper are there for data with a `paper` entry and for distributions and
        algorithms of the paper (by their names in the registry, with any parameters), and only if
        `clients` is all clients of the plan, as in the tables of the paper. With them:

        - ``off_by_std`` = (mean - paper_mean) / paper_std, NaN where the paper prints 0.0000 for it;
        - ``z`` = sign(d) max(abs(d) - r, 0) / ((paper_std + r) sqrt(1 / runs + 1 / N)) for N runs of the
          paper, and d = mean - paper_mean: the difference of the means in standard deviations of that
          difference, if our runs scatter as those of the paper do. Both uses of the rounding
          r = PAPER_ROUNDING of the printed values favour agreement, so that a printed 0.0000 makes
          nothing infinite.
    """
    results.check_metric(frame, metric)
    clients = results.choose_clients(frame, clients)
    numbers = frame["clients_per_round"]
    found = results.averages(plan, frame[numbers.isna() | (numbers == clients)], metric, best)
    cells = list(itertools.product(results.places_of(plan), plan.algorithms))
    names = [(place.data.title, place.distribution.name, algorithm.name) for place, algorithm in cells]
    summary = pd.DataFrame(names, columns=results.CELL).merge(found, how="left", on=results.CELL)
    asked = pd.array([None if one.is_pooled else clients for _, one in cells], dtype="Int64")
    # The tables of the paper are for rounds with all clients. If all runs are pooled, there are no rounds.
    values = PAPER_VALUES if clients in (None, plan.n_clients) else {}
    # By rule, as a plan may choose any name; data with clients of its own has no rule.
    keys = [
        (place.data.paper or "", place.distribution.rule or place.distribution.name, one.algorithm, metric)
        for place, one in cells
    ]
    paper = np.array([values.get(key, NO_VALUE) for key in keys]).T
    runs = summary["runs"].fillna(0).astype(int)
    summary = summary.assign(clients_per_round=asked, runs=runs, **dict(zip(_PAPER, paper, strict=True)))
    off, std = summary["mean"] - summary["paper_mean"], summary["paper_std"]
    beyond = np.copysign(np.maximum(off.abs() - PAPER_ROUNDING, 0.0), off)
    n_paper = PAPER_RUNS.get(metric, math.nan)
    spread = (std + PAPER_ROUNDING) * np.sqrt(1 / summary["runs"] + 1 / n_paper)
    return summary.assign(off_by_std=off / std.where(std != 0), z=beyond / spread)[list(COLUMNS)]


# --- blocks ------------------------------------------------------------------------------------


def one_line(text: object) -> str:
    """Replace line breaks and other white space by single spaces, as a table needs it."""
    return " ".join(str(text).split())


def _block(plan: Plan, part: pd.DataFrame, caption: str, notes: list[str], metric: str) -> Block:
    """Return the summary of one data title as text; without columns for the paper if it has no values."""
    has_paper = bool(part["paper_mean"].notna().any())
    columns = [*_OURS, *_PAPER, *_DIFFERENCE] if has_paper else _OURS
    groups: list[list[Sequence[str]]] = []
    for name, cells in part.groupby("distribution", sort=False):
        firsts = [one_line(results.TITLES.get(str(name), str(name)))] + [""] * (len(cells) - 1)
        titles = [one_line(plan.find_algorithm(one).title) for one in cells["algorithm"]]
        numbers = [[_number(column, value) for value in cells[column]] for column in columns]
        groups.append(list(zip(firsts, titles, *numbers, strict=True)))
    notes = notes + (_about_paper(metric) if has_paper else [])
    if any(NONE in row for group in groups for row in group):
        notes = [*notes, f"{NONE}: no value."]
    return Block(caption, SPANS if has_paper else SPANS[:2], groups, notes)


def _number(column: str, value: Any) -> str:
    if column == "runs":
        return str(value)
    if math.isnan(value):
        return NONE
    if column not in _DIFFERENCE:
        return f"{value:.4f}"  # as in the paper
    text = f"{value:+.2f}".replace("-", "−")
    return text if float(f"{value:.2f}") else "0.00"  # without a sign


def _about_paper(metric: str) -> list[str]:
    every = PAPER_RUNS["score"]
    some = f"what must be the {PAPER_RUNS[metric]} of {every} runs with the lowest score"
    runs = f"{every} runs" if PAPER_RUNS[metric] == every else some
    return [
        f"The paper: its values, over {runs}; all clients took part.",
        "Difference: mean − the paper's mean. In std: in the paper's standard deviations. z: less what the "
        "paper's rounding can explain, in standard deviations of the difference of two means over so many "
        "runs.",
    ]


def _about_runs(
    plan: Plan, summary: pd.DataFrame, metric: str, clients: int | None, share: float
) -> list[str]:
    best = "least" if results.is_better(metric) == "min" else "largest"
    counts = summary["runs"][summary["runs"] > 0]
    least, most = counts.min(), counts.max()
    runs = f"{least} to {most} runs" if least != most else f"{most} runs" if most != 1 else "1 run"
    some = "" if share == 1 else f", those {share:.0%} of the runs with the lowest score"
    # Data with clients of its own has another number of clients than the plan says.
    own = any(one.rule is None for data in plan.data for one in data.distributions)
    of_all = "" if own else f" of {plan.n_clients}"
    asked = "" if clients is None else f", {clients}{of_all} clients per round"
    notes = [
        f"Mean, best ({best}) and standard deviation (with runs − 1) of the {results.METRICS[metric]} over "
        f"{runs}{some}{asked}, seed {plan.seed}."
    ]
    pooled = [one_line(algorithm.title) for algorithm in plan.algorithms if algorithm.is_pooled]
    if pooled and clients is not None:
        notes.append(f"{', '.join(pooled)}: all rows in one place, whatever the distribution.")
    if metric in results.REFERENCE_METRICS and plan.reference is not None:
        reference = plan.find_algorithm(plan.reference)
        who = "" if reference.is_pooled else f" with {max(plan.clients_per_round)} clients per round"
        near = f" Near: at most {plan.within:g} % above." if metric == "rounds_to_within" else ""
        notes.append(f"Reference: {one_line(reference.title)}{who}, the score of the same run.{near}")
    return notes
