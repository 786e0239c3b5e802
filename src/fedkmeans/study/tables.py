"""Tables of a study: mean, best and spread of each cell, with the paper's values beside them."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from fedkmeans._utils.checks import check_choice
from fedkmeans.study.cells import (
    Place,
    best_runs,
    cells_of,
    check_best,
    check_metric,
    choose_clients,
    runs_of,
)
from fedkmeans.study.frame import is_better
from fedkmeans.study.paper_values import PAPER_ROUNDING, PAPER_RUNS, PAPER_TABLES, PaperValue
from fedkmeans.study.plan import AlgorithmPlan, Plan
from fedkmeans.study.render import FORMS, as_csv, blocks_of

COLUMNS = (
    "data", "distribution", "algorithm", "clients_per_round", "runs", "mean", "best", "std",
    "paper_mean", "paper_best", "paper_std", "off_by_std", "z",
)  # fmt: skip


def render(
    plan: Plan,
    frame: pd.DataFrame,
    metric: str = "score",
    clients: int | None = None,
    form: str = "text",
    best: float = 1.0,
) -> str:
    r"""Lay out the results as a table, one block for each data title.

    Parameters
    ----------
    plan : Plan
    frame : DataFrame
        Of `fedkmeans.study.frame.results`.
    metric : str
        A key of `METRICS`.
    clients : int or None
        Clients per round; None for the largest number that there are runs with.
    form : {"text", "markdown", "latex", "csv"}
        LaTeX needs ``\usepackage{booktabs}``. CSV has full precision, one row a cell, and no notes.
    best : float in (0, 1]
        Share of each cell's runs that counts, see `summarize`.

    Returns
    -------
    str
        Ends with a line break.
    """
    check_choice("format", form, (*FORMS, "csv"))
    summary = summarize(plan, frame, metric, clients, best)
    if form == "csv":
        return as_csv(summary, metric)
    return FORMS[form](blocks_of(plan, summary, metric, choose_clients(frame, clients), best))


def summarize(
    plan: Plan,
    frame: pd.DataFrame,
    metric: str = "score",
    clients: int | None = None,
    best: float = 1.0,
) -> pd.DataFrame:
    """What a table says, in numbers: one row for each data title, distribution and algorithm.

    Parameters
    ----------
    plan : Plan
    frame : DataFrame
        Of `fedkmeans.study.frame.results`.
    metric : str
        A key of `METRICS`.
    clients : int or None
        Clients per round; None for the largest number that there are runs with.
    best : float in (0, 1]
        Of n runs of a cell, the ⌈best n⌉ with the lowest score count, whatever the metric; 1 is all. The
        paper's accuracies and v-measures are those of the best half.

    Returns
    -------
    DataFrame of shape (n_cells, 13)
        Columns are `COLUMNS`. `data` is the title and `algorithm` the name in the plan. Pooled runs
        stand in every distribution of their data and have no `clients_per_round`. `runs`
        counts those that count and have the metric; a cell without any has a row, too, with 0 and NaN.

        `std` is that of a sample, with runs - 1; NaN for one run, which says nothing about a spread.

        The paper's values are there for data that names its `paper` entry, distributions and
        algorithms the paper has (by their names in the catalogue, whatever parameters are set), and
        only if `clients` is all clients of the plan, as in the paper's tables. With them:

        - ``off_by_std`` = (mean - paper_mean) / paper_std, NaN where the paper prints 0.0000 for it;
        - ``z`` = sign(d) max(abs(d) - r, 0) / ((paper_std + r) sqrt(1 / runs + 1 / N)) for the
          paper's number of runs N, and d = mean - paper_mean: the difference of the means in standard
          deviations of that difference if our runs scatter as the paper's do. The rounding
          r = PAPER_ROUNDING of what the paper prints speaks for agreement in both places, so that a
          printed 0.0000 makes nothing infinite.

    Raises
    ------
    ParameterError
        If there is no such metric.
    StudyError
        If no run has the metric, or none so many clients per round; says which there are.
    """
    check_metric(frame, metric)
    clients = choose_clients(frame, clients)
    check_best(best)
    rows = [_row(plan, frame, place, algorithm, metric, clients, best) for place, algorithm in cells_of(plan)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"clients_per_round": "Int64"})


def _row(
    plan: Plan,
    frame: pd.DataFrame,
    place: Place,
    algorithm: AlgorithmPlan,
    metric: str,
    clients: int | None,
    best: float,
) -> dict[str, Any]:
    runs = runs_of(frame, place, algorithm)
    if not algorithm.is_pooled:
        runs = runs[runs["clients_per_round"] == clients]
    values = best_runs(runs.dropna(subset=[metric]), best)[metric].astype(float)
    row = {
        "data": place.data.title,
        "distribution": place.dealt.name,
        "algorithm": algorithm.name,
        "clients_per_round": None if algorithm.is_pooled else clients,
        "runs": len(values),
        "mean": values.mean(),
        "best": values.agg(is_better(metric)),
        "std": values.std(ddof=1),
    }
    # The paper's tables are for rounds with all clients. Where all runs are pooled, there are no rounds.
    paper = _paper_value(place, algorithm, metric) if clients in (None, plan.n_clients) else None
    if paper is None:
        return row
    return row | _compare(float(values.mean()), len(values), paper, PAPER_RUNS[metric])


def _paper_value(place: Place, algorithm: AlgorithmPlan, metric: str) -> PaperValue | None:
    if place.data.paper is None:
        return None
    # The rule rather than the name, which is for the plan to choose; data that comes divided has no rule.
    row = PAPER_TABLES[place.data.paper].get((place.dealt.rule or place.dealt.name, algorithm.algorithm))
    return getattr(row, metric, None)  # homogeneity and completeness are not in the paper


def _compare(mean: float, runs: int, paper: PaperValue, paper_runs: int) -> dict[str, float]:
    off = mean - paper.mean
    beyond = math.copysign(max(abs(off) - PAPER_ROUNDING, 0.0), off) if runs else math.nan
    spread = (paper.std + PAPER_ROUNDING) * math.sqrt((1 / runs if runs else math.nan) + 1 / paper_runs)
    return {
        "paper_mean": paper.mean,
        "paper_best": paper.best,
        "paper_std": paper.std,
        "off_by_std": off / paper.std if paper.std else math.nan,
        "z": beyond / spread,
    }
