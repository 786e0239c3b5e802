"""Who carries out runs: processes on this machine, or a cluster, as joblib is told."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend

from fedkmeans.errors import StudyError
from fedkmeans.study.grid import Task
from fedkmeans.study.measure import measure
from fedkmeans.study.plan import Plan
from fedkmeans.study.store import Record

Call: TypeAlias = tuple[Plan, Task, Path, int]
_DIED = (
    "workers died while they were at it, perhaps as there was not enough memory; finished runs are kept, "
    "so run it again, with fewer runs at a time"
)
# How often a worker looks whether the study is still there.
_LOOK_S = 1.0


def carry_out(work: Sequence[Call], n_jobs: int | None) -> Iterator[tuple[Task, Record]]:
    """Do the work on whatever joblib is told to use; yields what is done as soon as it is there."""
    backend, _ = get_active_backend()
    if hasattr(backend, "client"):
        yield from _on_dask(work, backend.client)
    elif backend.supports_return_generator:
        parallel = Parallel(
            n_jobs=n_jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs"
        )
        try:
            yield from parallel(delayed(_measured)(*call) for call in work)
        except BrokenProcessPool as error:
            raise StudyError(_DIED) from error
    else:  # as with Ray: what is done is there when all is done, so there is little at a time
        size = effective_n_jobs(n_jobs)
        for start in range(0, len(work), size):
            yield from Parallel(n_jobs=n_jobs, batch_size=1)(
                delayed(_measured)(*call) for call in work[start : start + size]
            )


def _on_dask(work: Sequence[Call], client: Any) -> Iterator[tuple[Task, Record]]:
    """Do the work on a Dask cluster, also on workers that join later.

    Not through joblib, which waits for ever for what a lost worker was to do.
    """
    distributed = import_module("distributed")
    tasks = {client.submit(_measured, *call, pure=False): call[1] for call in work}
    try:
        for future in distributed.as_completed(list(tasks)):
            task = tasks.pop(future)  # and with it the cluster's copy of what was found
            try:
                found = future.result()
            except distributed.KilledWorker as error:
                raise StudyError(f"{task}: {_DIED}") from error
            yield found
    finally:
        client.cancel(list(tasks))


def _measured(plan: Plan, task: Task, clients: Path, study: int) -> tuple[Task, Record]:
    _end_with(study)
    return task, measure(plan, task, clients)


@cache
def _end_with(study: int) -> None:
    """Let a worker end soon after the process that started it, which may be killed; it would stay for long.

    Parameters
    ----------
    study : int
        Number of the study's process. Workers of a cluster have other parents, and do not end with it.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid == study:
        threading.Thread(target=_watch_parent, args=(study,), daemon=True).start()


def _watch_parent(study: int) -> None:
    while os.getppid() == study:  # an orphan gets another parent
        time.sleep(_LOOK_S)
    os._exit(1)
