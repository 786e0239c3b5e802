"""The finished runs of a study as a data frame, and the means that tables and figures show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedkmeans._utils.checks import check_choice, check_integer, check_real
from fedkmeans._utils.typing import FloatArray
from fedkmeans.errors import StudyError
from fedkmeans.study.grid import find_kept
from fedkmeans.study.plan import DataPlan, Distribution, Plan
from fedkmeans.study.store import Store

METRICS = {
    "score": "score",
    "accuracy": "accuracy",
    "v_measure": "v-measure",
    "homogeneity": "homogeneity",
    "completeness": "completeness",
    "excess": "score above the reference (%)",
    "rounds_to_within": "rounds until near the reference",
}
# Metrics that need a plan with a reference.
REFERENCE_METRICS = ("excess", "rounds_to_within")
COLUMNS = (
    "key", "data", "distribution", "algorithm", "clients_per_round", "run", "seed", *METRICS, "reference",
    "rounds", "stop_reason", "seconds", "finished", "versions", "rows", "curve", "movement",
)  # fmt: skip
# Columns that identify a cell, apart from the number of clients per round; `data` is the title.
CELL = ["data", "distribution", "algorithm"]
TITLES = {"iid": "IID", "half-iid": "half-IID", "non-iid": "non-IID"}


def load_results(plan: Plan, store: Store) -> pd.DataFrame:
    """Return one row for each finished run of this plan, in the order of the plan.

    Columns are `COLUMNS`. Pooled runs have no distribution and no clients per round. Metrics that need
    true labels are NaN where there are none. `curve` and `movement`, dicts from round to score and
    movement, are None except for the first runs. Records of other plans in the same store are left
    out, and so are records of this plan from before a change to it.

    `reference` is the score of the plan's reference algorithm in the same run, `excess` is how far the
    score is above it in per cent, and `rounds_to_within` is the first round in which the score was at
    most `plan.within` per cent above it. All three are NaN without a reference, and the last one also
    for runs that have no curve or never came so near.
    """
    kept = store.facts()
    # Names of the plan: the records may have been made under other names.
    rows = [{"key": key, **kept[key], **asdict(task)} for task, key in find_kept(plan, kept).items()]
    if not rows:
        raise StudyError(
            f"there are no finished runs of {plan.name!r} in {str(store.folder)!r}; run the study first"
        )
    frame = pd.DataFrame(rows).reindex(columns=list(COLUMNS)).astype({"clients_per_round": "Int64"})
    frame = _with_reference(plan, frame)
    for name, values in plan.names().items():
        frame[name] = pd.Categorical(frame[name], values, ordered=True)
    return frame.sort_values([*CELL, "clients_per_round", "run"], na_position="first", ignore_index=True)


def _with_reference(plan: Plan, frame: pd.DataFrame) -> pd.DataFrame:
    """Fill in the columns that compare with the plan's reference."""
    if plan.reference is None:
        return frame
    runs = frame[frame["algorithm"] == plan.reference]
    by = ["data", "run"]
    if not plan.find_algorithm(plan.reference).is_pooled:
        runs = runs[runs["clients_per_round"] == max(plan.clients_per_round)]
        by.append("distribution")
    scores = runs.set_index(by)["score"]
    frame = frame.assign(reference=scores.reindex(pd.MultiIndex.from_frame(frame[by])).to_numpy(float))
    limits = (1 + plan.within / 100) * frame["reference"]
    first = [_first_below(run, limit) for run, limit in zip(frame.to_dict("records"), limits, strict=True)]
    return frame.assign(excess=_excess(frame), rounds_to_within=first)


def _excess(frame: pd.DataFrame) -> pd.Series[float]:
    return 100 * (frame["score"] / frame["reference"] - 1)


