"""``fedkmeans study``: run a plan and show the results; and ``fedkmeans demo``."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import typer
from joblib import parallel_config

from fedkmeans._utils.checks import check_integer
from fedkmeans.cli import console
from fedkmeans.cli.console import count, duration
from fedkmeans.cli.files import writing
from fedkmeans.cli.process import exit_code
from fedkmeans.cli.progress import Cells, watch
from fedkmeans.data import atomic_path
from fedkmeans.errors import ParameterError, StudyError
from fedkmeans.study import Plan, Progress, Store, key_of, load_plan, run_study, tasks_of, wanted
from fedkmeans.study.results import REFERENCE_METRICS, load_results

_STORES = Path("fedkmeans-studies")
_QUICK_ROUNDS = 100
# How long to wait for a cluster.
_CLUSTER_S = 10


def _open(plan: Path, store: Path | None) -> tuple[Plan, Store]:
    loaded = load_plan(plan)
    return loaded, Store(_STORES / loaded.name if store is None else store)


def _results(plan: Path, store: Path | None) -> tuple[Plan, Store, pd.DataFrame]:
    loaded, kept = _open(plan, store)
    return loaded, kept, load_results(loaded, kept)


def run_plan(
    *,
    only: list[str] | None,
    runs: int | None,
    clients: str | None,
    n_jobs: int,
    scheduler: str | None,
    quiet: bool,
    **study: Any,
) -> None:
    """Carry out the runs that are not done, and show the progress."""
    plan, store = _open(**study)
    _check_jobs(n_jobs)
    tasks = wanted(plan, only or [], runs, _numbers(clients))
    done = _count_done(plan, store, tasks)
    if not quiet:
        line = f"{console.plain(plan.title)}: {count(len(tasks), 'run')}, {done:,} done before"
        console.err().print(line, style="dim", markup=False, soft_wrap=True)
    started, noted = time.monotonic(), list[str]()
    try:
        with _cluster(scheduler), _watch(plan.name, quiet or done == len(tasks)) as show:

            def report(progress: Progress) -> None:
                noted.extend(progress.record.facts.get("notes", [])[:1])
                show(progress)

            n_jobs_here = None if scheduler is not None else n_jobs
            n_done = run_study(plan, tasks, store, n_jobs=n_jobs_here, report=report)
    except KeyboardInterrupt as stop:
        done, of = _count_done(plan, store, tasks), count(len(tasks), "run")
        console.interrupted(f"{done:,} of {of} are done and kept; the same command continues them.")
        raise typer.Exit(exit_code(stop)) from None
    took = duration(time.monotonic() - started)
    if noted:
        console.note(f"{count(len(noted), 'run')} gave a warning, the first: {noted[0]}")
    if not quiet:
        what = f"{count(n_done, 'run')} done in {took};" if n_done else "Nothing to do:"
        console.say(f"{what} all {len(tasks):,} are in {str(store.folder)!r}.")


def _check_jobs(n_jobs: int) -> None:
    if n_jobs == 0:  # joblib would raise an error of its own
        raise ParameterError("must be at least 1, or -1 for one a core; got 0", parameter="n_jobs")


def _numbers(text: str | None) -> list[int]:
    try:
        return [] if text is None else [int(number) for number in text.split(",")]
    except ValueError:
        raise ParameterError(f"must be numbers, as 5,10,100; got {text!r}", parameter="clients") from None


def _count_done(plan: Plan, store: Store, tasks: Sequence[Any]) -> int:
    keys = store.keys()
    return sum(key_of(plan, task) in keys for task in tasks)


@contextmanager
def _cluster(scheduler: str | None) -> Iterator[None]:
    """Let joblib run on a Dask cluster, if a scheduler is given."""
    if scheduler is None:
        yield
        return
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise StudyError("--scheduler needs Dask: pip install 'fedkmeans[dask]'") from error
    try:
        client = distributed.Client(scheduler, timeout=_CLUSTER_S)
    except (OSError, ValueError) as error:
        raise StudyError(f"no Dask scheduler answers at {scheduler!r}: {error}; check the address") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_CLUSTER_S)
        except TimeoutError as error:
            raise StudyError(
                f"the Dask scheduler at {scheduler!r} has no workers; start some: dask worker {scheduler}"
            ) from error
        _check_workers(client)
        with parallel_config(backend="dask"):
            yield


def _check_workers(client: Any) -> None:
    """Refuse workers that lack a package or have another version of it."""
    names = ["python", "fedkmeans", "numpy", "scipy", "sklearn", "numba"]
    found = client.get_versions(packages=names[1:])
    here = found["client"]["packages"]
    for address, worker in found["workers"].items():
        for name in names:
            there = worker["packages"][name]
            if there != here[name]:
                raise StudyError(
                    f"Dask worker {address} has {name} {there or 'not at all'}, and here is {here[name]}; "
                    "install the same versions on all workers"
                )


@contextmanager
def _watch(name: str, quiet: bool = False) -> Iterator[Callable[[Progress], None]]:
    """Show the progress; yield what to call after each run."""
    if quiet:
        yield lambda progress: None
        return
    name = console.plain(name)

    def line(progress: Progress, last: bool) -> str:
        runs, left, found = _cells(progress)[2]
        return f"{name}: {runs}, {left}; {found}"

    with watch(name, ("", "dim", "cyan"), _cells, line) as show:
        yield show


def _cells(progress: Progress) -> Cells:
    found = console.plain(f"{progress.task}: {progress.record.facts['score']:.4g}")
    runs = f"{progress.done:,} of {progress.of:,} runs"
    return progress.done, progress.of, (runs, f"about {duration(progress.seconds_left)} left", found)


def show_status(**study: Any) -> None:
    """Say how many runs are done, by data and algorithm."""
    plan, store = _open(**study)
    keys, tasks = store.keys(), tasks_of(plan)
    cells: dict[tuple[str, str, str], list[bool]] = {}
    for task in tasks:
        cell = cells.setdefault((task.data, task.distribution or "–", task.algorithm), [])
        cell.append(key_of(plan, task) in keys)
    done = sum(map(sum, cells.values()))
    console.show_grid(
        f"{plan.title}: {done:,} of {count(len(tasks), 'run')} done, in {str(store.folder)!r}",
        ["data", "distribution", "algorithm"],
        ["done", "of"],
        [[*names, f"{sum(cell):,}", f"{len(cell):,}"] for names, cell in cells.items()],
        most=200,
    )


def export_runs(*, out: Path, **study: Any) -> None:
    """Write one row per run; lists are left out."""
    plan, _, frame = _results(**study)
    more = ["reference", *REFERENCE_METRICS] if plan.reference is None else []
    with atomic_path(out) as temporary:
        # The same rows give the same file: gzip would write the current time into it.
        packed = {"method": "gzip", "mtime": 1} if out.suffix == ".gz" else None
        frame.drop(columns=["key", "versions", "curve", "movement", *more]).to_csv(
            temporary, index=False, lineterminator="\n", compression=packed
        )
    console.say(f"{count(len(frame), 'run')} written to {str(out)!r}.")


def show_table(
    *,
    metric: str,
    clients: int | None,
    best: float,
    format: str,  # noqa: A002 (the name of the option)
    out: Path | None,
    rounds: int | None,
    **study: Any,
) -> None:
    """Print a table, or write it to a file."""
    from fedkmeans.study.tables import render

    plan, _, frame = _results(**study)
    text = render(plan, frame, metric, clients, format, best, rounds)
    if out is None:
        console.out().print(text, markup=False, soft_wrap=True, end="")
        return
    with atomic_path(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    console.say(f"The table is in {str(out)!r}.")


def save_figure(
    *, out: Path, metric: list[str] | None, best: float, convergence: bool, clients: int | None, **study: Any
) -> None:
    """Draw metrics against the clients per round, or the score against the rounds, and save."""
    from fedkmeans.study.figures import draw, draw_curves
    from fedkmeans.study.plots import save_figure as save

    plan, _, frame = _results(**study)
    metrics = metric or []
    if convergence and len(metrics) > 1:
        raise ParameterError("--convergence draws one --metric: score or excess")
    figure = draw_curves(plan, frame, clients, *metrics) if convergence else draw(plan, frame, metrics, best)
    console.say(f"The figure is in {str(save(figure, out))!r}.")


def save_report(*, out: Path | None, **study: Any) -> None:
    """Write the page."""
    from fedkmeans.study.page.study import write_report

    plan, store, frame = _results(**study)
    path = store.folder / "report.html" if out is None else out
    write_report(plan, frame, store.centroids(), path)
    console.say(f"The page is {str(path)!r}; open it in a browser.")


def show_demo(*, out: Path, seed: int, n_jobs: int, quick: bool) -> None:
    """Run the demo with a progress display; show the table and what to look at."""
    from fedkmeans.study import demo

    _check_jobs(n_jobs)
    limit = _QUICK_ROUNDS if quick else None
    check_integer("--seed", seed, least=0)
    with writing(out), _watch("demo") as report:
        result = demo.run_demo(out, seed=seed, n_jobs=n_jobs, report=report, max_rounds=limit)
    for text in (demo.render_table(result), *demo.explain(result)):
        console.out().print()
        console.out().print(text, markup=False)
    console.say(f"The table and {len(result.files) - 1} pictures are in {str(out)!r}.")
