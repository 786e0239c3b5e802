"""Carry out the runs of a study that are not done yet, on all cores or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from joblib import Parallel, delayed, effective_n_jobs

from fedkmeans.errors import StudyError
from fedkmeans.study.grid import Task, key_of
from fedkmeans.study.measure import measure
from fedkmeans.study.plan import Plan
from fedkmeans.study.rows import load_rows
from fedkmeans.study.store import Record, Store


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
    todo = [task for task in tasks if keys[task] not in kept]
    _check_rows(plan, todo, {facts["data"]: facts["rows"] for facts in kept.values()})
    clock = Clock()
    for task, key in keys.items():
        if key in kept:
            clock.add(task, kept[key]["seconds"])
    cache = store.folder / "clients"
    if todo:
        cache.mkdir(parents=True, exist_ok=True)
    work = (delayed(_measured)(plan, task, cache) for task in todo)
    parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
    left = dict.fromkeys(todo)
    n_workers = effective_n_jobs(n_jobs)
    for task, record in parallel(work):
        store.add(record)
        del left[task]
        clock.add(task, record.facts["seconds"])
        done = len(tasks) - len(left)
        report(Progress(task, record, done, len(tasks), clock.left(list(left), n_workers)))
    return len(todo)


def _measured(plan: Plan, task: Task, cache: Path) -> tuple[Task, Record]:
    return task, measure(plan, task, cache)


def _check_rows(plan: Plan, todo: Sequence[Task], kept: dict[str, str]) -> None:
    """Refuse to go on with other rows than those of the runs that are done."""
    for name in dict.fromkeys(task.data for task in todo):
        rows = load_rows(plan.find_data(name), plan.folder)
        if kept.get(name, rows.digest) != rows.digest:
            raise StudyError(
                f"the rows of {name} are not those that the finished runs had ({rows.digest} now, "
                f"{kept[name]} then); bring the old rows back, or choose another folder with --store"
            )


class Clock:
    """How long runs took, by what they have in common, to foresee how long others take."""

    def __init__(self) -> None:
        self._totals: dict[tuple[object, ...], tuple[float, int]] = {}

    @staticmethod
    def _alike(task: Task) -> list[tuple[object, ...]]:
        """Groups of runs like this one, the most alike first."""
        exact = (task.data, task.distribution, task.algorithm, task.clients_per_round)
        return [exact, exact[:3], (task.data, task.algorithm), (task.data,), ()]

    def add(self, task: Task, seconds: float) -> None:
        """Take note of a finished run."""
        for group in self._alike(task):
            total, count = self._totals.get(group, (0.0, 0))
            self._totals[group] = (total + seconds, count + 1)

    def left(self, tasks: Sequence[Task], n_workers: int) -> float:
        """Seconds until so many workers have done these, each as long as those that are most like it."""
        return sum(self._expected(task) for task in tasks) / max(1, min(n_workers, len(tasks)))

    def _expected(self, task: Task) -> float:
        total, count = next(
            (self._totals[group] for group in self._alike(task) if group in self._totals), (0.0, 1)
        )
        return total / count
