"""k-FED's centroids, the start of every run, compared with scikit-learn's KMeans at each client.

Both use different random numbers and find different centroids. Therefore the quality is compared: the mean
squared distance of all rows to their nearest centroid.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from sklearn.cluster import KMeans

from benchmarks.paper_loop import shards_of
from benchmarks.report import Row, Table, duration, field, times
from benchmarks.timing import Settings, faster_threads, limited, ratios, seconds, spread
from fedkmeans import InProcess, SitePolicy
from fedkmeans.algorithms.kfed import kfed_exchange
from fedkmeans.data import load_dataset, partition
from fedkmeans.errors import DataError
from fedkmeans.kernels.reference.kmeans import inertia_of
from fedkmeans.protocol.exchange import run
from fedkmeans.protocol.messages import LocalClusters

N_CLIENTS, MAX_ITER = 100, 300
# name, k, partition (None: the data set has clients)
CASES = (("mnist-10k", 20, "half-iid"), ("femnist-iid", 64, None))
# Means over the same number of random starts may differ by at most this fraction.
WORSE = 0.02
# How scikit-learn stops: when no label changes, as ours does, and by default.
TOLS = {"same_stop": 0.0, "default_stop": 1e-4}

TABLES = {
    "kfed": Table(
        "k-FED's start",
        "`starts` k-means++ starts at each client and at the server, at most 300 steps, double precision. "
        "Both sides get the rows already divided among the clients. scikit-learn stops either like ours, "
        "when no label changes, or as by default (tol=1e-4); of two threads it uses one if that is faster. "
        "Quality: mean squared distance of all rows, mean over the seeds. Ratios: median (smallest–largest) "
        "over seeds, alternating.",
        (
            ("data", field("data")),
            ("k", field("k")),
            ("starts", field("n_init")),
            ("threads", field("n_threads")),
            ("ours", duration("ours")),
            ("scikit-learn", duration("same_stop")),
            ("faster", times("ratio_same_stop")),
            ("faster, its default stop", times("ratio_default_stop")),
            ("quality, ours", field("quality_ours", "{:.4f}")),
            ("its", field("quality_same_stop", "{:.4f}")),
        ),
    )
}


def measure(settings: Settings) -> Iterator[Row]:
    for name, k, distribution in CASES:
        try:
            data = load_dataset(name)
        except DataError as error:
            print(f"\n{name} is left out: {error}\n")
            continue
        clients = data.clients
        if distribution is not None:
            clients = partition(distribution, data.X, data.y, N_CLIENTS, np.random.default_rng(0))
        X = data.X.astype(np.float64)
        if settings.quick:
            X, clients = X[clients < 10], clients[clients < 10]
        for n_init in (1,) if settings.quick else (1, 5):
            for n_threads in (1, 2):
                row = _compare(X, clients, k, n_init, n_threads, settings)
                yield {"table": "kfed", "data": name, **row}


def federation_of(X, clients, n_threads, kernel):
    # By default a site sends no cluster of one row; scikit-learn does, and both should do the same work.
    policy = SitePolicy(min_cluster_size=1)
    return InProcess.from_arrays(X, clients, policy=policy, n_jobs=n_threads, kernel=kernel)


def run_ours(federation, k, n_init, seed):
    query = LocalClusters(k, "k-means", n_init, MAX_ITER, seed)
    return run(federation, kfed_exchange(query, k, federation.clients, n_init)).d


def run_theirs(shards, k, n_init, seed, tol):
    def cluster(X):
        model = KMeans(k, init="k-means++", n_init=n_init, max_iter=MAX_ITER, tol=tol, random_state=seed)
        return model.fit(X).cluster_centers_

    return cluster(np.concatenate([cluster(X) for X in shards.values()]))


def _compare(X, clients, k, n_init, n_threads, settings) -> Row:
    n_seeds = 2 if settings.quick else 5 if n_init == 1 else 3
    shards = shards_of(X, clients)
    taken = {name: [] for name in ("ours", *TOLS)}
    quality = {name: [] for name in taken}
    some = dict(list(shards.items())[:5])

    def probe(n):
        with limited(n):
            run_theirs(some, k, 1, 0, 0.0)

    theirs_threads = faster_threads(n_threads, probe)
    run_ours(federation_of(X, clients, n_threads, settings.kernel), k, 1, 0)
    for seed in range(n_seeds):
        federation = federation_of(X, clients, n_threads, settings.kernel)  # a new one, without state
        sides = {"ours": partial(run_ours, federation, k, n_init, seed)}
        sides |= {name: partial(run_theirs, shards, k, n_init, seed, tol) for name, tol in TOLS.items()}
        for name, side in sides.items():
            with limited(n_threads if name == "ours" else theirs_threads):
                needed, centroids = seconds(side)
            taken[name].append(needed)
            quality[name].append(inertia_of(X, centroids) / len(X))
    means = {name: float(np.mean(values)) for name, values in quality.items()}
    worse = means["ours"] / means["same_stop"] - 1
    return {
        "k": k,
        "n_init": n_init,
        "n_threads": n_threads,
        "n_threads_theirs": theirs_threads,
        "n_seeds": n_seeds,
        **{name: spread(values) for name, values in taken.items()},
        **{f"ratio_{name}": ratios(taken[name], taken["ours"]) for name in TOLS},
        **{f"quality_{name}": value for name, value in means.items()},
        "difference": worse,
        "agreed": worse <= WORSE,
    }
