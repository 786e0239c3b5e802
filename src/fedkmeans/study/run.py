"""Carry out the runs of a study that are not done yet, on all cores or on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from fedkmeans.errors import StudyError
from fedkmeans.study.clock import Clock
from fedkmeans.study.grid import Task, distribution_of, find_kept, key_of
from fedkmeans.study.plan import Plan
from fedkmeans.study.rows import load_rows
from fedkmeans.study.store import Record, Store
from fedkmeans.study.workers import carry_out


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a study is: what was just done, and how many runs are done of how many."""

    task: Task
    record: Record
    done: int
    of: int
    seconds_left: float


def run_study(
    plan: Plan,
    tasks: Sequence[Task],
    store: Store,
    *,
    n_jobs: int | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> int:
    """Carry out those tasks whose records are not in the store, and keep each record as soon as it is there.

    Parameters
    ----------
    plan : Plan
    tasks : sequence of Task
        As `wanted` gives them.
    store : Store
    n_jobs : int or None
        Runs at a time, as joblib understands it; None is one, or what ``joblib.parallel_config`` says,
        which also chooses another backend (a Dask or Ray cluster).
    report : callable
        Called after each run.

    Returns
    -------
    n_done : int
        Runs that were carried out now.
    """
    kept = store.facts()
    keys = {task: key_of(plan, task) for task in tasks}
    todo = [task for task in keys if keys[task] not in kept]
    digests = _check_rows(plan, todo, kept)
    clock = Clock()
    for task, key in keys.items():
        if key in kept:
            clock.add(task, kept[key]["seconds"])
    if not todo:
        return 0
    clients = _make_folder(store.folder.absolute() / "clients")
    work = [(plan, task, clients, os.getpid()) for task in todo]
    left = dict.fromkeys(todo)
    n_workers = effective_n_jobs(n_jobs)
    for task, record in carry_out(work, n_jobs):
        _check_record(task, record, keys[task], digests[task.data])
        store.add(record)
        del left[task]
        clock.add(task, record.facts["seconds"])
        done = len(keys) - len(left)
        report(Progress(task, record, done, len(keys), clock.left(list(left), n_workers)))
    return len(todo)


# --- what must hold ----------------------------------------------------------------------------


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(
            f"cannot make folder {str(folder)!r}: {error.strerror}; choose another place with --store"
        ) from error
    return folder


def _check_rows(plan: Plan, todo: Sequence[Task], kept: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Refuse to go on with other rows than those of the runs that are done; returns the rows' digests."""
    before = {task.data: kept[key]["rows"] for task, key in find_kept(plan, kept).items()}
    digests = {}
    for name in dict.fromkeys(task.data for task in todo):
        rows = load_rows(plan.find_data(name), plan.folder)
        if before.get(name, rows.digest) != rows.digest:
            raise StudyError(
                f"the rows of {name} are not those that the finished runs had ({rows.digest} now, "
                f"{before[name]} then); bring the old rows back, or choose another folder with --store"
            )
        k = plan.find_data(name).k
        if k > len(rows.X):
            raise StudyError(f"{name} has {len(rows.X)} rows, too few for k = {k} clusters; lower k")
        if rows.clients is not None:
            _check_clients(plan, [task for task in todo if task.data == name], len(np.unique(rows.clients)))
        digests[name] = rows.digest
    return digests


def _check_clients(plan: Plan, todo: Sequence[Task], n_clients: int) -> None:
    """Refuse to ask more clients a round than the data comes with."""
    for task in todo:
        n = task.clients_per_round
        if n is None or n <= n_clients or distribution_of(plan.find_data(task.data), task).rule is not None:
            continue
        raise StudyError(
            f"{task.data} comes with {n_clients} clients, but {n} are to be asked in a round; set "
            f"clients_per_round in the plan to {n_clients} at most"
        )


def _check_record(task: Task, record: Record, key: str, digest: str) -> None:
    """Refuse a record of something else than was asked for; workers read files of their own."""
    if record.key != key:
        raise StudyError(f"{task}: its weighting rule was changed while the study ran; run it again")
    if record.facts["rows"] != digest:
        raise StudyError(
            f"{task}: the rows that it had are not those that are here ({record.facts['rows']} there, "
            f"{digest} here); give all workers the same data"
        )
