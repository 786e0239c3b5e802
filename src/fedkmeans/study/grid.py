"""The runs of a study, their selection, and the keys of their records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedkmeans._utils.checks import check_integer
from fedkmeans.errors import StudyError
from fedkmeans.study.plan import Plan, rule_text


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a study.

    Attributes
    ----------
    data, algorithm : str
        Names in the plan.
    distribution : str or None
        None for pooled data.
    clients_per_round : int or None
        None for pooled data.
    run : int
        From 0. Runs with the same number share their clients and their seed.
    """

    data: str
    distribution: str | None
    algorithm: str
    clients_per_round: int | None
    run: int

    def __str__(self) -> str:
        asked = f"{self.clients_per_round} clients per round" if self.clients_per_round else None
        words = [self.data, self.distribution, self.algorithm, asked, f"run {self.run}"]
        return ", ".join(word for word in words if word is not None)


def tasks_of(plan: Plan) -> list[Task]:
    """Return all runs of the plan: the first run of everything, then the second, and so on.

    A study that is stopped early therefore has some runs of everything. Pooled data is clustered once
    per run, for all distributions and numbers of clients.
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
    plan: Plan, only: Sequence[str] = (), runs: int | None = None, clients: Sequence[int] = ()
) -> list[Task]:
    """Return the runs of the plan that are asked for.

    Parameters
    ----------
    plan : Plan
    only : sequence of str
        Such as ``algorithm=dwf,ewf`` or ``distribution=iid``, with names of the plan. Pooled runs have no
        distribution and are always included.
    runs : int or None
        Number of runs; may be more than the plan says.
    clients : sequence of int
        Only these numbers of clients per round.
    """
    known = plan.names()
    chosen: dict[str, set[Any]] = {"clients_per_round": set(clients)} if clients else {}
    for text in only:
        key, equals, names = text.partition("=")
        if not equals or key not in known:
            raise StudyError(f"only {text!r}: say one of {', '.join(known)}, as algorithm=dwf,ewf")
        # A name may contain commas.
        parts = [names] if names in known[key] else names.split(",")
        for name in parts:
            if name not in known[key]:
                raise StudyError(
                    f"only {text!r}: the plan has no {key} {name!r}; it has {', '.join(known[key])}"
                )
        chosen.setdefault(key, set()).update(parts)
    if runs is not None:
        plan = replace(plan, runs=check_integer("runs", runs))
    for n in clients:
        if n not in plan.clients_per_round:
            numbers = ", ".join(map(str, plan.clients_per_round))
            raise StudyError(f"{n} clients per round are not in the plan; it has {numbers}")
    return [
        task
        for task in tasks_of(plan)
        if all(getattr(task, key) in (None, *names) for key, names in chosen.items())
    ]


def key_of(plan: Plan, task: Task) -> str:
    """Return the key of a run's record: a digest of all that determines its outcome.

    It does not depend on titles, the number of runs and other entries of the plan, so that a study can
    be extended without repeating any run.
    """
    data, algorithm = plan.find_data(task.data), plan.find_algorithm(task.algorithm)
    names = ("name", "title", "distributions", "paper")
    identity: dict[str, Any] = {
        "run": task.run,
        "seed": plan.seed,
        "data": {key: value for key, value in asdict(data).items() if key not in names},
        "algorithm": algorithm.algorithm,
        "parameters": dict(algorithm.parameters),
        "rule": rule_text(algorithm.parameters, plan.folder),
    }
    if not algorithm.is_pooled:
        how = data.find_distribution(task.distribution)
        identity["distribution"] = None if how.rule is None else [how.rule, how.options]
        identity["n_clients"] = None if how.rule is None else plan.n_clients
        identity["clients_per_round"] = task.clients_per_round
        identity["min_cluster_size"] = plan.min_cluster_size
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def find_kept(plan: Plan, kept: Mapping[str, Mapping[str, Any]]) -> dict[Task, str]:
    """Return the runs of the plan that are among the records, with their keys, in the plan's order.

    There may be more runs than the plan says. The names of data and algorithms in the records do not
    matter, as they may have changed in the plan since.
    """
    most = max([plan.runs, *(facts["run"] + 1 for facts in kept.values())])
    keys = {task: key_of(plan, task) for task in tasks_of(replace(plan, runs=most))}
    return {task: key for task, key in keys.items() if key in kept}
