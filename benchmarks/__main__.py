"""Rounds of DWF k-means against the paper's loop, side by side; run with ``make bench``.

Both sides start from the same centroids, take the same number of rounds, and must end at the same
centroids: a ratio between different answers means nothing.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks import paper_loop
from fedkmeans import FederatedKMeans, InProcess
from fedkmeans.data import load_dataset, partition

CASES = (("synthetic", 5), ("digits", 20))
N_CLIENTS, N_ROUNDS, N_REPEATS = 100, 20, 5


def seconds(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def measure(name, k):
    data = load_dataset(name)
    clients = partition("half-iid", data.X, data.y, N_CLIENTS, np.random.default_rng(0))
    X = data.X.astype(np.float64)
    shards = [X[clients == i] for i in range(N_CLIENTS)]
    start = X[np.random.default_rng(0).choice(len(X), size=k, replace=False)]
    federation = InProcess.from_arrays(X, clients)
    model = FederatedKMeans.paper(k, init=start, max_rounds=N_ROUNDS, tol=0, patience=None)
    ratios = []
    for _ in range(N_REPEATS):
        theirs, expected = seconds(lambda: paper_loop.run(shards, start, N_ROUNDS))
        ours, fitted = seconds(lambda: model.fit_federation(federation))
        np.testing.assert_allclose(fitted.cluster_centers_, expected, atol=1e-9)
        ratios.append(theirs / ours)
    low, middle, high = np.percentile(ratios, [0, 50, 100])
    spread = f"(from {low:.1f} to {high:.1f})"
    print(f"{name:10s} k={k:<3d} {N_ROUNDS} rounds: {middle:5.1f}x the paper's loop {spread}")


for case in CASES:
    measure(*case)
