"""A first look in under a minute: the plan ``demo.toml`` as a table, with pictures; needs no data."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fedkmeans._utils.seeding import derive_seed
from fedkmeans._utils.typing import DataArray, FloatArray, IntArray
from fedkmeans.algorithms.state import State
from fedkmeans.client.in_process import InProcess
from fedkmeans.data import atomic_path
from fedkmeans.data.wording import one_line
from fedkmeans.errors import DataError
from fedkmeans.metrics import score_per_sample
from fedkmeans.registry import find_algorithm, make
from fedkmeans.study import plots
from fedkmeans.study.grid import Task, tasks_of
from fedkmeans.study.measure import measure
from fedkmeans.study.paper_values import NO_VALUE, PAPER_VALUES
from fedkmeans.study.parse import load_plan
from fedkmeans.study.plan import Plan
from fedkmeans.study.results import TITLES, load_results, runs_by_cell
from fedkmeans.study.rows import clients_of, load_rows
from fedkmeans.study.run import Progress, run_study
from fedkmeans.study.store import Store

_PLAN = Path(__file__).with_name("demo.toml")
# Non-IID with few clients per round, as in a real federation. Not in the paper.
FEW, N_ASKED = "non-iid-few", 10
SETTINGS = TITLES | {FEW: f"{N_ASKED} per round"}
# Number of runs: many for algorithms that are fast and depend on chance, one for those that take seconds
# and hardly differ between runs, which are started first, so that no core is idle at the end.
RUNS = {"k-means": 10, "last-word": 3, "ewf": 1, "dwf": 1, "kfed": 10, "fkm": 3}
RUNS_OF_FEW = 3
# Paths start from points around the middle: from the start of k-FED, which is good already, centroids
# hardly move. EWF and DWF take steps six times as long as in the paper (where 0.01 with the momentum
# amounts to 0.05), so that 200 rounds are enough.
_RADIUS = 0.2
_LONG_STEPS: dict[str, Any] = {"learning_rate": 0.3, "momentum": 0.0}
_DRAWN = {"ewf": _LONG_STEPS, "dwf": _LONG_STEPS, "last-word": {}}
_ROUNDS_DRAWN = 200
_NAMES = {label: f"blob {label + 1}" for label in range(5)} | {5: "outliers"}


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The table of the demo, and its files.

    Attributes
    ----------
    rows : DataFrame
        One row for each setting and algorithm: ``distribution`` (a key of `SETTINGS`), ``algorithm``,
        ``runs``; mean ``score`` over the runs, its standard deviation ``score_std`` (0 for one run) and
        ``best_score``; means of ``accuracy``, ``v_measure``, ``rounds`` and ``seconds``; ``paper_score``
        and ``paper_std``, NaN where the paper has no such value.
    files : tuple of pathlib.Path
    """

    rows: pd.DataFrame
    files: tuple[Path, ...]

    def row(self, distribution: str, algorithm: str) -> Any:
        """Return the row of that algorithm in that setting, with the columns as attributes."""
        place = (distribution, algorithm)
        return next(r for r in self.rows.itertuples() if (r.distribution, r.algorithm) == place)


def run_demo(
    out_dir: str | os.PathLike[str],
    *,
    seed: int = 0,
    n_jobs: int = -1,
    report: Callable[[Progress], None] = lambda progress: None,
    max_rounds: int | None = None,
) -> DemoResult:
    """Compare the algorithms on the synthetic data of the paper, and save a table and pictures.

    Parameters
    ----------
    out_dir : path
        Created if it does not exist; files of the same names are replaced.
    seed : int, default=0
        The same seed gives the same table, except for the seconds.
    n_jobs : int, default=-1
        Number of processes; -1 means one per core.
    report : callable, optional
        Called after each run.
    max_rounds : int or None
        Stop all runs after so many rounds; None for the limits of the plan.
    """
    plan = load_plan(_PLAN)
    algorithms = []
    for one in plan.algorithms:
        own = make(one.algorithm, **one.parameters).get_params().get("max_rounds")
        limit = {} if own is None or max_rounds is None else {"max_rounds": min(own, max_rounds)}
        algorithms.append(replace(one, parameters={**one.parameters, **limit}))
    plan = replace(plan, seed=seed, algorithms=tuple(algorithms))
    with _folder(out_dir) as out, tempfile.TemporaryDirectory() as folder:
        return _compare(out, plan, Store(folder), n_jobs, report)


