"""Carry out the runs of a study that are not done yet, on all cores or on a cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend

from fedkmeans.errors import StudyError
from fedkmeans.study.grid import Task, find_kept, key_of
from fedkmeans.study.measure import measure
from fedkmeans.study.plan import Plan
from fedkmeans.study.rows import load_rows
from fedkmeans.study.store import Record, Store

# Carries out a task, perhaps in another process.
Work: TypeAlias = Callable[[Task], tuple[Task, Record]]
_DIED = (
    "worker processes died, perhaps because there was not enough memory; finished runs are kept, so run it "
    "again, with fewer runs at a time"
)
# How often a worker checks that the study's process is still there.
_CHECK_S = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The run that was just finished, and how many runs are done of how many."""

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
    """Carry out the tasks whose records are not in the store, and add each record as soon as it is done.

    Parameters
    ----------
    plan : Plan
    tasks : sequence of Task
        As `wanted` returns them.
    store : Store
    n_jobs : int or None
        Runs at a time, as in joblib. None is one, or what ``joblib.parallel_config`` says, which can also
        select another backend (a Dask or Ray cluster).
    report : callable
        Called after each run.

    Returns
    -------
    n_done : int
        Number of runs carried out now.
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
    work = partial(_measured, plan, store.make_folder("clients"), os.getpid())
    left = dict.fromkeys(todo)
    n_workers = effective_n_jobs(n_jobs)
    for task, record in _carry_out(work, todo, n_jobs):
        _check_record(task, record, keys[task], digests[task.data])
        store.add(record)
        del left[task]
        clock.add(task, record.facts["seconds"])
        report(Progress(task, record, len(keys) - len(left), len(keys), clock.left(left, n_workers)))
    return len(todo)


class Clock:
    """Estimates how long runs will take from how long similar runs took."""

    def __init__(self) -> None:
        self._totals: dict[tuple[object, ...], tuple[float, int]] = {}

    @staticmethod
    def _alike(task: Task) -> list[tuple[object, ...]]:
        """Return groups of runs like this one, the most similar first."""
        exact = (task.data, task.distribution, task.algorithm, task.clients_per_round)
        return [exact, exact[:3], (task.data, task.algorithm), (task.data,), ()]

    def add(self, task: Task, seconds: float) -> None:
        """Add a finished run."""
        for group in self._alike(task):
            total, count = self._totals.get(group, (0.0, 0))
            self._totals[group] = (total + seconds, count + 1)

    def left(self, tasks: Collection[Task], n_workers: int) -> float:
        """Return the seconds that so many workers will need for these tasks."""
        expected = 0.0
        for task in tasks:
            known = (self._totals[group] for group in self._alike(task) if group in self._totals)
            total, count = next(known, (0.0, 1))
            expected += total / count
        return expected / max(1, min(n_workers, len(tasks)))


# --- checks ------------------------------------------------------------------------------------


def _check_rows(plan: Plan, todo: Sequence[Task], kept: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Raise if the rows differ from those of the finished runs; return the digests of the rows."""
    before = {task.data: kept[key]["rows"] for task, key in find_kept(plan, kept).items()}
    digests = {}
    for name in dict.fromkeys(task.data for task in todo):
        data = plan.find_data(name)
        rows = load_rows(data, plan.folder)
        if before.get(name, rows.digest) != rows.digest:
            raise StudyError(
                f"the rows of {name} are not those that the finished runs had ({rows.digest} now, "
                f"{before[name]} then); bring the old rows back, or choose another folder with --store"
            )
        if data.k > len(rows.X):
            raise StudyError(f"{name} has {len(rows.X)} rows, too few for k = {data.k} clusters; lower k")
        own = rows.clients if data.distributions[0].rule is None else None
        n_clients = float("inf") if own is None else len(np.unique(own))
        for n in (task.clients_per_round for task in todo if task.data == name):
            if n is not None and n > n_clients:
                raise StudyError(
                    f"{name} comes with {n_clients} clients, but {n} are to be asked in a round; set "
                    f"clients_per_round in the plan to {n_clients} at most"
                )
        digests[name] = rows.digest
    return digests


def _check_record(task: Task, record: Record, key: str, digest: str) -> None:
    """Raise if a worker had another weighting rule or other rows; workers read files of their own."""
    if record.key != key:
        raise StudyError(f"{task}: its weighting rule was changed while the study ran; run it again")
    if record.facts["rows"] != digest:
        raise StudyError(
            f"{task}: the rows that it had are not those that are here ({record.facts['rows']} there, "
            f"{digest} here); give all workers the same data"
        )


# --- workers -----------------------------------------------------------------------------------


def _carry_out(work: Work, tasks: Sequence[Task], n_jobs: int | None) -> Iterator[tuple[Task, Record]]:
    """Do the work with the active backend of joblib; yield each record as soon as it is done."""
    backend, _ = get_active_backend()
    if hasattr(backend, "client"):
        yield from _on_dask(work, tasks, backend.client)
    elif backend.supports_return_generator:
        how: dict[str, Any] = {"return_as": "generator_unordered", "pre_dispatch": "n_jobs"}
        try:
            with _interrupts_blocked():
                results = Parallel(n_jobs, batch_size=1, **how)(delayed(work)(task) for task in tasks)
            yield from results
        except BrokenProcessPool as error:
            raise StudyError(_DIED) from error
    else:  # such as Ray, which returns results only when a whole batch is done: small batches
        size = effective_n_jobs(n_jobs)
        for start in range(0, len(tasks), size):
            some = tasks[start : start + size]
            yield from Parallel(n_jobs, batch_size=1)(delayed(work)(task) for task in some)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start workers that Ctrl-C does not reach; this process, which ends them, gets it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which workers inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _on_dask(work: Work, tasks: Sequence[Task], client: Any) -> Iterator[tuple[Task, Record]]:
    """Do the work on a Dask cluster, also on workers that join later.

    This does not use joblib, which waits forever for the work of a lost worker.
    """
    distributed = import_module("distributed")
    futures = {client.submit(work, task, pure=False): task for task in tasks}
    try:
        for future in distributed.as_completed(list(futures)):
            task = futures.pop(future)  # the cluster then releases its copy of the result
            try:
                found = future.result()
            except distributed.KilledWorker as error:
                raise StudyError(f"{task}: {_DIED}") from error
            yield found
    finally:
        client.cancel(list(futures))


def _measured(plan: Plan, clients: Path, study: int, task: Task) -> tuple[Task, Record]:
    _end_with(study)
    return task, measure(plan, task, clients)


@cache
def _end_with(study: int) -> None:
    """End this worker soon after the study's process; workers of a cluster have another parent."""

    def watch() -> None:
        while os.getppid() == study:  # an orphan gets another parent
            time.sleep(_CHECK_S)
        os._exit(1)

    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid == study:
        threading.Thread(target=watch, daemon=True).start()
