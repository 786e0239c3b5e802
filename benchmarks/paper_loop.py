"""The paper's round as its text describes it, on scikit-learn: the reference for speed.

Each client makes its local steps with ``KMeans.predict`` and a mean per cluster; the server averages
in a Python loop. It follows the paper's pseudo-code and is not optimized.
"""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

from fedkmeans.algorithms.rounds import sample_clients


def shards_of(X, clients):
    """The rows of each client by name; names are sorted as text, as in a federation."""
    return {name: X[clients == number] for name, number in sorted((str(i), i) for i in np.unique(clients))}


def labels_of(X, centroids, n_threads):
    model = KMeans(n_clusters=len(centroids), n_init=1, init=centroids)
    model.cluster_centers_ = np.ascontiguousarray(centroids, dtype=X.dtype)
    model._n_threads = n_threads
    return model.predict(X)


def local_update(X, centroids, max_local, tol, n_threads):
    weights = np.bincount(labels_of(X, centroids, n_threads), minlength=len(centroids)).astype(float)
    for _ in range(max_local):
        labels = labels_of(X, centroids, n_threads)
        new = np.array(
            [
                X[labels == j].mean(axis=0) if (labels == j).any() else centroids[j]
                for j in range(len(centroids))
            ]
        )
        moved = np.linalg.norm(new - centroids)
        centroids = new
        if moved < tol:
            break
    return centroids, weights


def run(
    shards,
    centroids,
    n_rounds,
    *,
    previous=None,
    first_round=0,
    weighting="dynamic",
    clients_per_round=None,
    seed=0,
    n_threads=1,
    max_local=5,
    learning_rate=0.01,
    momentum=0.8,
):
    """Centroids after `n_rounds` rounds; the first of them has the number `first_round`, counted from 0.

    In each round, the clients are those that our run would ask with the same seed.
    """
    previous = centroids if previous is None else previous
    names = tuple(sorted(shards))
    for round_ in range(first_round, first_round + n_rounds):
        chosen = sample_clients(names, clients_per_round, seed, round_)
        replies = [local_update(shards[name], centroids, max_local, 1e-8, n_threads) for name in chosen]
        local = np.array([reply[0] for reply in replies])
        weights = np.array(
            [reply[1] if weighting == "dynamic" else np.ones(len(centroids)) for reply in replies]
        )
        total = weights.sum(axis=0)
        share = np.where(total > 0, weights / np.where(total > 0, total, 1), 1 / len(chosen))
        d = np.einsum("ij,ijm->jm", share, local)
        new = centroids + learning_rate * (d - centroids) + momentum * (centroids - previous)
        centroids, previous = new, centroids
    return centroids
