"""The runs of a study, one by one, and which of them are wanted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedkmeans._utils.checks import check_integer
from fedkmeans.errors import StudyError
from fedkmeans.study.plan import DataPlan, Distribution, Plan
from fedkmeans.study.rules import rule_text

KEYS = ("data", "distribution", "algorithm")


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a study.

    Attributes
    ----------
    data, algorithm : str
        Their names in the plan.
    distribution : str or None
        None for pooled data, which nobody deals out.
    clients_per_round : int or None
        None for pooled data.
    run : int
        From 0 on. Runs of the same number share their clients and their seed.
    """

    data: str
    distribution: str | None
    algorithm: str
    clients_per_round: int | None
    run: int

    def __str__(self) -> str:
        words = [self.data, self.distribution, self.algorithm]
        if self.clients_per_round is not None:
            words.append(f"{self.clients_per_round} clients a round")
        return ", ".join(word for word in words if word is not None) + f", run {self.run}"


def tasks_of(plan: Plan) -> list[Task]:
    """All runs of the plan: the first run of everything, then the second, and so on.

    So whoever stops early has some runs of everything. Pooled data is clustered once a run, whatever
    the distributions and however many clients take part.
    """
    tasks = []
    for run in range(plan.runs):
        for data in plan.data:
            tasks += [Task(data.name, None, one.name, None, run) for one in plan.algorithms if one.is_pooled]
            tasks += [
                Task(data.name, distribution.name, algorithm.name, n, run)
                for distribution in data.distributions
                for algorithm in plan.algorithms
                if not algorithm.is_pooled
                for n in plan.clients_per_round
            ]
    return tasks


def wanted(
    plan: Plan,
    only: Sequence[str] = (),
    runs: int | None = None,
    clients: Sequence[int] = (),
) -> list[Task]:
    """The runs of the plan that are asked for.

    Parameters
    ----------
    plan : Plan
    only : sequence of str
        Such as ``algorithm=dwf,ewf`` or ``distribution=iid``; what they name must be in the plan.
        Pooled runs have no distribution, and stay when one is chosen.
    runs : int or None
        So many runs; may be more than the plan says.
    clients : sequence of int
        These numbers of clients per round only.
    """
    chosen = _choices(plan, only)
    if runs is not None:
        plan = replace(plan, runs=check_integer("runs", runs))
    for n in clients:
        if n not in plan.clients_per_round:
            raise StudyError(
                f"{n} clients a round are not in the plan; it has {_listed(plan.clients_per_round)}"
            )
    return [
        task
        for task in tasks_of(plan)
        if (not clients or task.clients_per_round is None or task.clients_per_round in clients)
        and all(getattr(task, key) in (None, *names) for key, names in chosen.items())
    ]


def _choices(plan: Plan, only: Iterable[str]) -> dict[str, set[str]]:
    known = {
        "data": [data.name for data in plan.data],
        "distribution": [one.name for data in plan.data for one in data.distributions],
        "algorithm": [algorithm.name for algorithm in plan.algorithms],
    }
    chosen: dict[str, set[str]] = {}
    for text in only:
        key, equals, names = text.partition("=")
        if not equals or key not in known:
            raise StudyError(f"only {text!r}: say one of {_listed(KEYS)}, as algorithm=dwf,ewf")
        # A name may have commas of its own.
        parts = [names] if names in known[key] else names.split(",")
        for name in parts:
            if name not in known[key]:
                raise StudyError(
                    f"only {text!r}: the plan has no {key} {name!r}; it has {_listed(known[key])}"
                )
        chosen.setdefault(key, set()).update(parts)
    return chosen


def _listed(names: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(name) for name in names))


def key_of(plan: Plan, task: Task) -> str:
    """What a record is kept under: a digest of all that the run's outcome follows from.

    Titles, the number of runs and what else is in the plan do not belong to it, so that a study can be
    extended without doing anything again.
    """
    text = json.dumps(_identity(plan, task), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def find_kept(plan: Plan, kept: Mapping[str, Mapping[str, Any]]) -> dict[Task, str]:
    """The runs of the plan that are among the records, with their keys, in the plan's order.

    A study may have been run longer than its plan says. What records call data and algorithms does not
    matter: they may have had other names in the plan when the run was done.
    """
    most = max([plan.runs, *(facts["run"] + 1 for facts in kept.values())])
    keys = {task: key_of(plan, task) for task in tasks_of(replace(plan, runs=most))}
    return {task: key for task, key in keys.items() if key in kept}


def _identity(plan: Plan, task: Task) -> Mapping[str, Any]:
    data, algorithm = plan.find_data(task.data), plan.find_algorithm(task.algorithm)
    identity: dict[str, Any] = {
        "run": task.run,
        "seed": plan.seed,
        "data": _without_names(data),
        "algorithm": algorithm.algorithm,
        "parameters": dict(algorithm.parameters),
        "rule": rule_text(algorithm.parameters, plan.folder),
    }
    if not algorithm.is_pooled:
        dealt = distribution_of(data, task)
        identity["distribution"] = None if dealt.rule is None else [dealt.rule, dealt.options]
        identity["n_clients"] = None if dealt.rule is None else plan.n_clients
        identity["clients_per_round"] = task.clients_per_round
        identity["min_cluster_size"] = plan.min_cluster_size
    return identity


def _without_names(data: DataPlan) -> Mapping[str, Any]:
    return {
        key: value
        for key, value in asdict(data).items()
        if key not in ("name", "title", "distributions", "paper")
    }


def distribution_of(data: DataPlan, task: Task) -> Distribution:
    """The way in which the run's data is dealt out."""
    return next(one for one in data.distributions if one.name == task.distribution)
