"""What is run: the rules, and which of them on which data with how many clients and seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from benchmarks.memory_study.cases import N_CLIENTS, OWN
from fedkmeans.estimators import PAPER

DEFAULT = "last word, turns"
RANDOM = "last word, random"
DWF, EWF, FKM = "paper DWF", "paper EWF", "FKM"

# Parameters of FederatedKMeans, where they differ from its defaults.
RULES: dict[str, dict[str, Any]] = {
    DWF: PAPER,
    EWF: {**PAPER, "weighting": "equal"},
    "one round": {"memory": None},
    "forgetting 0.9": {"memory": 0.9},
    "forgetting 0.98": {"memory": 0.98},
    "forgetting 0.98, random": {"memory": 0.98, "participation": "random"},
    RANDOM: {"participation": "random"},
    DEFAULT: {},
    "last word, 5 local steps": {"max_local": 5},
    "momentum 0.3": {"momentum": 0.3},
    "momentum 0.6": {"momentum": 0.6},
}
# Last word and turns, too; these live in this study alone.
EXTRAPOLATED = {"over-relaxation 1.5": "over-relaxation", "Anderson": "anderson"}
ACCELERATED = ("momentum 0.3", "momentum 0.6", *EXTRAPOLATED)
ALL_RULES = (*RULES, *EXTRAPOLATED, FKM)

BUDGETS = (20, 50, 100, 200, 500)
MAX_ROUNDS = BUDGETS[-1]
# Runs of the default go on, to see where they end: the stopping criterion is held against that.
LONGEST = 1000
TOLERANCES = (1e-3, 1e-4, 1e-5)
DISTRIBUTIONS = ("iid", "half-iid", "non-iid")
CURVE_RULES = (DWF, "forgetting 0.98", RANDOM, DEFAULT)


@dataclass(frozen=True, slots=True)
class Task:
    """One run."""

    data: str
    distribution: str
    n: int  # clients a round
    rule: str
    seed: int

    @property
    def max_rounds(self) -> int:
        """Rounds after which the run ends in any case."""
        # Five local steps on 16,000 rows of FEMNIST take long, and what is asked of them is their score then.
        if self.rule == FKM or (self.rule in (DWF, EWF) and self.distribution == OWN):
            return 200
        return LONGEST if self.rule == DEFAULT and self.distribution != OWN else MAX_ROUNDS


def _tasks(
    data: str,
    distributions: Sequence[str],
    numbers: Sequence[int],
    rules: Sequence[str],
    seeds: Sequence[int],
) -> Iterator[Task]:
    for rule, n, seed, distribution in product(rules, numbers, seeds, distributions):
        yield Task(data, distribution, n, rule, seed)


def grid() -> list[Task]:
    """All runs of the study, the most telling first."""
    ten, five, three = range(10), range(5), range(3)
    plain = tuple(rule for rule in RULES if rule not in (EWF, RANDOM, DEFAULT, *ACCELERATED))
    last = (DEFAULT, *ACCELERATED)
    half, iid = "femnist-half-iid", "femnist-iid"
    stages = [
        _tasks("mnist-10k", DISTRIBUTIONS, [10, 5], [DEFAULT], ten),
        _tasks("synthetic", DISTRIBUTIONS, [5, 10, 100], last, five),
        _tasks("digits", DISTRIBUTIONS, [5, 10, 100], last, five),
        _tasks("mnist-10k", DISTRIBUTIONS, [10], [DWF, "forgetting 0.98"], three),
        _tasks(half, [OWN], [10], [DEFAULT, RANDOM, DWF, EWF, FKM], three),
        _tasks(half, [OWN], [10], [DEFAULT, DWF, EWF, FKM], ten),
        _tasks("mnist-10k", DISTRIBUTIONS, [10], [RANDOM], ten),
        _tasks("mnist-10k", DISTRIBUTIONS, [10], ACCELERATED, three),
        _tasks("mnist-10k", DISTRIBUTIONS, [100], [DEFAULT], five),
        _tasks("mnist-10k", DISTRIBUTIONS, [100], ACCELERATED, three),
        _tasks("synthetic", DISTRIBUTIONS, [5, 10], [RANDOM, *plain], five),
        _tasks("digits", DISTRIBUTIONS, [5, 10], [RANDOM, *plain], three),
        _tasks("mnist-10k", DISTRIBUTIONS, [5], [RANDOM], five),
        _tasks("mnist-10k", DISTRIBUTIONS, [10], plain, three),
        _tasks(
            "mnist-10k", DISTRIBUTIONS, [5], [*EXTRAPOLATED, "momentum 0.3", DWF, "forgetting 0.98"], three
        ),
        _tasks("mnist-10k", DISTRIBUTIONS, [10], [DWF], ten),
        _tasks("mnist-10k", DISTRIBUTIONS, [5], [RANDOM], ten),
        _tasks(half, [OWN], [10], [*ACCELERATED, "forgetting 0.98"], three),
        _tasks(iid, [OWN], [10], [DEFAULT, RANDOM, DWF, *EXTRAPOLATED], three),
        _tasks("mnist-10k", DISTRIBUTIONS, [10, 100, 5], ACCELERATED, five),
        _tasks("synthetic", DISTRIBUTIONS, [100], [DWF], five),
        _tasks("digits", DISTRIBUTIONS, [5, 10], [RANDOM, *plain], five),
        _tasks("digits", DISTRIBUTIONS, [100], [DWF], five),
        _tasks("mnist-10k", DISTRIBUTIONS, [10], [*plain, EWF], five),
        _tasks("mnist-10k", DISTRIBUTIONS, [5], [DWF], ten),
        _tasks("mnist-10k", DISTRIBUTIONS, [5], plain, five),
        _tasks(half, [OWN], [10], plain, three),
        _tasks(iid, [OWN], [10], [*plain, EWF, *ACCELERATED], three),
        _tasks(half, [OWN], [5, 100], [DEFAULT, RANDOM, DWF, *ACCELERATED, *plain], three),
        _tasks(iid, [OWN], [5, 100], [DEFAULT, RANDOM, DWF, *ACCELERATED, *plain], three),
    ]
    # A stage may repeat what an earlier one had.
    return list(dict.fromkeys(task for stage in stages for task in stage if _worth_while(task)))


def _worth_while(task: Task) -> bool:
    """With all clients a round the other rules are the default, or take long on many columns."""
    return task.n < N_CLIENTS or task.rule in (DEFAULT, *ACCELERATED) or task.data in ("synthetic", "digits")
