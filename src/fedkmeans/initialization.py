"""Where the centroids start. Each initialiser is a conversation that ends in k centroids.

None of them sends a row of anyone's data: sites answer with means of several rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from fedkmeans.baselines.kfed import VARIANTS
from fedkmeans.conversation import Ask, Conversation
from fedkmeans.errors import DataError, ParameterError
from fedkmeans.records import Box, Candidate, CentroidSet, DrawPoint, FindBox, LocalClusters
from fedkmeans.seeding import derive_seed, generator
from fedkmeans.typing import ClientId, DataArray, FloatArray

Initializer: TypeAlias = Callable[[int, int, tuple[ClientId, ...], int], Conversation[FloatArray]]

# Rows behind each candidate: enough that none shows, few enough that the place is still a choice.
_MEAN_OF = 5
_KFED_STARTS, _KFED_STEPS = 5, 300


def kfed(
    n_clusters: int, n_features: int, clients: tuple[ClientId, ...], seed: int
) -> Conversation[FloatArray]:
    """k-FED with all clients, 5 restarts at the clients and 5 at the server, as in the paper's runs."""
    variant = VARIANTS["paper"]
    query = LocalClusters(n_clusters, variant.local, _KFED_STARTS, _KFED_STEPS, seed)
    sets: dict[ClientId, CentroidSet] = yield Ask(query, clients)
    return variant.merge(sets, n_clusters, generator(seed, "k-FED server"), _KFED_STARTS, _KFED_STEPS)


def random(
    n_clusters: int, n_features: int, clients: tuple[ClientId, ...], seed: int
) -> Conversation[FloatArray]:
    """Uniform in the box that holds all data; each client tells the bounds of its columns."""
    boxes: dict[ClientId, Box] = yield Ask(FindBox(), clients)
    low = np.min([box.minimum for box in boxes.values()], axis=0)
    high = np.max([box.maximum for box in boxes.values()], axis=0)
    return generator(seed, "random").uniform(low, high, size=(n_clusters, n_features))


def client_random(
    n_clusters: int, n_features: int, clients: tuple[ClientId, ...], seed: int
) -> Conversation[FloatArray]:
    """Each centroid is the mean of a few random points of a random client."""
    rng = generator(seed, "client_random")
    chosen = rng.choice(len(clients), size=n_clusters)
    centroids = []
    for number, index in enumerate(chosen):
        query = DrawPoint(
            np.empty((0, n_features)), _MEAN_OF, spread=True, seed=derive_seed(seed, "draw", number)
        )
        centroids.append((yield from _draw(query, clients, first=clients[index], rng=rng)))
    return np.array(centroids)


def kmeans_plusplus(
    n_clusters: int, n_features: int, clients: tuple[ClientId, ...], seed: int
) -> Conversation[FloatArray]:
    """k-means++ across clients: one exchange a centroid, each far from those already chosen.

    A client is drawn with probability proportional to the squared distances of its rows, and a
    row there likewise, which together is the draw of k-means++ on the pooled data; what is sent is
    the mean of the row's few nearest neighbours.
    """
    rng = generator(seed, "k-means++")
    centroids = np.empty((0, n_features))
    for number in range(n_clusters):
        query = DrawPoint(centroids, _MEAN_OF, spread=False, seed=derive_seed(seed, "draw", number))
        point = yield from _draw(query, clients, first=None, rng=rng)
        centroids = np.vstack([centroids, point])
    return centroids


def _draw(
    query: DrawPoint, clients: tuple[ClientId, ...], first: ClientId | None, rng: np.random.Generator
) -> Conversation[FloatArray]:
    """Draw a candidate from one client, or from all in proportion to their weights.

    When the client asked first has too few rows to answer, the others are asked.
    """
    if first is not None:
        reply: dict[ClientId, Candidate] = yield Ask(query, (first,))
        if reply[first].weight > 0:
            return reply[first].point
    candidates: dict[ClientId, Candidate] = yield Ask(query, clients)
    names = sorted(candidates)
    weight = np.array([candidates[name].weight for name in names])
    if weight.sum() > 0:
        return candidates[names[int(rng.choice(len(names), p=weight / weight.sum()))]].point
    if len(query.centroids):  # fewer different points than clusters: a copy stays empty and harms nobody
        return np.asarray(query.centroids[int(rng.integers(len(query.centroids)))])
    raise DataError(
        "Every client has too few rows to send a mean of them without giving a row away. "
        "Use init='random', or let the sites set a smaller min_cluster_size."
    )


INITIALIZERS: dict[str, Initializer] = {
    "kfed": kfed,
    "random": random,
    "client_random": client_random,
    "k-means++": kmeans_plusplus,
}


def find_initializer(init: str | DataArray, n_clusters: int, n_features: int) -> Initializer:
    """Return the initialiser of that name, or one that gives the centroids passed in."""
    if isinstance(init, str):
        if init not in INITIALIZERS:
            names = ", ".join(INITIALIZERS)
            raise ParameterError(f"init must be an array of centroids or one of {names}; got {init!r}.")
        return INITIALIZERS[init]
    centroids = np.array(init, dtype=np.float64)
    if centroids.shape != (n_clusters, n_features):
        raise ParameterError(
            f"init must hold {n_clusters} centroids of {n_features} columns, got shape {centroids.shape}."
        )
    if not np.isfinite(centroids).all():
        raise ParameterError("init holds missing or infinite values.")
    return lambda *_: _given(centroids)


def _given(centroids: FloatArray) -> Conversation[FloatArray]:
    yield from ()
    return centroids