def _first_below(run: Mapping[Any, Any], limit: float) -> float:
    """Return the first round with a score of at most `limit`, or NaN."""
    if not isinstance(run["curve"], Mapping):
        return math.nan
    rounds, scores = curve_of(run)
    below = np.flatnonzero(scores <= limit)
    if not len(below):
        return math.nan
    i = below[0]
    if i == 0:
        return float(rounds[0])
    # Somewhere between two rounds with known scores; on the straight line between them.
    share = (scores[i - 1] - limit) / (scores[i - 1] - scores[i])
    return float(math.ceil(rounds[i - 1] + share * (rounds[i] - rounds[i - 1])))


def after_rounds(frame: pd.DataFrame, rounds: int) -> pd.DataFrame:
    """Return the runs as they were after so many rounds.

    A run that stopped earlier keeps its score. Runs without a curve are left out, and so are runs that
    were cut off before by `max_rounds`. Metrics that need labels are NaN.
    """
    check_integer("rounds", rounds)
    frame = frame[[isinstance(curve, Mapping) for curve in frame["curve"]]]
    if not len(frame):
        raise StudyError("no run has a curve; increase curves in the plan before you run it")
    frame = frame[(frame["stop_reason"] != "max_rounds") | (frame["rounds"] >= rounds)]
    scores = [float(np.interp(rounds, *curve_of(run))) for run in frame.to_dict("records")]
    frame = frame.assign(score=scores, **dict.fromkeys(list(METRICS)[1:5], math.nan))
    return frame.assign(excess=_excess(frame))


def is_better(metric: str) -> str:
    """Return which of two values of a metric is better: "min" or "max"."""
    return "min" if metric in ("score", *REFERENCE_METRICS) else "max"


# --- cells -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """A data set with one distribution: a panel of a figure, a group of rows of a table."""

    data: DataPlan
    distribution: Distribution

    @property
    def title(self) -> str:
        """The distribution as people write it."""
        return TITLES.get(self.distribution.name, self.distribution.name)


def places_of(plan: Plan) -> list[Place]:
    """Return all places in the order of the plan, except that those of one data title are together."""
    places: dict[tuple[str, str], Place] = {}
    for data in plan.data:
        for distribution in data.distributions:
            place = Place(data, distribution)
            other = places.setdefault((data.title, distribution.name), place)
            if other is not place:
                raise StudyError(
                    f"data {other.data.name} and {data.name} have one title, {data.title!r}, and both a "
                    f"distribution {distribution.name!r}; give them titles of their own"
                )
    titles = [data.title for data in plan.data]
    return sorted(places.values(), key=lambda place: titles.index(place.data.title))


