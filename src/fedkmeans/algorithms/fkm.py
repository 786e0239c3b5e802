"""FKM, federated k-means of Garst & Reinders (2023).

Clients start from local k-means++ centroids. The server clusters all received centroids with
weighted k-means. Before its local steps, a client drops the global centroids that have no local
points, so that client i works with k'_i ≤ k clusters.
"""

from __future__ import annotations

import numpy as np

from fedkmeans._utils.seeding import generator
from fedkmeans._utils.typing import ClientId, FloatArray
from fedkmeans.algorithms.kfed import fill_up, stack
from fedkmeans.algorithms.state import State, Target
from fedkmeans.kernels.reference.kmeans import kmeans, lloyd
from fedkmeans.protocol.exchange import Ask, Clients, Conversation
from fedkmeans.protocol.messages import CentroidSet, LocalClusters, LocalModel, LocalUpdate, bytes_to, n_bytes

_SERVER_STEPS = 300
_SERVER_STARTS = 5


def fkm_start(n_clusters: int, clients: Clients, seed: int) -> Conversation[FloatArray]:
    """Compute the initial centroids (n_clusters, m): k-means++ locally, then weighted k-means.

    A k-means++ centroid is a row of the data; one Lloyd step at the client (`max_iter` 1) replaces it
    with a mean.
    """
    query = LocalClusters(n_clusters, "k-means", n_init=1, max_iter=1, seed=seed)
    sets: dict[ClientId, CentroidSet] = yield Ask(query, clients)
    received, counts = stack(sets)
    rng = generator(seed, "FKM server")
    if len(received) < n_clusters:
        return fill_up(received, n_clusters, rng)
    return kmeans(received, n_clusters, rng, _SERVER_STARTS, _SERVER_STEPS, counts)


def fkm_target(
    state: State, clients: Clients, chosen: Clients, *, max_local: int, tol_local: float
) -> Conversation[Target]:
    """Run weighted k-means on all local centroids.

    It starts from the global centroids. Cluster j therefore remains cluster j in all rounds, and the
    movement shows whether the run has converged.
    """
    query = LocalUpdate(state.centroids, max_local, tol_local, "last_counts", "drop")
    models: dict[ClientId, LocalModel] = yield Ask(query, chosen)
    answered = tuple(sorted(models))
    centroids = np.concatenate([models[name].centroids for name in answered])
    counts = np.concatenate([models[name].weights for name in answered])
    held = counts > 0
    d = lloyd(centroids[held], state.centroids, _SERVER_STEPS, counts[held])
    return Target(d, answered, bytes_to(chosen, query), sum(map(n_bytes, models.values())))
