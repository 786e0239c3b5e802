"""A first look in under a minute: the paper's synthetic comparison, with pictures, from no data at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from fedkmeans._utils.seeding import derive_seed, generator
from fedkmeans._utils.typing import DataArray, FloatArray, IntArray
from fedkmeans.algorithms.state import State
from fedkmeans.client.in_process import InProcess
from fedkmeans.data import atomic_path, load_synthetic, partition
from fedkmeans.data.wording import one_line
from fedkmeans.errors import DataError
from fedkmeans.kernels.preparation import Stopwatch
from fedkmeans.metrics import external_metrics, score_per_sample
from fedkmeans.registry import find_algorithm, make
from fedkmeans.study import plots
from fedkmeans.study.paper_values import PAPER_TABLES

if TYPE_CHECKING:
    from rich.table import Table

N_CLIENTS, N_CLUSTERS = 100, 5
DISTRIBUTIONS = {"iid": "IID", "half-iid": "half-IID", "non-iid": "non-IID"}
# The clients of non-IID, but few of them are asked in a round, as on a real federation. Not in the paper.
FEW, N_ASKED = "non-iid-few", 10
SETTINGS = DISTRIBUTIONS | {FEW: f"{N_ASKED} a round"}
# The number of runs, of which the table holds the mean: many for those that take a moment and depend
# on luck, one for those that take seconds and hardly differ from run to run.
RUNS = {"k-means": 10, "last-word": 3, "ewf": 1, "dwf": 1, "kfed": 10, "fkm": 3}
RUNS_OF_FEW = 3
# Paths are drawn from five points around the middle: from k-FED's start, which is good already,
# hardly anything would be seen to move. The server's steps of EWF and DWF are six times the paper's
# (whose 0.01 the momentum makes 0.05), so that 200 rounds are enough.
_ANGLES = 2 * np.pi * (np.arange(N_CLUSTERS) / N_CLUSTERS - 0.25)
_RADIUS = 0.2
_LONG_STEPS: dict[str, Any] = {"learning_rate": 0.3, "momentum": 0.0}
_DRAWN = {"ewf": _LONG_STEPS, "dwf": _LONG_STEPS, "last-word": {}}
_ROUNDS_DRAWN = 200
_NAMES = {label: f"blob {label + 1}" for label in range(5)} | {5: "outliers"}


@dataclass(frozen=True, slots=True)
class DemoRow:
    """One algorithm in one distribution; the mean over its runs, beside what the paper reports.

    Attributes
    ----------
    distribution, algorithm : str
        As `fedkmeans.data.PARTITIONERS` and `fedkmeans.registry.ALGORITHMS` call them; `FEW` for
        non-IID with few clients a round.
    runs : int
    score, score_std, best_score : float
        Mean squared distance of all rows to their nearest centroid; its standard deviation over the
        runs (0 where there is only one) and its least value.
    accuracy, v_measure : float
    rounds, seconds : float
        Of one run.
    paper_score, paper_std : float
        Mean and standard deviation over the paper's runs; NaN for what is not in the paper.
    """

    distribution: str
    algorithm: str
    runs: int
    score: float
    score_std: float
    best_score: float
    accuracy: float
    v_measure: float
    rounds: float
    seconds: float
    paper_score: float
    paper_std: float


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo found, and where its pictures and its table are."""

    rows: tuple[DemoRow, ...]
    files: tuple[Path, ...]

    def table(self) -> pd.DataFrame:
        """Return one row for each algorithm in each distribution."""
        return pd.DataFrame(list(self.rows))

    def row(self, distribution: str, algorithm: str) -> DemoRow:
        """Return the row of that algorithm in that distribution."""
        return next(r for r in self.rows if (r.distribution, r.algorithm) == (distribution, algorithm))