def runs_by_cell(plan: Plan, frame: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    """Return the `CELL` of every place with every algorithm, and its runs, in the order of the tables.

    Pooled runs belong to every distribution of their data.
    """
    for place, algorithm in itertools.product(places_of(plan), plan.algorithms):
        here = (frame["data"] == place.data.name) & (frame["algorithm"] == algorithm.name)
        if not algorithm.is_pooled:
            here &= frame["distribution"] == place.distribution.name
        yield (place.data.title, place.distribution.name, algorithm.name), frame[here]


def check_metric(frame: pd.DataFrame, metric: str) -> str:
    """Return the metric, or raise if it is unknown or no run has it."""
    check_choice("metric", metric, METRICS)
    if frame[metric].isna().all():
        raise StudyError(
            f"no run has the metric {metric}: the plan names no reference, or its runs are not finished"
            if metric in REFERENCE_METRICS
            else f"there is no {METRICS[metric]}: the data has no labels; choose the metric score"
        )
    return metric


def numbers_of_clients(frame: pd.DataFrame) -> list[int]:
    """Return the numbers of clients per round that there are, in ascending order."""
    return sorted(int(number) for number in frame["clients_per_round"].dropna().unique())


def choose_clients(frame: pd.DataFrame, clients: int | None) -> int | None:
    """Return `clients` if there are such runs; for None, the largest number, or None if all are pooled."""
    numbers = numbers_of_clients(frame)
    if clients is None:
        return numbers[-1] if numbers else None
    if clients not in numbers:
        found = f"runs with {', '.join(map(str, numbers))}" if numbers else "pooled runs only"
        raise StudyError(f"there are no runs with {clients} clients per round; there are {found}")
    return clients


# --- means -------------------------------------------------------------------------------------


def averages(plan: Plan, frame: pd.DataFrame, metric: str = "score", best: float = 0.5) -> pd.DataFrame:
    """Return mean, best value and spread of a metric over the best runs, by clients per round.

    Parameters
    ----------
    plan : Plan
    frame : DataFrame
        From `load_results`.
    metric : str
        A key of `METRICS`.
    best : float in (0, 1]
        Of n runs, the ⌈best n⌉ with the lowest score count, for any metric; 1 is all.

    Returns
    -------
    DataFrame of shape (n_points, 9)
        ``data`` (the title), ``distribution``, ``algorithm``, ``clients_per_round`` (missing for pooled
        runs, which appear in every distribution), ``runs`` that count and ``of`` how many, ``mean``,
        ``best``, ``std`` (of a sample; NaN for one run). Cells without a run that has the metric are left
        out.
    """
    check_real("best", best, low=0, high=1, low_open=True)
    points = []
    for cell, runs in runs_by_cell(plan, frame.dropna(subset=[metric]).sort_values(["score", "run"])):
        for number, group in runs.groupby("clients_per_round", dropna=False):
            # The small number absorbs rounding: 0.07 · 100 is slightly more than 7 in binary.
            values = group[metric].iloc[: math.ceil(best * len(group) - 1e-9)]
            points.append(
                (*cell, number, len(values), len(group), values.mean(), values.agg(is_better(metric)),
                 values.std(ddof=1))
            )  # fmt: skip
    names = [*CELL, "clients_per_round", "runs", "of", "mean", "best", "std"]
    return pd.DataFrame(points, columns=names).astype({"clients_per_round": "Int64"})


def mean_curves(
    plan: Plan, frame: pd.DataFrame, clients: int | None = None, metric: str = "score"
) -> pd.DataFrame:
    """Return mean and standard deviation of the score by round.

    Between two rounds with known scores, a run lies on the straight line between them. After its last
    round it keeps its score, so that the mean is over the same runs everywhere.

    Parameters
    ----------
    plan, frame
        As for `averages`.
    clients : int or None
        Clients per round; None for the largest number.
    metric : {"score", "excess"}

    Returns
    -------
    DataFrame of shape (n_points, 7)
        ``data`` (the title), ``distribution``, ``algorithm``, ``round`` (0 is the start), ``runs``,
        ``mean``, ``std`` (of a sample; NaN for one run).
    """
    check_choice("metric of curves", metric, ("score", "excess"))
    check_metric(frame, metric)
    frame = frame[frame["clients_per_round"] == choose_clients(frame, clients)].dropna(subset=[metric])
    frame = frame[[isinstance(curve, Mapping) for curve in frame["curve"]]]
    if not len(frame):
        raise StudyError("no run has a curve to draw; the first runs of algorithms that take rounds do")
    parts = []
    for cell, runs in runs_by_cell(plan, frame):
        curves = [curve_of(run, metric) for run in runs.to_dict("records")]
        if curves:
            rounds = np.unique(np.concatenate([rounds for rounds, _ in curves])).astype(int)
            values = pd.DataFrame([np.interp(rounds, *curve) for curve in curves])
            means = {"runs": len(curves), "mean": values.mean(), "std": values.std(ddof=1)}
            parts.append(pd.DataFrame({**dict(zip(CELL, cell, strict=True)), "round": rounds, **means}))
    return pd.concat(parts, ignore_index=True)


def curve_of(run: Mapping[Any, Any], metric: str = "score") -> tuple[FloatArray, FloatArray]:
    """Return the recorded rounds of a run, ascending, and the scores after them; ends with the last round."""
    # A one-shot algorithm has no centroids to start from: its round 0 is its result.
    recorded = {} if run["stop_reason"] == "one shot" else run["curve"]
    points = {int(number): float(score) for number, score in recorded.items()}
    points[int(run["rounds"])] = float(run["score"])
    rounds, scores = np.array(sorted(points.items()), dtype=float).T
    return rounds, 100 * (scores / run["reference"] - 1) if metric == "excess" else scores
