"""Where runs start: data dealt out to clients, k-FED's centroids, and where Lloyd leads from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedkmeans import InProcess
from fedkmeans._utils.typing import DataArray, FloatArray, IntArray
from fedkmeans.algorithms.initialization import INITIALIZERS
from fedkmeans.data import Dataset, atomic_path, load_dataset, partition
from fedkmeans.kernels.reference.kmeans import inertia_of
from fedkmeans.kernels.reference.lloyd import assign, cluster_sums, means
from fedkmeans.protocol.exchange import run

N_CLIENTS = 100
CLUSTERS = {"synthetic": 5, "digits": 20, "mnist-10k": 20, "femnist-half-iid": 64, "femnist-iid": 64}
# FEMNIST comes divided among its clients.
OWN = "own"


@dataclass(frozen=True)
class Case:
    """One federation and one start.

    Attributes
    ----------
    X : ndarray of shape (n, m)
    federation : InProcess
    start : ndarray of shape (k, m)
        k-FED's centroids.
    pooled : ndarray of shape (k, m)
        Where Lloyd's steps on all rows lead from `start`.
    pooled_steps : int
        How many of them, up to and with the first that changes no label.
    """

    X: DataArray
    federation: InProcess
    start: FloatArray
    pooled: FloatArray
    pooled_steps: int

    def score(self, centroids: FloatArray) -> float:
        """Mean squared distance of all rows to their nearest centroid."""
        return inertia_of(self.X, centroids) / len(self.X)


def pooled_lloyd(X: DataArray, centroids: FloatArray) -> tuple[FloatArray, int]:
    """Lloyd's steps until no label changes; an empty cluster stays, as it does in the federation.

    Returns
    -------
    centroids : ndarray of shape (k, m)
    steps : int
    """
    labels: IntArray | None = None
    steps = 0
    while True:
        new = assign(X, centroids)
        steps += 1
        if labels is not None and np.array_equal(new, labels):
            return centroids, steps
        labels = new
        centroids = means(*cluster_sums(X, labels, len(centroids)), otherwise=centroids)


@lru_cache(maxsize=1)
def _dataset(name: str) -> Dataset:
    return load_dataset(name)


@lru_cache(maxsize=2)
def prepare(data: str, distribution: str, seed: int, cache: Path) -> Case:
    """Make a case, or take clients and centroids from the folder `cache`: finding them takes seconds."""
    X, y = _dataset(data).X, _dataset(data).y
    path = cache / f"{data}_{distribution}_{seed}.npz"
    if path.exists():
        with np.load(path) as kept:
            clients, start, pooled, steps = (kept[name] for name in ("clients", "start", "pooled", "steps"))
        return Case(X, InProcess.from_arrays(X, clients), start, pooled, int(steps))
    if distribution == OWN:
        clients = _dataset(data).clients
    else:
        clients = partition(distribution, X, y, N_CLIENTS, np.random.default_rng(seed))
    federation = InProcess.from_arrays(X, clients)
    start = run(federation, INITIALIZERS["kfed"](CLUSTERS[data], X.shape[1], federation.clients, seed))
    pooled, steps = pooled_lloyd(X, start)
    cache.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, clients=clients, start=start, pooled=pooled, steps=steps)
    return Case(X, federation, start, pooled, steps)
