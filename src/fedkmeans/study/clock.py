"""How long a study will take."""

from __future__ import annotations

from collections.abc import Sequence

from fedkmeans.study.grid import Task


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