@dataclass(frozen=True, slots=True)
class _Job:
    distribution: str
    algorithm: str
    runs: int
    parameters: Mapping[str, Any]
    in_table: bool = True

    @property
    def title(self) -> str:
        setting = "" if self.distribution in DISTRIBUTIONS else f"{DISTRIBUTIONS['non-iid']}, "
        return f"{setting}{SETTINGS[self.distribution]}, {find_algorithm(self.algorithm).title}"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of a job; path and movements are those of its last run."""

    row: DemoRow
    path: FloatArray  # (rounds + 1, k, 2), or (0,) for pooled k-means, which has no rounds
    movements: FloatArray  # (rounds,)


def run_demo(
    out_dir: str | os.PathLike[str],
    *,
    seed: int = 0,
    n_jobs: int = -1,
    report: Callable[[str], None] = lambda message: None,
    max_rounds: int = 1000,
) -> DemoResult:
    """Compare the algorithms on the paper's synthetic data, and save a table and pictures.

    Parameters
    ----------
    out_dir : path
        Made if it does not exist; files of the same names are replaced.
    seed : int, default=0
        The same seed gives the same table, seconds aside.
    n_jobs : int, default=-1
        Processes that work at the same time; -1 means one for each core.
    report : callable, optional
        Called with a line of text after each step.
    max_rounds : int, default=1000
        The only setting that is not the paper's, which is 10,000: on non-IID data EWF k-means goes
        on for long with ever smaller movements (with seed 0 to round 1,421, for the same four digits).

    Returns
    -------
    DemoResult
    """
    with _folder(out_dir) as out:
        return _compare(out, seed, n_jobs, report, max_rounds)


def _compare(out: Path, seed: int, n_jobs: int, report: Callable[[str], None], max_rounds: int) -> DemoResult:
    data = load_synthetic()
    jobs = _jobs(max_rounds, data.X.mean(axis=0))
    report(
        f"{len(data.X):,} rows in {N_CLUSTERS} clusters, dealt out to {N_CLIENTS} clients in "
        f"{len(DISTRIBUTIONS)} ways; {len(jobs)} comparisons to run"
    )
    _compile(data.X, data.y)
    work = (delayed(_run)(i, job, seed, data.X, data.y) for i, job in enumerate(jobs))
    outcomes: dict[int, _Outcome] = {}
    for i, outcome in Parallel(n_jobs=n_jobs, return_as="generator_unordered")(work):
        outcomes[i] = outcome
        report(f"[{len(outcomes):2}/{len(jobs)}] {_summary(jobs[i], outcome.row)}")
    done = [(job, outcomes[i]) for i, job in enumerate(jobs)]
    clients = {title: deal(name, data.X, data.y, seed, 0) for name, title in DISTRIBUTIONS.items()}
    return _saved(out, data.X, data.y, clients, done)


def _compile(X: DataArray, y: IntArray) -> None:
    """Compile what the runs need before they begin: each process would do so again, in its first run."""
    clients = deal("iid", X, y, 0, 0)
    for algorithm in ("last-word", "dwf", "fkm"):
        _fit(make(algorithm, n_clusters=N_CLUSTERS, random_state=0, max_rounds=2), X, clients)


@contextmanager
def _folder(out_dir: str | os.PathLike[str]) -> Iterator[Path]:
    """Make the folder and try whether it can be written; when all fails, leave no empty folder behind."""
    out = Path(out_dir)
    new = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            cause = error.strerror or one_line(error)
            raise DataError(f"cannot make folder {str(out)!r}: {cause}; choose another") from error
        try:
            with tempfile.TemporaryFile(dir=out):
                pass
        except OSError as error:
            cause = error.strerror or one_line(error)
            raise DataError(f"cannot write to folder {str(out)!r}: {cause}; choose another") from error
        yield out
    except BaseException:
        for folder in new:
            # One that holds something stays, and so do those around it.
            with suppress(OSError):
                folder.rmdir()
        raise


def _jobs(max_rounds: int, middle: FloatArray) -> list[_Job]:
    """List all that is to be run, the longest first, so that no core waits at the end."""
    jobs: list[_Job] = []
    for algorithm in ("ewf", "dwf", "fkm", "last-word", "kfed", "k-means"):
        default = make(algorithm).get_params().get("max_rounds")
        parameters = {} if default is None else {"max_rounds": min(default, max_rounds)}
        jobs += [_Job(name, algorithm, RUNS[algorithm], parameters) for name in reversed(DISTRIBUTIONS)]
        if not find_algorithm(algorithm).pooled:
            few = parameters | {"clients_per_round": N_ASKED}
            jobs.append(_Job(FEW, algorithm, RUNS_OF_FEW, few))
    start = middle + _RADIUS * np.column_stack([np.cos(_ANGLES), np.sin(_ANGLES)])
    drawn = {"init": start, "max_rounds": min(_ROUNDS_DRAWN, max_rounds)}
    return jobs + [_Job("non-iid", name, 1, steps | drawn, in_table=False) for name, steps in _DRAWN.items()]


def deal(distribution: str, X: DataArray, y: IntArray, seed: int, run: int) -> IntArray:
    """Return the client of each row in that run, shape (n,); each run deals anew, as in the paper."""
    distribution = "non-iid" if distribution == FEW else distribution
    return partition(distribution, X, y, N_CLIENTS, generator(seed, "deal", distribution, run))


def _run(i: int, job: _Job, seed: int, X: DataArray, y: IntArray) -> tuple[int, _Outcome]:
    """Do a job in its process; `i` comes back with the outcome, as jobs end in any order."""
    results = []
    # One thread each: the cores are busy with other jobs, and the order of sums stays the same.
    with threadpool_limits(1):
        for run in range(job.runs):
            random_state = derive_seed(seed, "run", run)
            model = make(job.algorithm, n_clusters=N_CLUSTERS, random_state=random_state, **job.parameters)
            # Dealing out takes longer than pooled k-means, which does not ask whose the rows are.
            pooled = find_algorithm(job.algorithm).pooled
            clients = None if pooled else deal(job.distribution, X, y, seed, run)
            states, seconds = _fit(model, X, clients)
            quality = external_metrics(y, model.predict(X))
            score = score_per_sample(X, model.cluster_centers_)
            results.append((score, quality["accuracy"], quality["v_measure"], model.n_iter_, seconds))
    score, accuracy, v_measure, rounds, seconds = (float(x) for x in np.mean(results, axis=0))
    paper = PAPER_TABLES["synthetic"].get((job.distribution, job.algorithm))
    row = DemoRow(
        distribution=job.distribution,
        algorithm=job.algorithm,
        runs=len(results),
        score=score,
        score_std=float(np.std([result[0] for result in results])),
        best_score=float(min(result[0] for result in results)),
        accuracy=accuracy,
        v_measure=v_measure,
        rounds=rounds,
        seconds=seconds,
        paper_score=np.nan if paper is None else paper.score.mean,
        paper_std=np.nan if paper is None else paper.score.std,
    )
    path = np.array([state.previous for state in states[:1]] + [state.centroids for state in states])
    return i, _Outcome(row, path, np.array([s.movements[-1] for s in states]))


def _fit(model: Any, X: DataArray, clients: IntArray | None) -> tuple[list[State], float]:
    """Fit, pooled where there are no clients; return the state after each round, and the seconds."""
    states: list[State] = []
    stopwatch = Stopwatch()
    if clients is None:
        model.fit(X)
    else:
        model.fit_federation(InProcess.from_arrays(X, clients), lambda state, info: states.append(state))
    return states, stopwatch.seconds()


def _summary(job: _Job, row: DemoRow) -> str:
    what = job.title if job.in_table else f"{job.title}, paths of the centroids"
    runs = "" if row.runs == 1 else f" (mean of {row.runs} runs)"
    return f"{what}: score {row.score:.4f}{runs}, {row.seconds * row.runs:.1f} s"


def _saved(
    out: Path, X: DataArray, y: IntArray, clients: Mapping[str, IntArray], done: list[tuple[_Job, _Outcome]]
) -> DemoResult:
    """Write the table and the pictures."""
    table = {(o.row.distribution, o.row.algorithm): o for job, o in done if job.in_table}
    places = ((name, algorithm) for name in SETTINGS for algorithm in RUNS)
    rows = tuple(table[place].row for place in places if place in table)
    movements = {
        title: {find_algorithm(name).title: table[key, name].movements for name in _DRAWN}
        for key, title in DISTRIBUTIONS.items()
    }
    paths = {
        f"{job.title}\n{o.row.rounds:.0f} rounds, score {o.row.score:.4f}": o.path
        for job, o in done
        if not job.in_table
    }
    # Classical k-means depends on its start: of its runs, the last need not be a good one.
    reference = make("k-means", n_clusters=N_CLUSTERS, n_init=10, random_state=0).fit(X).cluster_centers_
    figures = {
        "data.png": plots.plot_data(X, y, names=_NAMES, title="The paper's synthetic data"),
        "clients.png": plots.plot_clients(X, clients),
        "paths.png": plots.plot_paths(X, paths, reference=reference),
        "movement.png": plots.plot_movement(movements, tol=1e-8),
    }
    files = [plots.save_figure(figure, out / name) for name, figure in figures.items()]
    result = DemoResult(rows, (*files, out / "demo.csv"))
    with atomic_path(out / "demo.csv") as temporary:
        result.table().to_csv(temporary, index=False)
    return result


def render_table(result: DemoResult) -> Table:
    """Return the table for a terminal of 80 columns, ours beside the paper's."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    runs = ", ".join(f"{_short(name)} {result.row('iid', name).runs}" for name in RUNS)
    few = f"{SETTINGS[FEW]}: non-IID, {N_ASKED} clients asked in each round; {RUNS_OF_FEW} runs each"
    about = "score: mean squared distance to the nearest centroid; s: seconds a run"
    table = Table(
        title=f"The paper's synthetic data: {N_CLIENTS} clients, k = {N_CLUSTERS}",
        caption=f"{about}\nruns: {runs}\n{few}",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )
    for name in ("clients", "algorithm"):
        table.add_column(name, no_wrap=True)
    for name in ("score", "paper's score", "accuracy", "v-meas.", "rounds", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in result.rows:
        table.add_row(
            SETTINGS[row.distribution],
            _short(row.algorithm),
            f"{row.score:.4f}",
            "—" if np.isnan(row.paper_score) else f"{row.paper_score:.4f} ± {row.paper_std:.4f}",
            f"{row.accuracy:.4f}",
            f"{row.v_measure:.4f}",
            f"{row.rounds:.0f}",
            f"{row.seconds:.1f}",
            end_section=row.algorithm == list(RUNS)[-1],
        )
    return table


def _short(algorithm: str) -> str:
    return find_algorithm(algorithm).title.removesuffix(" k-means")


def explain(result: DemoResult) -> tuple[str, ...]:
    """Return a few lines that tell a newcomer what to look at, with the figures of this very run."""
    best = min(row.best_score for row in result.rows if row.algorithm == "k-means")
    dwf, ewf = (result.row("non-iid", name).score for name in ("dwf", "ewf"))
    word, few_dwf = (result.row(FEW, name) for name in ("last-word", "dwf"))
    return (
        "The score says how far the rows are from their centroids: lower is better. k-means sees all rows "
        f"in one place and comes to {best:.4f} at its best; the others leave the rows where they are, and "
        "can hope for as much.",
        f"Look at non-IID, where each client holds one small patch of the plane (clients.png): DWF, which "
        f"weighs each client by its points in a cluster, comes to {dwf:.4f}, EWF, which weighs all clients "
        f"alike, to {ewf:.4f}.",
        f"On a real federation only some clients are asked in a round ({SETTINGS[FEW]}). Then the replies of "
        f"one round say little: DWF comes to {few_dwf.score:.4f} in {few_dwf.rounds:.0f} rounds. Last-word, "
        f"which remembers what each client said last, comes to {word.score:.4f} in {word.rounds:.0f}.",
        "paths.png shows three of them from a poor start: the crosses are where k-means on the pooled data "
        "puts the centroids. movement.png shows how long each run took to come to rest; one that ends above "
        "the dotted line did not move any more, or had no rounds left.",
    )
