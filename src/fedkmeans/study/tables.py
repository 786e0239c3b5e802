"""Tables of a study: mean, best and spread of each cell, beside the values of the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from fedkmeans._utils.checks import check_choice
from fedkmeans.study.formats import FORMATS, NONE, Block, as_csv, one_line
from fedkmeans.study.paper_values import PAPER_ROUNDING, PAPER_RUNS, PAPER_TABLES, PaperValue
from fedkmeans.study.plan import AlgorithmPlan, Plan
from fedkmeans.study.results import (
    METRICS,
    REFERENCE_METRICS,
    Place,
    after_rounds,
    best_runs,
    cells_of,
    check_best,
    check_metric,
    choose_clients,
    is_better,
    places_of,
    runs_of,
)

COLUMNS = (
    "data", "distribution", "algorithm", "clients_per_round", "runs", "mean", "best", "std",
    "paper_mean", "paper_best", "paper_std", "off_by_std", "z",
)  # fmt: skip
_DIGITS = 4  # as in the paper


def render(
    plan: Plan,
    frame: pd.DataFrame,
    metric: str = "score",
    clients: int | None = None,
    form: str = "text",
    best: float = 1.0,
    rounds: int | None = None,
) -> str:
    r"""Return the results as a table, one block for each data title.

    Parameters
    ----------
    plan : Plan
    frame : DataFrame
        From `fedkmeans.study.results.load_results`.
    metric : str
        A key of `METRICS`.
    clients : int or None
        Clients per round; None for the largest number.
    form : {"text", "markdown", "latex", "csv"}
        LaTeX needs ``\usepackage{booktabs}``. CSV has full precision, one row per cell, and no notes.
    best : float in (0, 1]
        Share of each cell's runs that counts, see `summarize`.
    rounds : int or None
        Show the score after so many rounds, from the curves of the runs; None for that of the end.

    Returns
    -------
    str
        Ends with a line break.
    """
    check_choice("format", form, (*FORMATS, "csv"))
    if rounds is not None:
        frame = after_rounds(frame, rounds)
    summary = summarize(plan, frame, metric, clients, best)
    if rounds is not None:  # which the paper does not have
        summary = summary.assign(**dict.fromkeys(COLUMNS[8:], math.nan))
    if form == "csv":
        return as_csv(summary, metric)
    blocks = blocks_of(plan, summary, metric, choose_clients(frame, clients), best, rounds)
    return FORMATS[form](blocks)


def summarize(
    plan: Plan,
    frame: pd.DataFrame,
    metric: str = "score",
    clients: int | None = None,
    best: float = 1.0,
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
        Of the n runs of a cell, the ⌈best n⌉ with the lowest score count, for any metric; 1 is all. The
        accuracies and v-measures of the paper are those of the best half.

    Returns
    -------
    DataFrame of shape (n_cells, 13)
        Columns are `COLUMNS`. `data` is the title and `algorithm` the name in the plan. Pooled runs
        appear in every distribution of their data and have no `clients_per_round`. `runs` counts the
        runs that count and have the metric; a cell without any has a row too, with 0 and NaN.

        `std` is that of a sample, with runs - 1; NaN for one run.

        The values of the paper are there for data with a `paper` entry and for distributions and
        algorithms of the paper (by their names in the registry, with any parameters), and only if
        `clients` is all clients of the plan, as in the tables of the paper. With them:

        - ``off_by_std`` = (mean - paper_mean) / paper_std, NaN where the paper prints 0.0000 for it;
        - ``z`` = sign(d) max(abs(d) - r, 0) / ((paper_std + r) sqrt(1 / runs + 1 / N)) for N runs of the
          paper, and d = mean - paper_mean: the difference of the means in standard deviations of that
          difference, if our runs scatter as those of the paper do. Both uses of the rounding
          r = PAPER_ROUNDING of the printed values favour agreement, so that a printed 0.0000 makes
          nothing infinite.

    Raises
    ------
    ParameterError
        If there is no such metric.
    StudyError
        If no run has the metric or this number of clients per round; the message lists those there are.
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
        "distribution": place.distribution.name,
        "algorithm": algorithm.name,
        "clients_per_round": None if algorithm.is_pooled else clients,
        "runs": len(values),
        "mean": values.mean(),
        "best": values.agg(is_better(metric)),
        "std": values.std(ddof=1),
    }
    # The tables of the paper are for rounds with all clients. If all runs are pooled, there are no rounds.
    paper = _paper_value(place, algorithm, metric) if clients in (None, plan.n_clients) else None
    if paper is None:
        return row
    return row | _compare(float(values.mean()), len(values), paper, PAPER_RUNS[metric])


def _paper_value(place: Place, algorithm: AlgorithmPlan, metric: str) -> PaperValue | None:
    if place.data.paper is None:
        return None
    # By rule, as a plan may choose any name; data with clients of its own has no rule.
    rule = place.distribution.rule or place.distribution.name
    row = PAPER_TABLES[place.data.paper].get((rule, algorithm.algorithm))
    return getattr(row, metric, None)  # the paper has no homogeneity and completeness


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


# --- blocks ------------------------------------------------------------------------------------


def blocks_of(
    plan: Plan,
    summary: pd.DataFrame,
    metric: str,
    clients: int | None,
    best: float,
    rounds: int | None = None,
) -> list[Block]:
    """Return the numbers of `summarize` as text, one block for each data title.

    A block without any value of the paper has no columns for it.
    """
    titles = {algorithm.name: one_line(algorithm.title) for algorithm in plan.algorithms}
    after = "" if rounds is None else f" after {rounds:,} rounds"
    about = f"{METRICS[metric]}{after} ({'less' if is_better(metric) == 'min' else 'more'} is better)"
    first = _about_runs(plan, summary, metric, clients, best)
    blocks = []
    for title, places in places_of(plan).items():
        part = summary[summary["data"] == title]
        has_paper = bool(part["paper_mean"].notna().any())
        groups = []
        for place in places:
            cells = part[part["distribution"] == place.distribution.name].to_dict("records")
            names = [one_line(place.title)] + [""] * (len(cells) - 1)
            groups.append(
                tuple(
                    (name, titles[cell["algorithm"]], *_numbers(cell, has_paper))
                    for name, cell in zip(names, cells, strict=True)
                )
            )
        notes = [*first, *(_about_paper(metric) if has_paper else ())]
        if any(NONE in row for group in groups for row in group):
            notes.append(f"{NONE}: no value.")
        blocks.append(Block(f"{one_line(title)}: {about}", has_paper, tuple(groups), tuple(notes)))
    return blocks


def _numbers(cell: Mapping[Any, Any], has_paper: bool) -> list[str]:
    words = [str(cell["runs"]), *(_fixed(cell[name]) for name in ("mean", "best", "std"))]
    if has_paper:
        words += [_fixed(cell[name]) for name in ("paper_mean", "paper_best", "paper_std")]
        words += [_signed(cell[name]) for name in ("off_by_std", "z")]
    return words


def _fixed(value: float) -> str:
    return NONE if math.isnan(value) else f"{value:.{_DIGITS}f}"


def _signed(value: float) -> str:
    if math.isnan(value):
        return NONE
    text = f"{value:+.2f}".replace("-", "−")
    return text if float(f"{value:.2f}") else "0.00"  # without a sign


def _about_paper(metric: str) -> tuple[str, ...]:
    every = PAPER_RUNS["score"]
    some = f"what must be the {PAPER_RUNS[metric]} of {every} runs with the lowest score"
    runs = f"{every} runs" if PAPER_RUNS[metric] == every else some
    return (
        f"The paper: its values, over {runs}; all clients took part.",
        "Difference: mean − the paper's mean. In std: in the paper's standard deviations. z: less what the "
        "paper's rounding can explain, in standard deviations of the difference of two means over so many "
        "runs.",
    )


def _about_runs(
    plan: Plan, summary: pd.DataFrame, metric: str, clients: int | None, share: float
) -> list[str]:
    best = "least" if is_better(metric) == "min" else "largest"
    some = "" if share == 1 else f", those {share:.0%} of the runs with the lowest score"
    asked = "" if clients is None else f", {_asked(plan, clients)}"
    notes = [
        f"Mean, best ({best}) and standard deviation (with runs − 1) of the {METRICS[metric]} over "
        f"{_runs(summary)}{some}{asked}, seed {plan.seed}."
    ]
    pooled = [one_line(algorithm.title) for algorithm in plan.algorithms if algorithm.is_pooled]
    if pooled and clients is not None:
        notes.append(f"{', '.join(pooled)}: all rows in one place, whatever the distribution.")
    if metric in REFERENCE_METRICS and plan.reference is not None:
        reference = plan.find_algorithm(plan.reference)
        who = "" if reference.is_pooled else f" with {max(plan.clients_per_round)} clients per round"
        near = f" Near: at most {plan.within:g} % above." if metric == "rounds_to_within" else ""
        notes.append(f"Reference: {one_line(reference.title)}{who}, the score of the same run.{near}")
    return notes


def _asked(plan: Plan, clients: int) -> str:
    # Data with clients of its own has another number of clients than the plan says.
    if any(one.rule is None for data in plan.data for one in data.distributions):
        return f"{clients} clients per round"
    return f"{clients} of {plan.n_clients} clients per round"


def _runs(summary: pd.DataFrame) -> str:
    counts = summary["runs"][summary["runs"] > 0]
    least, most = counts.min(), counts.max()
    if least != most:
        return f"{least} to {most} runs"
    return f"{most} runs" if most != 1 else "1 run"
