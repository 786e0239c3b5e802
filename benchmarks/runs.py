"""Whole runs: DWF and EWF k-means compared with the paper's loop, and the default with no memory.

Our runs are timed as a whole, including federation and final score. A run of the loop takes minutes, but
all its rounds take about the same time. Therefore three parts of the run are timed, at the beginning, in
the middle and at the end. Each starts from the state of our run and must reach its later state.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.cluster import KMeans

from benchmarks import paper_loop
from benchmarks.report import Row, Table, duration, field, times
from benchmarks.timing import Settings, faster_threads, limited, ratios, seconds, spread
from fedkmeans import FederatedKMeans, InProcess
from fedkmeans.algorithms.initialization import INITIALIZERS
from fedkmeans.data import load_dataset, partition
from fedkmeans.errors import DataError
from fedkmeans.protocol.exchange import run

N_CLIENTS, FEW, SEED = 100, 10, 0
# Repeats of the short runs, with few clients per round.
FEW_REPEATS = 5
# Without memory first, then the kinds of memory.
MEMORIES = (None, "server", "client", 0.98)
# Rounds before the timed ones, in which the code for later rounds is compiled or loaded.
WARM_ROUNDS = 5
# Largest difference of centroids. The loop computes in the precision of the data.
TOLERANCE = {"float64": 1e-9, "float32": 1e-3}


@dataclass(frozen=True)
class Case:
    """A data set, its partition (None: it has clients), k, and the number of repeats."""

    data: str
    k: int
    distribution: str | None
    repeats: int


CASES = (
    Case("synthetic", 5, "half-iid", 3),
    Case("mnist-10k", 20, "half-iid", 3),
    Case("femnist-iid", 64, None, 2),
    Case("mnist", 20, "half-iid", 2),
)


@dataclass(frozen=True)
class Variant:
    """One way to run a case."""

    weighting: str
    clients_per_round: int | None
    n_threads: int
    dtype: str = "float64"


VARIANTS = [
    Variant(weighting, clients_per_round, n_threads)
    for n_threads in (1, 2)
    for weighting in ("dynamic", "equal")
    for clients_per_round in (None, FEW)
]
EXTRA = {"mnist-10k": [Variant("dynamic", None, 1, "float32")]}

TABLES = {
    "runs": Table(
        "Whole runs against the paper's loop",
        "300 rounds, k = 5, 20 and 64 for synthetic, MNIST and FEMNIST. Both sides read the same array in "
        "double precision (one line says float32), start from k-FED's centroids, ask the same clients, and "
        "agree to 1e-9 (float32: 1e-3, because the loop then rounds its means). Ours: whole runs on a new "
        "federation, including everything except initialization and compilation. The loop: three parts of "
        "the run, 15 rounds in total (45 with ten clients per round); of two threads it uses one if that is "
        "faster. Times are per round. Ratios: median (smallest–largest) over alternating repeats.",
        (
            ("data", lambda row: row["data"] + (", float32" if row["dtype"] == "float32" else "")),
            ("weights", field("weighting")),
            ("clients", lambda row: str(row["clients_per_round"] or "all")),
            ("threads", field("n_threads")),
            ("ours", duration("ours")),
            ("loop", duration("theirs")),
            ("faster", times("ratio")),
            ("apart by", field("difference", "{:.0e}")),
        ),
    ),
    "memory": Table(
        "The default against no memory, and against scikit-learn",
        "MNIST-10k in double precision on 100 clients, k = 20, one local step from k-FED's centroids, 60 "
        "rounds, including everything except initialization and compilation. Both sides alternate. 'Slower' "
        "compares the smallest time per round with that of `memory=None` (the bar is 1.3) or, for all "
        "clients, with that of an iteration of scikit-learn's Lloyd on the pooled rows with as many threads "
        "(the bar is 1).",
        (
            ("clients", lambda row: str(row["clients_per_round"] or "all")),
            ("threads", field("n_threads")),
            ("memory", field("memory")),
            ("per round", duration("ours")),
            ("without memory", duration("without")),
            ("slower", field("ratio", "{:.2f}×")),
            ("scikit-learn", duration("sklearn")),
            ("slower", field("ratio_sklearn", "{:.2f}×")),
        ),
    ),
}


def measure(settings: Settings) -> Iterator[Row]:
    for case in CASES[:-1] if settings.quick else CASES:
        try:
            X, clients, start = _prepare(case, settings)
        except DataError as error:
            print(f"\n{case.data} is left out: {error}\n")
            continue
        variants = [VARIANTS[0], VARIANTS[-1]] if settings.quick else VARIANTS
        for variant in variants + EXTRA.get(case.data, []):
            data = X.astype(variant.dtype, copy=False)
            yield {"table": "runs", **_compare(case, variant, data, clients, start, settings)}
        if case.data == "mnist-10k":
            for n_threads, few in ((1, None), (1, FEW), (2, None)):
                for row in _compare_memory(X, clients, start, n_threads, few, settings):
                    yield {"table": "memory", **row}


def _prepare(case: Case, settings: Settings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    data = load_dataset(case.data)
    X, clients = data.X.astype(np.float64), data.clients
    if case.distribution is not None:
        clients = partition(case.distribution, data.X, data.y, N_CLIENTS, np.random.default_rng(SEED))
    if settings.quick:
        return X, clients, X[np.random.default_rng(SEED).choice(len(X), size=case.k, replace=False)]
    federation = InProcess.from_arrays(X, clients, n_jobs=2, kernel=settings.kernel)
    kfed = INITIALIZERS["kfed"](case.k, X.shape[1], federation.clients, SEED)
    return X, clients, run(federation, kfed)


def timed_parts(n_rounds: int, length: int) -> list[int]:
    """First rounds, counted from 0, of three parts: at the beginning, in the middle and at the end."""
    return [0, (n_rounds - length) // 2, n_rounds - length]


def _compare_memory(X, clients, start, n_threads, few, settings) -> Iterator[Row]:
    """Compare rounds with each kind of memory with rounds without it and with scikit-learn's iterations."""
    n_rounds, repeats = (6, 1) if settings.quick else (60, 5)

    def ours(memory, n=n_rounds):
        federation = InProcess.from_arrays(X, clients, n_jobs=n_threads, kernel=settings.kernel)
        model = FederatedKMeans(
            len(start),
            memory=memory,
            clients_per_round=few,
            init=start,
            min_rounds=n,
            max_rounds=n,
            tol=0,
            tol_score=0,
            random_state=SEED,
        )
        model.fit_federation(federation)

    def theirs():
        KMeans(len(start), init=start, n_init=1, max_iter=n_rounds, tol=0).fit(X)

    taken: dict[str, list[float]] = {}
    with limited(n_threads), warnings.catch_warnings(action="ignore"):
        n_iter = KMeans(len(start), init=start, n_init=1, max_iter=n_rounds, tol=0).fit(X).n_iter_
        for memory in MEMORIES:
            ours(memory, WARM_ROUNDS)
        for _ in range(repeats):
            for memory in MEMORIES:
                taken.setdefault(str(memory), []).append(seconds(partial(ours, memory))[0] / n_rounds)
            taken.setdefault("sklearn", []).append(seconds(theirs)[0] / n_iter)
    for memory in MEMORIES[1:]:
        row = {
            "clients_per_round": few,
            "n_threads": n_threads,
            "memory": str(memory),
            "ours": spread(taken[str(memory)]),
            "without": spread(taken["None"]),
            "ratio": min(taken[str(memory)]) / min(taken["None"]),
        }
        if few is None:
            row["sklearn"] = spread(taken["sklearn"])
            row["ratio_sklearn"] = min(taken[str(memory)]) / min(taken["sklearn"])
        yield row