@contextmanager
def _folder(out_dir: str | os.PathLike[str]) -> Iterator[Path]:
    """Create the folder and check that it is writable; after an error, remove it if it is new and empty."""
    out = Path(out_dir)
    new = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        what = "make folder"
        try:
            out.mkdir(parents=True, exist_ok=True)
            what = "write to folder"
            with tempfile.TemporaryFile(dir=out):
                pass
        except OSError as error:
            cause = error.strerror or one_line(error)
            raise DataError(f"cannot {what} {str(out)!r}: {cause}; choose another") from error
        yield out
    except BaseException:
        for folder in new:
            with suppress(OSError):  # a folder that is not empty stays
                folder.rmdir()
        raise


def _compare(
    out: Path, plan: Plan, store: Store, n_jobs: int, report: Callable[[Progress], None]
) -> DemoResult:
    (data,) = plan.data
    rows = load_rows(data, plan.folder)
    assert rows.y is not None
    tasks = [task for task in tasks_of(plan) if task.run < _runs(task)]
    tasks.sort(key=lambda task: RUNS[task.algorithm])
    for name in ("last-word", "dwf", "fkm"):  # compile now: else each process would do so in its first run
        two_rounds = replace(plan.find_algorithm(name), parameters={"max_rounds": 2})
        measure(replace(plan, algorithms=(two_rounds,)), Task("synthetic", "iid", name, plan.n_clients, 0))
    run_study(plan, tasks, store, n_jobs=n_jobs, report=report)
    frame = load_results(plan, store)
    clients = {
        TITLES[one.name]: clients_of(plan, data, rows, one, 0, store.folder / "clients")
        for one in data.distributions
    }
    # Classical k-means depends on its start: the best of ten.
    reference = make("k-means", n_clusters=data.k, n_init=10, random_state=0).fit(rows.X).cluster_centers_
    figures = {
        "data.png": plots.plot_data(rows.X, rows.y, names=_NAMES, title="The paper's synthetic data"),
        "clients.png": plots.plot_clients(rows.X, clients),
        "paths.png": plots.plot_paths(rows.X, _paths(plan, rows.X, clients["non-IID"]), reference=reference),
        "movement.png": plots.plot_movement(_movements(frame), tol=1e-8),
    }
    files = [plots.save_figure(figure, out / name) for name, figure in figures.items()]
    result = DemoResult(_table(plan, frame), (*files, out / "demo.csv"))
    with atomic_path(out / "demo.csv") as temporary:
        result.rows.to_csv(temporary, index=False)
    return result


def _runs(task: Task) -> int:
    if task.clients_per_round == N_ASKED:
        return RUNS_OF_FEW if task.distribution == "non-iid" else 0
    return RUNS[task.algorithm]


