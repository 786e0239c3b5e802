"""The progress of a fit and of a study: a live bar on a terminal, plain lines from time to time elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

from rich.progress import BarColumn, Progress, TextColumn

from fedkmeans.algorithms.rounds import Observer
from fedkmeans.algorithms.state import RoundInfo
from fedkmeans.cli import console
from fedkmeans.cli.console import about_round, about_score, time_left

_REFRESH_S = 0.1
_FIRST_GAP_S, _LONGEST_GAP_S = 1.0, 30.0
# How many steps are done, of how many, and three texts to show beside the bar.
Cells: TypeAlias = tuple[int, int, tuple[str, str, str]]


@contextmanager
def watch(
    title: str,
    styles: tuple[str, str, str],
    cells: Callable[[Any], Cells],
    line: Callable[[Any, bool], str],
) -> Iterator[Callable[[Any], None]]:
    """Yield a function to call after each step; `cells` describes it for a bar, whose texts have `styles`.

    `line` describes it for a line; its second argument says whether the step is the last.
    """
    if not console.err().is_terminal:
        with _lines(line) as show:
            yield show
        return
    texts = [TextColumn(f"{{task.fields[text{i}]}}", style, markup=False) for i, style in enumerate(styles)]
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), *texts)
    with Progress(*columns, console=console.err(), transient=True) as progress:  # a summary follows
        task = progress.add_task(title, total=None, text0="", text1="", text2="")
        refresh = 0.0

        def show(step: Any) -> None:
            nonlocal refresh
            if time.monotonic() >= refresh:  # rarely enough to cost no time
                refresh = time.monotonic() + _REFRESH_S
                done, of, shown = cells(step)
                fields: dict[str, Any] = {f"text{i}": text for i, text in enumerate(shown)}
                progress.update(task, completed=done, total=of, **fields)

        yield show


@contextmanager
def _lines(line: Callable[[Any, bool], str]) -> Iterator[Callable[[Any], None]]:
    """Write a line after the first and the last step, and at growing intervals between them."""
    next_line, gap, unsaid = 0.0, _FIRST_GAP_S, None

    def say(step: Any, last: bool) -> None:
        console.err().print(line(step, last), soft_wrap=True, markup=False)

    def show(step: Any) -> None:
        nonlocal next_line, gap, unsaid
        now = time.monotonic()
        if now < next_line:
            unsaid = step
            return
        gap = min(2 * gap, _LONGEST_GAP_S) if next_line else gap
        next_line, unsaid = now + gap, None
        say(step, False)

    yield show
    if unsaid is not None:
        say(unsaid, True)


@contextmanager
def watch_rounds(title: str, max_rounds: int | None, quiet: bool) -> Iterator[Observer]:
    """Yield an observer for `fit_federation`; without `max_rounds` the algorithm has no rounds to report."""
    if quiet or max_rounds is None:
        is_shown = console.err().is_terminal and not quiet
        with console.err().status(f"{title} …") if is_shown else nullcontext():
            yield lambda state, info: None
    else:
        rounds = _Rounds(title, max_rounds)
        with watch(title, ("", "cyan", "dim"), rounds.cells, rounds.line) as show:
            yield lambda state, info: show(info)


class _Rounds:
    """Describes rounds, with the time that the others take at most."""

    def __init__(self, title: str, max_rounds: int) -> None:
        self._title, self._of = title, max_rounds
        self._start: tuple[float, int] | None = None

    def cells(self, info: RoundInfo) -> Cells:
        found = about_score(info.estimate) or f"movement {info.movement:.1e}"
        return info.round, self._of, (f"round {info.round:,} of ≤ {self._of:,}", found, self._left("≤", info))

    def line(self, info: RoundInfo, last: bool) -> str:
        left = "" if last else self._left("at most", info)
        return f"{self._title}: {about_round(info.round, self._of, info.estimate, info.movement, left)}"

    def _left(self, at_most: str, info: RoundInfo) -> str:
        now = time.monotonic()
        # From the first round on: finding the initial centroids takes extra time.
        start, first = self._start = self._start or (now, info.round)
        return time_left(at_most, now - start, info.round - first, self._of - info.round)
