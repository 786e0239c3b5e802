"""One run of a study, from data to record; except for its time, it depends only on plan and task."""

from __future__ import annotations

import math
import platform
import warnings
from collections import defaultdict
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fedkmeans._utils.seeding import derive_seed
from fedkmeans._utils.typing import FloatArray
from fedkmeans.algorithms.state import RoundInfo, State
from fedkmeans.client.in_process import InProcess
from fedkmeans.client.site import SitePolicy
from fedkmeans.errors import FedKMeansError, StudyError
from fedkmeans.kernels.preparation import Stopwatch
from fedkmeans.metrics import external_metrics, score_per_sample
from fedkmeans.registry import make
from fedkmeans.study.grid import Task, key_of
from fedkmeans.study.plan import Plan, check_rule
from fedkmeans.study.rows import clients_of, load_rows
from fedkmeans.study.store import Record

# Ratio of the rounds of successive points of a curve.
_APART = 1.25
_PACKAGES = ("fedkmeans", "numpy", "scipy", "scikit-learn", "numba")


class Curve:
    """Records centroids after some rounds, at growing intervals, and after the last one."""

    def __init__(self) -> None:
        self.points: dict[int, FloatArray] = {}
        self.movements: dict[int, float] = {}
        self._next, self._last = 1.0, 0

    def __call__(self, state: State, info: RoundInfo) -> None:
        """Record a round."""
        if not self.points:
            self.points[0] = state.previous
        elif self._last < self._next:  # the latest round is replaced until one is due
            self.points.pop(self._last)
            self.movements.pop(self._last, None)
        else:
            self._next = max(self._last + 1, self._last * _APART)
        self._last = info.round
        self.points[info.round] = state.centroids
        if not math.isnan(info.movement):  # the single exchange of a one-shot algorithm has none
            self.movements[info.round] = info.movement


def measure(plan: Plan, task: Task, cache: Path | None = None) -> Record:
    """Carry out one run.

    Parameters
    ----------
    plan : Plan
    task : Task
    cache : path or None
        Folder in which the clients of each row are kept.

    Raises
    ------
    StudyError
        Names the run that failed.
    """
    try:
        # One thread each, as other runs use the other cores. Warnings of workers would not be seen.
        with threadpool_limits(1), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            record = _measure(plan, task, cache)
    except FedKMeansError as error:
        raise StudyError(f"{task}: {error}") from error
    except Exception as error:
        error.add_note(f"This was in the run {task}.")
        raise
    notes = [str(one.message) for one in told if issubclass(one.category, UserWarning | RuntimeWarning)]
    return replace(record, facts={**record.facts, "notes": list(dict.fromkeys(notes))}) if notes else record


def _measure(plan: Plan, task: Task, cache: Path | None) -> Record:
    key = key_of(plan, task)  # before the rule is read, as its file may change
    data, algorithm = plan.find_data(task.data), plan.find_algorithm(task.algorithm)
    rows = load_rows(data, plan.folder)
    seed = derive_seed(plan.seed, "run", task.run)
    parameters = check_rule(algorithm.parameters, plan.folder)
    if task.clients_per_round is not None:
        parameters["clients_per_round"] = task.clients_per_round
    model = make(algorithm.algorithm, n_clusters=data.k, random_state=seed, **parameters)
    curves: defaultdict[int, Curve] = defaultdict(Curve)  # of each restart
    if not algorithm.is_pooled:
        clients = clients_of(plan, data, rows, data.find_distribution(task.distribution), task.run, cache)
    stopwatch = Stopwatch()
    if algorithm.is_pooled:
        model.fit(rows.X)
    else:
        policy = SitePolicy(min_cluster_size=plan.min_cluster_size)
        federation = InProcess.from_arrays(rows.X, clients, policy=policy)
        model.fit_federation(federation, lambda state, info: curves[info.restart](state, info))
    seconds = stopwatch.seconds()
    curve = curves[getattr(model, "best_restart_", 0)]
    facts: dict[str, Any] = {
        **asdict(task),
        "seed": seed,
        "parameters": {name: str(value) for name, value in algorithm.parameters.items()},
        "score": score_per_sample(rows.X, model.cluster_centers_),
        "rounds": int(model.n_iter_),
        "stop_reason": model.stop_reason_,
        "seconds": round(seconds, 3),
        "rows": rows.digest,
        "versions": versions(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if rows.y is not None:
        facts |= external_metrics(rows.y, model.predict(rows.X))
    if task.run < plan.curves and curve.points:
        facts["curve"] = {str(r): score_per_sample(rows.X, c) for r, c in curve.points.items()}
        facts["movement"] = {str(r): moved for r, moved in curve.movements.items()}
    return Record(key, facts, model.cluster_centers_ if task.run == 0 else None)


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that compute the numbers."""
    return {"python": platform.python_version()} | {name: version(name) for name in _PACKAGES}
