"""The paper's round as its text describes it, on scikit-learn: the yardstick for speed.

Each client makes its local steps with ``KMeans.predict`` and a mean per cluster; the server averages
in a Python loop. Written from the paper's pseudo-code to be faithful, not fast.
"""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans


def labels_of(X, centroids):
    model = KMeans(n_clusters=len(centroids), n_init=1, init=centroids)
    model.cluster_centers_ = np.ascontiguousarray(centroids, dtype=X.dtype)
    model._n_threads = 1
    return model.predict(X)


def local_update(X, centroids, max_local, tol):
    weights = np.bincount(labels_of(X, centroids), minlength=len(centroids)).astype(float)
    for _ in range(max_local):
        labels = labels_of(X, centroids)
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


def run(shards, centroids, n_rounds, *, weighting="dynamic", max_local=5, learning_rate=0.01, momentum=0.8):
    """Centroids after `n_rounds` rounds with all clients."""
    previous = centroids
    for _ in range(n_rounds):
        replies = [local_update(X, centroids, max_local, 1e-8) for X in shards]
        local = np.array([reply[0] for reply in replies])
        weights = np.array(
            [reply[1] if weighting == "dynamic" else np.ones(len(centroids)) for reply in replies]
        )
        total = weights.sum(axis=0)
        share = np.where(total > 0, weights / np.where(total > 0, total, 1), 1 / len(shards))
        d = np.einsum("ij,ijm->jm", share, local)
        new = centroids + learning_rate * (d - centroids) + momentum * (centroids - previous)
        centroids, previous = new, centroids
    return centroids
