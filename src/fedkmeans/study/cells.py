"""The cells of a study's tables and figures: data, the way it is dealt out, an algorithm, its runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from fedkmeans._utils.checks import check_choice, check_real
from fedkmeans.errors import StudyError
from fedkmeans.study.frame import METRICS
from fedkmeans.study.plan import AlgorithmPlan, DataPlan, Distribution, Plan

_TITLES = {"iid": "IID", "half-iid": "half-IID", "non-iid": "non-IID"}


@dataclass(frozen=True, slots=True)
class Place:
    """A data set dealt out in one way: a panel of a figure, a group of rows of a table."""

    data: DataPlan
    dealt: Distribution

    @property
    def title(self) -> str:
        """As people write it."""
        return _TITLES.get(self.dealt.name, self.dealt.name)


def places_of(plan: Plan) -> dict[str, list[Place]]:
    """The places of each data title, in the plan's order; data sets of one title stand together.

    Raises
    ------
    StudyError
        If two places could not be told apart.
    """
    places: dict[str, list[Place]] = {}
    for data in plan.data:
        group = places.setdefault(data.title, [])
        for dealt in data.distributions:
            for other in group:
                if other.dealt.name == dealt.name:
                    raise StudyError(
                        f"data {other.data.name} and {data.name} have one title, {data.title!r}, and both a "
                        f"distribution {dealt.name!r}; give them titles of their own"
                    )
            group.append(Place(data, dealt))
    return places


def cells_of(plan: Plan) -> Iterator[tuple[Place, AlgorithmPlan]]:
    """Every place with every algorithm, in the order in which tables list them."""
    for group in places_of(plan).values():
        for place in group:
            for algorithm in plan.algorithms:
                yield place, algorithm


def runs_of(frame: pd.DataFrame, place: Place, algorithm: AlgorithmPlan) -> pd.DataFrame:
    """The rows of a cell, for all numbers of clients per round.

    Pooled runs stand in every distribution of their data.
    """
    here = (frame["data"] == place.data.name) & (frame["algorithm"] == algorithm.name)
    if not algorithm.is_pooled:
        here &= frame["distribution"] == place.dealt.name
    return frame[here]


def best_runs(runs: pd.DataFrame, best: float) -> pd.DataFrame:
    """Of n runs of one cell the ⌈best n⌉ with the lowest score, whatever the metric to be looked at."""
    # Less a hair: 0.07 · 100 is a little more than 7 in binary.
    return runs.sort_values(["score", "run"]).iloc[: math.ceil(best * len(runs) - 1e-9)]


def check_best(best: float) -> float:
    """Return the share of the runs that is to count, or raise if it is none."""
    return check_real("best", best, low=0, high=1, low_open=True)


def check_metric(frame: pd.DataFrame, metric: str) -> str:
    """Return the metric, or raise if there is no such metric, or no run that has it."""
    check_choice("metric", metric, METRICS)
    if frame[metric].isna().all():
        raise StudyError(f"there is no {METRICS[metric]}: the data has no labels; choose the metric score")
    return metric


def choose_clients(frame: pd.DataFrame, clients: int | None) -> int | None:
    """Return `clients` if there are such runs; for None the largest number of clients per round.

    Where all runs are pooled, there is none: None.
    """
    numbers = sorted(int(number) for number in frame["clients_per_round"].dropna().unique())
    if clients is None:
        return numbers[-1] if numbers else None
    if clients not in numbers:
        found = f"runs with {', '.join(map(str, numbers))}" if numbers else "pooled runs only"
        raise StudyError(f"there are no runs with {clients} clients per round; there are {found}")
    return clients
