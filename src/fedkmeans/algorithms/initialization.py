"""Initial centroids. Each initializer is a conversation that returns k centroids.

For an initialization, sites send means of at least `min_cluster_size` rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from fedkmeans._utils.seeding import derive_seed, generator
from fedkmeans._utils.typing import ClientId, DataArray, FloatArray
from fedkmeans.algorithms.kfed import VARIANTS, kfed_exchange
from fedkmeans.errors import DataError, ParameterError
from fedkmeans.protocol.exchange import Ask, Conversation
from fedkmeans.protocol.messages import Box, Candidate, DrawPoint, FindBox

Initializer: TypeAlias = Callable[[int, int, tuple[ClientId, ...], int], Conversation[FloatArray]]

# Rows per candidate: enough to hide a single row, few enough that candidates still differ.
_MEAN_OF = 5
_KFED_STARTS, _KFED_STEPS = 5, 300
_TOO_SMALL = (
    "Every client has too few rows to send a mean of them without giving a row away. Bring clients with "
    "more rows, give the centroids yourself (init), or let the sites set a smaller min_cluster_size."
)


def kfed(
    n_clusters: int, n_features: int, clients: tuple[ClientId, ...], seed: int
) -> Conversation[FloatArray]:
    """k-FED with all clients, 5 restarts at the clients and 5 at the server, as in the paper's runs."""
    found = yield from kfed_exchange(
        VARIANTS["paper"],
        n_clusters,
        clients,
        seed,
        n_local=n_clusters,
        n_init_local=_KFED_STARTS,
        n_init=_KFED_STARTS,
        max_iter=_KFED_STEPS,
    )
    return found.d


def random(
    n_clusters: int, n_features: int, clients: tuple[ClientId, ...], seed: int
) -> Conversation[FloatArray]:
    """Draw uniformly in the bounding box of the data; clients send means of their extreme values."""
    boxes: dict[ClientId, Box] = yield Ask(FindBox(), clients)
    low = np.min([box.minimum for box in boxes.values()], axis=0)
    high = np.max([box.maximum for box in boxes.values()], axis=0)
    if not np.isfinite(low).all():
        raise DataError(_TOO_SMALL)
    return generator(seed, "random").uniform(low, high, size=(n_clusters, n_features))


def client_random(
    n_clusters: int, n_features: int, clients: tuple[ClientId, ...], seed: int
) -> Conversation[FloatArray]:
    """Use the mean of a few random points of a random client for each centroid."""
    rng = generator(seed, "client_random")
    chosen = rng.choice(len(clients), size=n_clusters)
    centroids = []
    for number, index in enumerate(chosen):
        query = DrawPoint(
            np.empty((0, n_features)), _MEAN_OF, spread=True, seed=derive_seed(seed, "draw", number)
        )
        replies: dict[ClientId, Candidate] = yield Ask(query, (clients[index],), optional=True)
        reply = replies.get(clients[index])
        if reply is not None and reply.weight > 0:
            centroids.append(reply.point)
        else:  # no reply, or too few rows to hide a single one: ask all clients
            centroids.append((yield from _draw(query, clients, rng)))
    return np.array(centroids)


def kmeans_plusplus(
    n_clusters: int, n_features: int, clients: tuple[ClientId, ...], seed: int
) -> Conversation[FloatArray]:
    """k-means++ across clients, with one exchange per centroid.

    A client is drawn with probability proportional to the sum of the squared distances of its rows,
    and then one of its rows in the same way. Together this is k-means++ on the pooled data. The site
    sends the mean of the row and its nearest neighbours, as few as its policy allows.
    """
    rng = generator(seed, "k-means++")
    centroids = np.empty((0, n_features))
    for number in range(n_clusters):
        query = DrawPoint(centroids, mean_of=1, spread=False, seed=derive_seed(seed, "draw", number))
        point = yield from _draw(query, clients, rng)
        centroids = np.vstack([centroids, point])
    return centroids


def _draw(
    query: DrawPoint, clients: tuple[ClientId, ...], rng: np.random.Generator
) -> Conversation[FloatArray]:
    """Ask all clients for a candidate and draw one with probability proportional to its weight."""
    replies: dict[ClientId, Candidate] = yield Ask(query, clients)
    # Sorted by coordinates, so that the draw does not depend on the names of clients.
    candidates = sorted((c for c in replies.values() if c.weight > 0), key=lambda c: c.point.tolist())
    # A mean of neighbours can occur twice; the second copy would be an empty cluster.
    new = [c for c in candidates if not (c.point == query.centroids).all(axis=1).any()]
    pool = new or candidates
    if pool:
        weight = np.array([candidate.weight for candidate in pool])
        return pool[int(rng.choice(len(pool), p=weight / weight.sum()))].point
    if len(query.centroids):  # fewer distinct points than clusters: a copy is an empty cluster
        return np.asarray(query.centroids[int(rng.integers(len(query.centroids)))])
    raise DataError(_TOO_SMALL)


INITIALIZERS: dict[str, Initializer] = {
    "kfed": kfed,
    "random": random,
    "client_random": client_random,
    "k-means++": kmeans_plusplus,
}


def find_initializer(init: str | DataArray, n_clusters: int, n_features: int) -> Initializer:
    """Return the initializer with this name, or one that returns the given centroids."""
    if isinstance(init, str):
        if init not in INITIALIZERS:
            names = ", ".join(INITIALIZERS)
            raise ParameterError(
                f"must be an array of centroids or one of {names}; got {init!r}.", parameter="init"
            )
        return INITIALIZERS[init]
    try:
        centroids = np.array(init, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"must be a name or a table of numbers, got {init!r}.", parameter="init"
        ) from error
    if centroids.shape != (n_clusters, n_features):
        raise ParameterError(
            f"must hold {n_clusters} centroids of {n_features} columns, got shape {centroids.shape}.",
            parameter="init",
        )
    if not np.isfinite(centroids).all():
        raise ParameterError("holds missing or infinite values.", parameter="init")
    return lambda *_: _given(centroids)


def _given(centroids: FloatArray) -> Conversation[FloatArray]:
    yield from ()
    return centroids
