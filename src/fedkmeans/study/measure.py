"""One run of a study, from data to record: a pure function of plan and task, but for the time it takes."""

from __future__ import annotations

import math
import platform
import warnings
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fedkmeans._utils.seeding import derive_seed
from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.algorithms.state import RoundInfo, State
from fedkmeans.client.in_process import InProcess
from fedkmeans.client.site import SitePolicy
from fedkmeans.errors import FedKMeansError, StudyError
from fedkmeans.kernels.preparation import Stopwatch
from fedkmeans.metrics import external_metrics, score_per_sample
from fedkmeans.registry import make
from fedkmeans.study.grid import Task, distribution_of, key_of
from fedkmeans.study.plan import Plan
from fedkmeans.study.rows import StudyRows, clients_of, load_rows
from fedkmeans.study.rules import check_rule
from fedkmeans.study.store import Record

# The first runs keep how their score fell, and the very first its centroids.
N_CURVES, N_CENTROIDS = 5, 1
# Each point of a curve is so many times as many rounds from the start as the one before.
_APART = 1.25
_PACKAGES = ("fedkmeans", "numpy", "scipy", "scikit-learn", "numba")


class Curves:
    """Watches a run, each of its restarts by itself."""

    def __init__(self) -> None:
        self._of: dict[int, Curve] = {}

    def __call__(self, state: State, info: RoundInfo) -> None:
        """Take a look after a round."""
        self._of.setdefault(info.restart, Curve())(state, info)

    def best(self, model: Any) -> Curve:
        """The restart that the model is of; empty for what has no rounds."""
        return self._of.get(getattr(model, "best_restart_", 0), Curve())


class Curve:
    """Keeps centroids after some rounds, ever more seldom."""

    def __init__(self) -> None:
        self.points: dict[int, FloatArray] = {}
        self.movements: dict[int, float] = {}
        self._next = 1.0

    def __call__(self, state: State, info: RoundInfo) -> None:
        """Take a look after a round."""
        if not self.points:
            self.points[0] = state.previous
        if info.round >= self._next:
            self.points[info.round] = state.centroids
            if not math.isnan(info.movement):  # as after a single exchange, which moves from nowhere
                self.movements[info.round] = info.movement
            self._next = max(info.round + 1, info.round * _APART)


def measure(plan: Plan, task: Task, cache: Path | None = None) -> Record:
    """Carry out one run.

    Parameters
    ----------
    plan : Plan
    task : Task
    cache : path or None
        Folder for clients that were dealt out.

    Raises
    ------
    StudyError
        Says which run it was that cannot be.
    """
    try:
        # One thread each: other runs keep the other cores busy. Warnings of workers would reach nobody.
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
    key = key_of(plan, task)  # before the rule is read, which may be changed meanwhile
    data, algorithm = plan.find_data(task.data), plan.find_algorithm(task.algorithm)
    rows = load_rows(data, plan.folder)
    seed = derive_seed(plan.seed, "run", task.run)
    parameters = check_rule(algorithm.parameters, plan.folder)
    if task.clients_per_round is not None:
        parameters["clients_per_round"] = task.clients_per_round
    model = make(algorithm.algorithm, n_clusters=data.k, random_state=seed, **parameters)
    clients, watch = None, Curves()
    if not algorithm.is_pooled:
        clients = clients_of(plan, data, rows, distribution_of(data, task), task.run, cache)
    stopwatch = Stopwatch()
    _fit(model, rows, clients, plan.min_cluster_size, watch)
    seconds = stopwatch.seconds()
    curve = watch.best(model)
    facts: dict[str, Any] = {
        "data": task.data,
        "distribution": task.distribution,
        "algorithm": task.algorithm,
        "clients_per_round": task.clients_per_round,
        "run": task.run,
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
    if task.run < N_CURVES and curve.points:
        facts["curve"] = {str(r): score_per_sample(rows.X, c) for r, c in curve.points.items()}
        facts["movement"] = {str(r): moved for r, moved in curve.movements.items()}
    kept = model.cluster_centers_ if task.run < N_CENTROIDS else None
    return Record(key, facts, kept)


def _fit(model: Any, rows: StudyRows, clients: IntArray | None, min_cluster_size: int, watch: Curves) -> None:
    if clients is None:
        model.fit(rows.X)
        return
    policy = SitePolicy(min_cluster_size=min_cluster_size)
    model.fit_federation(InProcess.from_arrays(rows.X, clients, policy=policy), watch)


@cache
def versions() -> dict[str, str]:
    """Python, and the packages that the numbers come from."""
    return {"python": platform.python_version()} | {name: version(name) for name in _PACKAGES}
