"""The score of the default on twelve data sets, compared with k-means of scikit-learn on the pooled rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_blobs

from benchmarks.report import Row, Table, field
from benchmarks.timing import Settings
from fedkmeans import FederatedKMeans, InProcess
from fedkmeans.data import load_synthetic, partition

N_CLIENTS, N_RUNS, N_STARTS = 20, 20, 6
# name: partition, clients per round
FEDERATIONS = {
    "iid": ("iid", None),
    "non_iid": ("clustered", None),
    "few_iid": ("iid", 4),
    "few_non_iid": ("clustered", 4),
}

TABLES = {
    "quality": Table(
        "The default and pooled k-means",
        f"Per cent above the lowest score of {N_RUNS} runs of scikit-learn's `KMeans(k, n_init=1, tol=0)` on "
        f"the pooled rows; below zero is better. One run: the mean of these runs. The other columns are "
        f"`FederatedKMeans(k)` with {N_CLIENTS} clients, means over five seeds; 4 of 20: clients per round. "
        "Non-IID: `partition('clustered', ...)`. Rounds: with 4 of 20 non-IID clients.",
        (
            ("data", field("data")),
            ("k", field("k")),
            ("one run", field("one_run", "{:+.2f}")),
            ("IID", field("iid", "{:+.2f}")),
            ("non-IID", field("non_iid", "{:+.2f}")),
            ("IID, 4 of 20", field("few_iid", "{:+.2f}")),
            ("non-IID, 4 of 20", field("few_non_iid", "{:+.2f}")),
            ("rounds", field("rounds", "{:.0f}")),
        ),
    ),
    "start": Table(
        "The same start, few clients per round or all",
        f"Per cent above Lloyd's method on the pooled rows *from the same start*: the lowest, the mean and "
        f"the highest of {N_STARTS} runs of the default with 5 of 100 clients per round. Zipf: client i has "
        "about 1/i times as many rows as the first. IID: rows at random; non-IID: each client has a slice "
        "of the rows, ordered by the sum of the first two columns.",
        (
            ("data", field("data")),
            ("k", field("k")),
            ("clients", field("clients")),
            ("start", field("init")),
            ("lowest", field("lowest", "{:+.2f}")),
            ("mean", field("mean", "{:+.2f}")),
            ("highest", field("highest", "{:+.2f}")),
        ),
    ),
}


@dataclass(frozen=True)
class Case:
    """A data set and the number of clusters."""

    name: str
    k: int
    load: Callable[[np.random.Generator], np.ndarray]


def blobs(rng, n, m, centers, std):
    X, _ = make_blobs(n, m, centers=centers, cluster_std=std, random_state=int(rng.integers(2**31)))
    return X


def unequal_blobs(rng):
    sizes = np.geomspace(20, 1500, 12).astype(int)
    return np.concatenate([rng.normal(rng.uniform(-10, 10, size=6), 1.0, size=(n, 6)) for n in sizes])


def standardized(load):
    X = load().data
    return (X - X.mean(axis=0)) / X.std(axis=0)


CASES = (
    Case("blobs, 2 columns", 50, lambda rng: blobs(rng, 5000, 2, 50, 0.4)),
    Case("blobs, 8 columns", 30, lambda rng: blobs(rng, 6000, 8, 30, 2.0)),
    Case("blobs of unequal size", 12, unequal_blobs),
    Case("uniform, 2 columns", 20, lambda rng: rng.uniform(size=(4000, 2))),
    Case("uniform, 2 columns", 50, lambda rng: rng.uniform(size=(4000, 2))),
    Case("uniform, 8 columns", 10, lambda rng: rng.uniform(size=(4000, 8))),
    Case("digits", 10, lambda rng: load_digits().data),
    Case("digits", 40, lambda rng: load_digits().data),
    Case("wine, standardized", 3, lambda rng: standardized(load_wine)),
    Case("breast cancer, standardized", 8, lambda rng: standardized(load_breast_cancer)),
    Case("heavy tails (Student's t, 2)", 12, lambda rng: rng.standard_t(2, size=(4000, 3))),
    Case("the paper's synthetic data", 5, lambda rng: load_synthetic().X),
)


# Of these, the start is examined.
STARTS = ("blobs, 8 columns", 30), ("digits", 40), ("the paper's synthetic data", 5)
INITS = ("kfed", "k-means++", "client_random")


def measure(settings: Settings) -> Iterator[Row]:
    yield from measure_quality(settings)
    yield from measure_start(settings)


def measure_quality(settings: Settings) -> Iterator[Row]:
    for number, case in enumerate(CASES):
        X = case.load(np.random.default_rng(number))
        pooled = partial(KMeans, case.k, n_init=1, tol=0.0, max_iter=1000)
        n_runs, n_seeds = (3, 1) if settings.quick else (N_RUNS, 5)
        scores = [pooled(random_state=seed).fit(X).inertia_ / len(X) for seed in range(n_runs)]
        best, row = min(scores), {"table": "quality", "data": case.name, "k": case.k}
        row["one_run"] = 100 * (np.mean(scores) / best - 1)
        for name, (distribution, few) in FEDERATIONS.items():
            found = [_fit(X, case.k, distribution, few, seed, settings.kernel) for seed in range(n_seeds)]
            row[name] = 100 * (np.mean([model.score_per_sample_ for model in found]) / best - 1)
            row["rounds"] = np.mean([model.n_iter_ for model in found])
        yield row


def _fit(X, k, distribution, clients_per_round, seed, kernel) -> FederatedKMeans:
    clients = partition(distribution, X, None, N_CLIENTS, np.random.default_rng(seed))
    model = FederatedKMeans(k, clients_per_round=clients_per_round, random_state=seed, kernel=kernel)
    return model.fit(X, clients=clients)


def measure_start(settings: Settings) -> Iterator[Row]:
    for number, case in enumerate(CASES):
        if (case.name, case.k) not in STARTS:
            continue
        X = case.load(np.random.default_rng(number))
        for how in ("IID", "non-IID"):
            for init in INITS[: 1 if settings.quick else None]:
                n_seeds = 2 if settings.quick else N_STARTS
                above = [_above_lloyd(X, case.k, how, init, seed, settings.kernel) for seed in range(n_seeds)]
                found = {"lowest": min(above), "mean": float(np.mean(above)), "highest": max(above)}
                row = {"data": case.name, "k": case.k, "clients": f"Zipf, {how}", "init": init}
                yield {"table": "start", **row, **found}


def _above_lloyd(X, k, how, init, seed, kernel) -> float:
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, 101)
    clients = np.concatenate([np.arange(100), rng.choice(100, len(X) - 100, p=share / share.sum())])
    rng.shuffle(clients)
    if how == "non-IID":
        clients = np.sort(clients)[np.argsort(np.argsort(X[:, :2].sum(axis=1)))]
    federation = InProcess.from_arrays(X, clients, kernel=kernel)
    start = []
    few = FederatedKMeans(k, init=init, clients_per_round=5, random_state=seed)
    few.fit_federation(federation, on_round=lambda state, info: start or start.append(state.previous))
    lloyd = FederatedKMeans(k, init=start[0], tol_score=0).fit_federation(federation)
    return 100 * (few.score_per_sample_ / lloyd.score_per_sample_ - 1)