def _compare(case, variant, X, clients, start, settings) -> Row:
    n_rounds = 9 if settings.quick else 300
    length = 1 if settings.quick else 15 if variant.clients_per_round else 5
    shards = paper_loop.shards_of(X, clients)
    firsts = timed_parts(n_rounds, length)
    marks = {*firsts, *(first + length for first in firsts)}

    def run_ours(n):
        federation = InProcess.from_arrays(X, clients, n_jobs=variant.n_threads, kernel=settings.kernel)
        model = FederatedKMeans.paper(
            case.k,
            weighting=variant.weighting,
            clients_per_round=variant.clients_per_round,
            init=start,
            min_rounds=n,
            max_rounds=n,
            tol=0,
            patience=None,
            random_state=SEED,
        )
        states = {0: (start, start)}

        def keep(state, info):
            if info.round in marks:
                states[info.round] = state.centroids, state.previous

        model.fit_federation(federation, on_round=keep)
        return states

    def run_theirs(n_threads, centroids, previous, first, n):
        return paper_loop.run(
            shards,
            centroids,
            n,
            previous=previous,
            first_round=first,
            weighting=variant.weighting,
            clients_per_round=variant.clients_per_round,
            seed=SEED,
            n_threads=n_threads,
        )

    ours, theirs, apart = [], [], []
    with limited(variant.n_threads):
        run_ours(WARM_ROUNDS)
        loop_threads = faster_threads(variant.n_threads, lambda n: run_theirs(n, start, start, 0, 1))
        repeats = FEW_REPEATS if variant.clients_per_round else case.repeats
        for _ in range(1 if settings.quick else repeats):
            taken, states = seconds(lambda: run_ours(n_rounds))
            ours.append(taken / n_rounds)
            total = 0.0
            for first in firsts:
                centroids, previous = states[first]
                loop = partial(run_theirs, loop_threads, centroids, previous, first, length)
                taken, end = seconds(loop)
                total += taken
                apart.append(float(np.abs(end - states[first + length][0]).max()))
            theirs.append(total / (length * len(firsts)))
    return {
        "data": case.data,
        "k": case.k,
        "dtype": variant.dtype,
        "weighting": variant.weighting,
        "clients_per_round": variant.clients_per_round,
        "n_threads": variant.n_threads,
        "n_threads_loop": loop_threads,
        "n_rounds": n_rounds,
        "n_rounds_loop": length * len(firsts),
        "ours": spread(ours),
        "theirs": spread(theirs),
        "ratio": ratios(theirs, ours),
        "difference": max(apart),
        "agreed": max(apart) <= TOLERANCE[variant.dtype],
    }
