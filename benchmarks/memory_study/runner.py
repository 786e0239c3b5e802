"""Run what is not done yet, in as many processes as wanted, and write down each run as it ends."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.memory_study.acceleration import accelerate
from benchmarks.memory_study.cases import Case, prepare
from benchmarks.memory_study.grid import (
    ACCELERATED,
    BUDGETS,
    CURVE_RULES,
    DEFAULT,
    EXTRAPOLATED,
    FKM,
    MAX_ROUNDS,
    RANDOM,
    RULES,
    TOLERANCES,
    Task,
)
from fedkmeans import FederatedKMeans, estimators
from fedkmeans.algorithms.fit import find_memory
from fedkmeans.algorithms.rounds import Observer, Plan, run_rounds
from fedkmeans.algorithms.state import RoundInfo, State
from fedkmeans.algorithms.stopping import Stopping
from fedkmeans.algorithms.wf_kmeans import LocalWork
from fedkmeans.protocol import exchange

# Scoring all rows costs as much as a few rounds: often at first, then in steps of about 5 %.
SCORED = frozenset([*range(1, 21), *range(22, 51, 2), *range(55, 101, 5), *range(110, 201, 10),
                    *range(220, 501, 20), *range(550, 1001, 50)])  # fmt: skip
# For rules of which only the budgets and the curves are shown.
SCORED_SELDOM = frozenset([1, 2, 3, 4, 5, 7, 10, 14, *BUDGETS, 30, 70, 140, 300, 400])
WITHIN = (0.5, 0.1)  # percent
KEY = ("data", "distribution", "n", "rule", "seed")
FIELDS = (
    *KEY,
    "pooled",
    "pooled_steps",
    "start",
    *(f"at_{budget}" for budget in BUDGETS),
    "end",
    "rounds",
    "reason",
    "off_pooled",
    *(f"within_{limit}" for limit in WITHIN),
    *(f"own_{limit}" for limit in WITHIN),
    *(f"stop_{tol:g}_{what}" for tol in TOLERANCES for what in ("rounds", "reason", "above_end")),
    "seconds",
    "curve",
)


@dataclass
class Watch:
    """An observer that scores all rows in some rounds, and where the stopping criterion would stop.

    The tolerance of the score does not steer a run, it only ends it: one run that goes on to its end
    shows where each tolerance would have ended it.
    """

    case: Case
    scored: frozenset[int] = SCORED
    stoppings: dict[float, Stopping] = field(default_factory=dict)
    scores: dict[int, float] = field(default_factory=dict)
    stops: dict[float, tuple[int, str, float]] = field(default_factory=dict)
    last: State | None = None

    def __call__(self, state: State, info: RoundInfo) -> None:
        self.last = state
        if state.round in self.scored:
            self.score(state)
        for tol, stopping in self.stoppings.items():
            if tol not in self.stops and (reason := stopping.reason(state)) is not None:
                self.stops[tol] = (state.round, reason, self.score(state))

    def score(self, state: State) -> float:
        """Score of the centroids after this round."""
        if state.round not in self.scores:
            self.scores[state.round] = self.case.score(state.centroids)
        return self.scores[state.round]


def carry_out(task: Task, case: Case, observe: Observer, max_rounds: int) -> str:
    """Run one task and return why it ended."""
    if task.rule in EXTRAPOLATED:
        stopping = Stopping(patience=None, min_rounds=1, max_rounds=max_rounds)
        plan = Plan(task.seed, task.n, 1.0, 0.0, stopping, participation="turns")
        find_target = accelerate(find_memory("server", LocalWork(max_local=1)), EXTRAPOLATED[task.rule])
        conversation = run_rounds(
            State.start(case.start), plan, case.federation.clients, find_target, observe
        )
        return exchange.run(case.federation, conversation)[1]
    given = {"clients_per_round": task.n, "random_state": task.seed}
    given |= {"patience": None, "max_rounds": max_rounds}
    if task.rule == FKM:  # which has a start of its own
        model: Any = estimators.FKM(len(case.start), **given)
    else:
        given |= {**RULES[task.rule], **given, "init": case.start, "tol_score": 0.0}
        model = FederatedKMeans(len(case.start), **given)
    return model.fit_federation(case.federation, on_round=observe).stop_reason_


def value_at(scores: dict[int, float], budget: int, settled: bool) -> float:
    """Score after so many rounds; a settled run stays as it is, one cut short is not known."""
    if budget in scores:
        return scores[budget]
    last = max(scores)
    return scores[last] if settled and last < budget else float("nan")


def first_within(excess: dict[int, float], limit: float, above: float = 0.0) -> int | None:
    """First scored round no more than `limit` percent above, or None."""
    return next((r for r in sorted(excess) if r <= MAX_ROUNDS and excess[r] - above <= limit), None)


def measure(task: Task, cache: Path, max_rounds: int | None = None) -> dict[str, Any]:
    """Run one task and return its row; scores are in percent above pooled."""
    case = prepare(task.data, task.distribution, task.seed, cache)
    pooled = case.score(case.pooled)
    max_rounds = min(max_rounds or task.max_rounds, task.max_rounds)
    default = FederatedKMeans()
    tolerances = TOLERANCES if task.rule == DEFAULT else ()
    stoppings = {
        tol: Stopping(default.tol, default.patience, default.min_rounds, max_rounds, tol)
        for tol in tolerances
    }
    often = task.rule in (DEFAULT, RANDOM, *ACCELERATED)
    watch = Watch(case, SCORED if often else SCORED_SELDOM, stoppings)
    started = time.perf_counter()
    reason = carry_out(task, case, watch, max_rounds)
    assert watch.last is not None
    end = watch.score(watch.last)
    seconds = time.perf_counter() - started
    for tol in tolerances:
        watch.stops.setdefault(tol, (watch.last.round, reason, end))
    excess = {r: 100 * (score / pooled - 1) for r, score in watch.scores.items()}
    settled = reason != "max_rounds"
    row: dict[str, Any] = asdict(task) | {
        "pooled": pooled,
        "pooled_steps": case.pooled_steps,
        "start": 100 * (case.score(case.start) / pooled - 1),
        "end": excess[watch.last.round],
        "rounds": watch.last.round,
        "reason": reason,
        "off_pooled": float(np.abs(watch.last.centroids - case.pooled).max()),
        "seconds": round(seconds, 2),
    }
    row |= {f"at_{budget}": value_at(excess, budget, settled) for budget in BUDGETS}
    own = value_at(excess, min(MAX_ROUNDS, watch.last.round), settled)
    for limit in WITHIN:
        row[f"within_{limit}"] = first_within(excess, limit)
        row[f"own_{limit}"] = first_within(excess, limit, above=own)
    for tol, (rounds, why, score) in watch.stops.items():
        row |= {f"stop_{tol:g}_rounds": rounds, f"stop_{tol:g}_reason": why}
        row[f"stop_{tol:g}_above_end"] = 100 * (score / end - 1)
    if (task.data, task.n) == ("mnist-10k", 10) and task.rule in CURVE_RULES:
        row["curve"] = " ".join(f"{r}:{excess[r]:.4g}" for r in sorted(excess) if r <= MAX_ROUNDS)
    return {name: _short(row.get(name)) for name in FIELDS}


def _short(value: Any) -> Any:
    return f"{value:.8g}" if isinstance(value, float) else value


def finished(out: Path) -> set[Task]:
    """Tasks that have a row already."""
    if not out.exists():
        return set()
    with out.open(newline="") as file:
        return {
            Task(r["data"], r["distribution"], int(r["n"]), r["rule"], int(r["seed"]))
            for r in csv.DictReader(file)
        }


def append(out: Path, row: dict[str, Any]) -> None:
    """Write a row that is there to stay."""
    out.parent.mkdir(parents=True, exist_ok=True)
    new = not out.exists()
    with out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)
        file.flush()
        os.fsync(file.fileno())


def run(
    tasks: Iterable[Task],
    out: Path,
    cache: Path,
    *,
    workers: int = 2,
    max_rounds: int | None = None,
    minutes: float = float("inf"),
    report: Callable[[str], None] = print,
) -> int:
    """Run the tasks that `out` does not hold yet; return how many were run."""
    done = finished(out)
    todo = [task for task in tasks if task not in done]
    report(f"{len(todo)} runs to do, {len(done)} done before")
    until = time.monotonic() + 60 * minutes
    count = 0
    for row in _rows(todo, cache, workers, max_rounds, until):
        append(out, row)
        count += 1
        name = ", ".join(str(row[key]) for key in KEY)
        report(f"{count}/{len(todo)} {name}: {row['end']} % after {row['rounds']} rounds, {row['seconds']} s")
    return count


def _rows(
    todo: Sequence[Task], cache: Path, workers: int, max_rounds: int | None, until: float
) -> Iterator[dict[str, Any]]:
    if workers == 1:
        for task in todo:
            if time.monotonic() > until:
                return
            yield measure(task, cache, max_rounds)
        return
    waiting = iter(todo)
    running: set[Future[dict[str, Any]]] = set()
    # One matrix product a process: products that start threads of their own would fight for the cores.
    with ProcessPoolExecutor(workers, initializer=threadpool_limits, initargs=(1,)) as pool:
        while True:
            while len(running) < workers and time.monotonic() <= until:
                task = next(waiting, None)
                if task is None:
                    break
                running.add(pool.submit(measure, task, cache, max_rounds))
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()
