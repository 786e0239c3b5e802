"""The progress of a fit: a live bar on a terminal, plain lines from time to time elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.status import Status

from fedkmeans.algorithms.rounds import Observer
from fedkmeans.algorithms.state import RoundInfo, State
from fedkmeans.cli.text import duration

_REFRESH_S = 0.1
_FIRST_GAP_S, _LONGEST_GAP_S = 1.0, 30.0


@contextmanager
def watch_rounds(console: Console, title: str, max_rounds: int | None, quiet: bool) -> Iterator[Observer]:
    """Yield an observer for `fit_federation` that reports on `console`.

    Parameters
    ----------
    console : rich.console.Console
    title : str
        Name of the algorithm.
    max_rounds : int or None
        Rounds at most; None for an algorithm without rounds.
    quiet : bool
        Report nothing.
    """
    if quiet:
        yield lambda state, info: None
    elif not console.is_terminal:
        lines = _Lines(console, title, max_rounds)
        yield lines
        lines.end()
    elif max_rounds is None:
        with Status(f"{title} …", console=console):
            yield lambda state, info: None
    else:
        with _bar(console) as progress:
            yield _Bar(progress, title, max_rounds)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("round {task.completed:,.0f} of ≤ {task.total:,.0f}"),
        TextColumn("[cyan]{task.fields[found]}"),
        TextColumn("[dim]{task.fields[left]}"),
        console=console,
        transient=True,  # the summary follows
    )


class _Bar:
    """Moves a live bar, rarely enough to cost no time."""

    def __init__(self, progress: Progress, title: str, max_rounds: int) -> None:
        self._progress, self._max_rounds = progress, max_rounds
        self._task = progress.add_task(title, total=max_rounds, found="", left="")
        self._clock = _Clock()
        self._next = 0.0

    def __call__(self, state: State, info: RoundInfo) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _REFRESH_S
        self._progress.update(
            self._task,
            completed=info.round,
            found=_score(info) or f"movement {info.movement:.1e}",
            left=self._clock.left(info.round, self._max_rounds, "≤"),
        )


class _Lines:
    """Writes a line after the first and the last round, and at growing intervals between them."""

    def __init__(self, console: Console, title: str, max_rounds: int | None) -> None:
        self._console, self._title, self._max_rounds = console, title, max_rounds
        self._clock = _Clock()
        self._next, self._gap = 0.0, _FIRST_GAP_S
        self._unsaid: RoundInfo | None = None

    def __call__(self, state: State, info: RoundInfo) -> None:
        now = time.monotonic()
        if now < self._next:
            self._unsaid = info
            return
        if self._next:
            self._gap = min(2 * self._gap, _LONGEST_GAP_S)
        self._next = now + self._gap
        self._say(info, self._clock.left(info.round, self._max_rounds or 0))

    def end(self) -> None:
        """Report the last round, unless that is done."""
        if self._unsaid is not None:
            self._say(self._unsaid, "")

    def _say(self, info: RoundInfo, left: str) -> None:
        self._unsaid = None
        if self._max_rounds is None:
            return
        parts = (
            f"{self._title}: round {info.round:,} of at most {self._max_rounds:,}",
            _score(info),
            f"movement {info.movement:.2e}",
            left,
        )
        self._console.print(", ".join(part for part in parts if part), soft_wrap=True, markup=False)


def _score(info: RoundInfo) -> str:
    """Return the score that the server estimates; empty if it cannot."""
    # "About": over the clients that answered so far, each at the centroids that it was sent.
    return f"score about {info.estimate:.4g}" if math.isfinite(info.estimate) else ""


class _Clock:
    """Estimates from the rounds so far how long the others take at most."""

    def __init__(self) -> None:
        self._start: tuple[float, int] | None = None

    def left(self, done: int, of: int, at_most: str = "at most") -> str:
        now = time.monotonic()
        # From the first round on: finding the initial centroids takes extra time.
        start, first = self._start = self._start or (now, done)
        if done == first:
            return ""
        return f"{at_most} {duration((now - start) / (done - first) * (of - done))} left"
