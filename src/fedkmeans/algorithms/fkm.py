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
from fedkmeans.kernels import kernel_for
from fedkmeans.kernels.reference.kmeans import kmeans, lloyd
from fedkmeans.protocol.exchange import Ask, Clients, Conversation
from fedkmeans.protocol.messages import CentroidSet, LocalClusters, LocalModel, LocalUpdate, bytes_to, n_bytes

_SERVER_STEPS = 300
_SERVER_STARTS = 5
# Where k-means at the server starts in a round: at the global centroids, or afresh.
SERVER_INITS = ("previous", "k-means++")


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
    state: State,
    clients: Clients,
    chosen: Clients,
    *,
    max_local: int,
    tol_local: float,
    server_init: str = "previous",
    seed: int = 0,
) -> Conversation[Target]:
    """Run weighted k-means on all local centroids.

    With `server_init` "previous" it starts from the global centroids. Cluster j therefore remains
    cluster j in all rounds, and the movement shows whether the run has converged. With "k-means++" it
    starts afresh in every round, and clusters change their places.
    """
    query = LocalUpdate(state.centroids, max_local, tol_local, "last_counts", "drop")
    models: dict[ClientId, LocalModel] = yield Ask(query, chosen)
    answered = tuple(sorted(models))
    centroids = np.concatenate([models[name].centroids for name in answered])
    counts = np.concatenate([models[name].weights for name in answered])
    centroids, counts = centroids[counts > 0], counts[counts > 0]
    k, rng = len(state.centroids), generator(seed, "FKM server", state.round)
    if server_init == "previous":
        d = lloyd(centroids, state.centroids, _SERVER_STEPS, counts)
    elif len(centroids) < k:
        d = fill_up(centroids, k, rng)
    else:
        d = kernel_for(centroids).kmeans(centroids, k, rng, 1, _SERVER_STEPS, counts)
    return Target(d, answered, bytes_to(chosen, query), sum(map(n_bytes, models.values())))
