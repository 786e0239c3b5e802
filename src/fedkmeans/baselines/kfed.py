"""k-FED, one-shot federated clustering (Dennis, Li & Smith 2021), in two forms.

Each client clusters its own data and sends its centroids once. The paper on DWF k-means lets
client and server run plain k-means; the method as published does something else on both sides.
"""

from __future__ import annotations

import warnings

import numpy as np

from fedkmeans.clustering import kmeans
from fedkmeans.conversation import Ask, Conversation
from fedkmeans.errors import DataError
from fedkmeans.lloyd import assign, cluster_sums, means, squared_distances
from fedkmeans.records import CentroidSet, LocalClusters
from fedkmeans.seeding import generator
from fedkmeans.typing import ClientId, FloatArray


def kfed_paper(
    n_clusters: int,
    clients: tuple[ClientId, ...],
    seed: int,
    *,
    n_local_clusters: int | None = None,
    n_init_local: int = 1,
    n_init_server: int = 1,
    max_iter: int = 10_000,
) -> Conversation[FloatArray]:
    """k-FED as the DWF paper uses it: k-means at the clients, k-means on what they send.

    Returns
    -------
    ndarray of shape (n_clusters, m)
    """
    query = LocalClusters(n_local_clusters or n_clusters, "k-means", n_init_local, max_iter, seed)
    sets: dict[ClientId, CentroidSet] = yield Ask(query, clients)
    received = all_centroids(sets)
    rng = generator(seed, "k-FED server")
    if len(received) < n_clusters:
        return fill_up(received, n_clusters, rng)
    return kmeans(received, n_clusters, rng, n_init_server, max_iter)


def kfed_published(
    n_clusters: int,
    clients: tuple[ClientId, ...],
    seed: int,
    *,
    n_local_clusters: int | None = None,
    n_init_local: int = 1,
    n_init_server: int = 1,
    max_iter: int = 10_000,
) -> Conversation[FloatArray]:
    """k-FED as published: Awasthi-Sheffet at the clients, farthest centres at the server.

    The server starts with the centres of one client, adds the received centre that is farthest
    from all it has until there are k, and ends with one Lloyd step on the received centres. There
    is nothing to restart at the server, so `n_init_server` has no effect.

    Returns
    -------
    ndarray of shape (n_clusters, m)
    """
    query = LocalClusters(n_local_clusters or n_clusters, "awasthi-sheffet", n_init_local, max_iter, seed)
    sets: dict[ClientId, CentroidSet] = yield Ask(query, clients)
    received = all_centroids(sets)
    rng = generator(seed, "k-FED server")
    if len(received) < n_clusters:
        return fill_up(received, n_clusters, rng)
    givers = [name for name in sorted(sets) if len(sets[name].centroids)]
    chosen = sets[givers[int(rng.integers(len(givers)))]].centroids
    closest = squared_distances(received, chosen).min(axis=1)
    while len(chosen) < n_clusters:
        farthest = received[int(np.argmax(closest))][None, :]
        chosen = np.vstack([chosen, farthest])
        closest = np.minimum(closest, squared_distances(received, farthest)[:, 0])
    sums, counts = cluster_sums(received, assign(received, chosen), n_clusters)
    return means(sums, counts, otherwise=chosen)


def all_centroids(sets: dict[ClientId, CentroidSet]) -> FloatArray:
    """Stack the centroids of all clients, in the order of their names."""
    received = np.concatenate([sets[name].centroids for name in sorted(sets)])
    if not len(received):
        raise DataError(
            "k-FED: no client has enough rows to send a centroid without giving a row away. "
            "Use another init, or let the sites set a smaller min_cluster_size."
        )
    return received


def fill_up(received: FloatArray, n_clusters: int, rng: np.random.Generator) -> FloatArray:
    """Draw missing centroids uniformly in the box of the received ones."""
    missing = n_clusters - len(received)
    warnings.warn(
        f"The clients sent only {len(received)} centroids for n_clusters={n_clusters} (a site sends none "
        f"that stands for too few rows); the other {missing} are drawn at random between them. "
        "Fewer clusters may fit better.",
        stacklevel=2,
    )
    drawn = rng.uniform(received.min(axis=0), received.max(axis=0), size=(missing, received.shape[1]))
    return np.vstack([received, drawn])
