"""Whole fits at scale: a few large sites against scikit-learn, and very many small clients.

Every point of the second table is measured in its own process, because RAM that an earlier point has freed
would hide what a later one needs. Run as a module with a point in JSON, this file is that process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
from sklearn.cluster import KMeans

from benchmarks.growth import peak_bytes
from benchmarks.report import Row, Table, duration, field, times
from benchmarks.timing import Settings, limited, ratios, seconds, spread
from fedkmeans import FederatedKMeans, InProcess

K, M = 8, 8
MANY = {"k": 16, "m": 16, "rows": 10, "per_round": 1000, "rounds": 120}

TABLES = {
    "sites": Table(
        "Whole fits on two large sites",
        f"Two sites, {M} columns, k = {K}, overlapping blobs. Ours: `FederatedKMeans(k, n_jobs=threads)` on "
        "the array, with its start, all rounds, score and labels. scikit-learn: `KMeans(k, n_init=1)` on the "
        "pooled rows. Score: ours divided by its, mean over seeds. Ratios: median (smallest–largest) over "
        "seeds, alternating.",
        (
            ("rows per site", field("n", "{:,}")),
            ("threads", field("n_threads")),
            ("ours", duration("ours")),
            ("scikit-learn", duration("theirs")),
            ("faster", times("ratio")),
            ("score", field("score", "{:.3f}")),
        ),
    ),
    "clients": Table(
        "Very many clients",
        "Ten rows of 16 columns per client, k = 16, 1,000 clients per round, default settings, one thread. "
        "Start: federation, agreement on the columns, k-FED and the first round. Time of a round: median of "
        "rounds after all clients have been asked. RAM: the largest size of the process.",
        (
            ("clients", field("clients", "{:,}")),
            ("memory", field("memory")),
            ("start", field("start", "{:.2f} s")),
            ("per round", field("per_round", "{:.1f} ms")),
            ("RAM", field("ram", "{:.2f} GB")),
        ),
    ),
}


def measure(settings: Settings) -> Iterator[Row]:
    for n in (20_000,) if settings.quick else (250_000, 2_500_000):
        for n_threads in (1, 2):
            yield {"table": "sites", **_compare(n, n_threads, 1 if settings.quick else 3)}
    for memory in ("server", "client"):
        for clients in (2_000,) if settings.quick else (10_000, 100_000):
            point = json.dumps({**MANY, "clients": clients, "memory": memory})
            command = [sys.executable, "-m", "benchmarks.scale", point]
            found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            yield {"table": "clients", "clients": clients, "memory": memory, **json.loads(found)}


def _compare(n: int, n_threads: int, n_seeds: int) -> Row:
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(12, M))
    X = centres[rng.integers(12, size=2 * n)] + rng.normal(size=(2 * n, M))
    clients = np.repeat([0, 1], n)
    taken, scores = {"ours": [], "theirs": []}, []
    FederatedKMeans(K, random_state=0, n_jobs=n_threads).fit(X, clients=clients)  # loads compiled code
    for seed in range(n_seeds):
        ours = FederatedKMeans(K, random_state=seed, n_jobs=n_threads)
        theirs = KMeans(K, n_init=1, random_state=seed)
        for name, work in (
            ("ours", partial(ours.fit, X, clients=clients)),
            ("theirs", partial(theirs.fit, X)),
        ):
            with limited(n_threads):
                taken[name].append(seconds(work)[0])
        scores.append(ours.inertia_ / theirs.inertia_)
    return {
        "n": n,
        "n_threads": n_threads,
        **{name: spread(values) for name, values in taken.items()},
        "ratio": ratios(taken["theirs"], taken["ours"]),
        "score": float(np.mean(scores)),
    }


def _many(clients, memory, k, m, rows, per_round, rounds) -> Row:
    rng = np.random.default_rng(0)
    n = clients * rows
    X = rng.normal(size=(n, m)) + 2 * rng.integers(k, size=(n, 1))
    moments = [time.perf_counter()]
    federation = InProcess.from_arrays(X, np.repeat(np.arange(clients), rows))
    model = FederatedKMeans(
        k, clients_per_round=per_round, memory=memory, max_rounds=rounds, tol_score=0, tol=0, random_state=0
    )
    model.fit_federation(federation, on_round=lambda state, info: moments.append(time.perf_counter()))
    taken = np.diff(moments)
    return {
        "start": float(taken[0]),
        "per_round": 1e3 * float(np.median(taken[min(clients // per_round, rounds - 10) :])),
        "ram": peak_bytes() / 1e9,
    }


if __name__ == "__main__":
    print(json.dumps(_many(**json.loads(sys.argv[1]))))