def _table(plan: Plan, frame: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for setting in SETTINGS:
        distribution, asked = ("non-iid", N_ASKED) if setting == FEW else (setting, plan.n_clients)
        for (_, where, algorithm), runs in runs_by_cell(plan, frame):
            runs = runs[runs["clients_per_round"].fillna(plan.n_clients) == asked]
            if where != distribution or not len(runs):
                continue
            scores = runs["score"].to_numpy()
            paper = PAPER_VALUES.get(("synthetic", setting, algorithm, "score"), NO_VALUE)
            rows.append(
                {
                    "distribution": setting,
                    "algorithm": algorithm,
                    "runs": len(runs),
                    "score": scores.mean(),
                    "score_std": scores.std(),
                    "best_score": scores.min(),
                    **{name: runs[name].mean() for name in ("accuracy", "v_measure", "rounds", "seconds")},
                    "paper_score": paper[0],
                    "paper_std": paper[2],
                }
            )
    return pd.DataFrame(rows)


def _movements(frame: pd.DataFrame) -> dict[str, dict[str, FloatArray]]:
    """Return the movements of the last run with all clients; NaN in rounds that were not recorded."""
    movements: dict[str, dict[str, FloatArray]] = {title: {} for title in TITLES.values()}
    frame = frame[frame["clients_per_round"] > N_ASKED].set_index(["distribution", "algorithm"])
    for (name, title), algorithm in itertools.product(TITLES.items(), _DRAWN):
        run = frame.loc[[(name, algorithm)]].iloc[-1]
        moved = np.full(run["rounds"], np.nan)
        moved[[int(number) - 1 for number in run["movement"]]] = list(run["movement"].values())
        movements[title][find_algorithm(algorithm).title] = moved
    return movements


def _paths(plan: Plan, X: DataArray, clients: IntArray) -> dict[str, FloatArray]:
    """Return the centroids before the first round and after each, shape (rounds + 1, k, 2), of some runs."""
    k, seed = plan.data[0].k, derive_seed(plan.seed, "run", 0)
    angles = 2 * np.pi * (np.arange(k) / k - 0.25)
    start = X.mean(axis=0) + _RADIUS * np.column_stack([np.cos(angles), np.sin(angles)])
    paths = {}
    for name, steps in _DRAWN.items():
        limit = min(_ROUNDS_DRAWN, plan.find_algorithm(name).parameters.get("max_rounds", _ROUNDS_DRAWN))
        model = make(name, n_clusters=k, random_state=seed, init=start, max_rounds=limit, **steps)
        states: list[State] = []
        with threadpool_limits(1):  # which fixes the order of sums
            model.fit_federation(
                InProcess.from_arrays(X, clients), lambda state, _, to=states: to.append(state)
            )
        score = score_per_sample(X, model.cluster_centers_)
        title = f"{TITLES['non-iid']}, {find_algorithm(name).title}"
        paths[f"{title}\n{model.n_iter_} rounds, score {score:.4f}"] = np.array(
            [states[0].previous, *(state.centroids for state in states)]
        )
    return paths


def render_table(result: DemoResult) -> Table:
    """Return the table for a terminal of 80 columns."""
    runs = ", ".join(f"{_short(name)} {result.row('iid', name).runs}" for name in RUNS)
    few = f"{SETTINGS[FEW]}: non-IID, {N_ASKED} clients asked in each round; {RUNS_OF_FEW} runs each"
    about = "score: mean squared distance to the nearest centroid; s: seconds per run"
    table = Table(
        title=load_plan(_PLAN).title,
        caption=f"{about}\nruns: {runs}\n{few}",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for name in ("clients", "algorithm", "score", "paper's score", "accuracy", "v-meas.", "rounds", "s"):
        table.add_column(name, justify="left" if name in ("clients", "algorithm") else "right", no_wrap=True)
    for row in result.rows.to_dict("records"):
        paper = f"{row['paper_score']:.4f} ± {row['paper_std']:.4f}"
        table.add_row(
            SETTINGS[row["distribution"]],
            _short(row["algorithm"]),
            f"{row['score']:.4f}",
            "—" if np.isnan(row["paper_score"]) else paper,
            *(f"{row[name]:.4f}" for name in ("accuracy", "v_measure")),
            f"{row['rounds']:.0f}",
            f"{row['seconds']:.{1 if row['seconds'] < 9.95 else 0}f}",  # there is room for three letters
            end_section=row["algorithm"] == list(RUNS)[-1],
        )
    return table


def _short(algorithm: str) -> str:
    return find_algorithm(algorithm).title.removesuffix(" k-means")


def explain(result: DemoResult) -> tuple[str, ...]:
    """Return a few paragraphs that tell a newcomer what to look at, with the numbers of this run."""
    best = result.rows.loc[result.rows["algorithm"] == "k-means", "best_score"].min()
    dwf, ewf = (result.row("non-iid", name).score for name in ("dwf", "ewf"))
    word, few_dwf = (result.row(FEW, name) for name in ("last-word", "dwf"))
    return (
        "The score says how far the rows are from their centroids: lower is better. k-means has all rows in "
        f"one place and reaches {best:.4f} at its best. The other algorithms leave the rows at the clients "
        "and can reach the same.",
        "Look at non-IID, where each client has one small patch of the plane (clients.png): DWF, which "
        f"weights each client by its points in a cluster, reaches {dwf:.4f}; EWF, which weights all clients "
        f"equally, reaches {ewf:.4f}.",
        f"In a real federation only some clients take part in a round ({SETTINGS[FEW]}). The replies of one "
        f"round then say little: DWF reaches {few_dwf.score:.4f} in {few_dwf.rounds:.0f} rounds. Last-word, "
        f"which remembers the latest reply of each client, reaches {word.score:.4f} in {word.rounds:.0f}.",
        "paths.png shows three algorithms from a poor start; the crosses are the centroids of k-means on the "
        "pooled data. movement.png shows how long each run took to settle. A run that ends above the dotted "
        "line did not move any more, or reached its last round.",
    )
