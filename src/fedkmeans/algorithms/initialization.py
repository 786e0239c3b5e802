"""Initial centroids. Each initializer is a conversation that returns k centroids.

For an initialization, sites send means of at least `min_cluster_size` rows.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from fedkmeans._utils.seeding import derive_seed, generator
from fedkmeans._utils.typing import ClientId, DataArray, FloatArray
from fedkmeans.algorithms.kfed import TOO_SMALL, kfed_exchange
from fedkmeans.errors import DataError, ParameterError
from fedkmeans.protocol.exchange import Ask, Clients, Conversation
from fedkmeans.protocol.messages import ALL_ROWS, Box, Candidate, DrawPoint, FindBox, LocalClusters

Initializer: TypeAlias = Callable[[int, int, Clients, int], Conversation[FloatArray]]

# Clients, and rows of each client, for a start: the larger of a number, and a number per cluster.
_ENOUGH = {"init_clients": (500, 10), "init_rows": (10_000, 100)}
AUTO, ALL = "auto", "all"

# Rows per candidate: enough to hide a single row, few enough that candidates still differ.
_MEAN_OF = 5


def kfed(
    n_clusters: int, n_features: int, clients: Clients, seed: int, max_rows: int = ALL_ROWS
) -> Conversation[FloatArray]:
    """k-FED with 5 restarts at the clients and 5 at the server, as in the paper's runs."""
    query = LocalClusters(n_clusters, "k-means", 5, max_iter=300, seed=seed, max_rows=max_rows)
    return (yield from kfed_exchange(query, n_clusters, clients, n_init=5)).d


def random(n_clusters: int, n_features: int, clients: Clients, seed: int) -> Conversation[FloatArray]:
    """Draw uniformly in the bounding box of the data; clients send means of their extreme values."""
    boxes: dict[ClientId, Box] = yield Ask(FindBox(), clients)
    low = np.min([box.minimum for box in boxes.values()], axis=0)
    high = np.max([box.maximum for box in boxes.values()], axis=0)
    if not np.isfinite(low).all():
        raise DataError(TOO_SMALL)
    return generator(seed, "random").uniform(low, high, size=(n_clusters, n_features))


def client_random(n_clusters: int, n_features: int, clients: Clients, seed: int) -> Conversation[FloatArray]:
    """Use the mean of a few random points of a random client for each centroid."""
    rng = generator(seed, "client_random")
    chosen = rng.choice(len(clients), size=n_clusters)
    centroids = []
    for number, index in enumerate(chosen):
        draw_seed = derive_seed(seed, "draw", number)
        query = DrawPoint(np.empty((0, n_features)), _MEAN_OF, spread=True, seed=draw_seed)
        replies: dict[ClientId, Candidate] = yield Ask(query, (clients[index],), optional=True)
        points = [reply.point for reply in replies.values() if reply.weight > 0]
        # Without a reply, or with too few rows to hide a single one: ask all clients.
        centroids.append(points[0] if points else (yield from _draw(query, clients, rng)))
    return np.array(centroids)


def kmeans_plusplus(
    n_clusters: int, n_features: int, clients: Clients, seed: int
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
        centroids = np.vstack([centroids, (yield from _draw(query, clients, rng))])
    return centroids


def _draw(query: DrawPoint, clients: Clients, rng: np.random.Generator) -> Conversation[FloatArray]:
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
    raise DataError(TOO_SMALL)


INITIALIZERS: dict[str, Initializer] = {
    "kfed": kfed,
    "random": random,
    "client_random": client_random,
    "k-means++": kmeans_plusplus,
}


def most_used(parameter: str, value: int | str, n_clusters: int) -> int:
    """Return the most clients (`init_clients`) or rows of a client (`init_rows`) that a start uses."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool) and value > 0:
        return int(value)
    if not isinstance(value, str) or value not in (AUTO, ALL):
        problem = f"must be a whole number of at least 1, {AUTO!r} or {ALL!r}; got {value!r}."
        raise ParameterError(problem, parameter=parameter)
    least, per_cluster = _ENOUGH[parameter]
    return ALL_ROWS if value == ALL else max(least, per_cluster * n_clusters)


def draw_clients(clients: Clients, sizes: Mapping[ClientId, int], n: int, seed: int) -> Clients:
    """Draw at most n clients for a start, sorted, with probability proportional to their number of rows.

    Small clients, which may not even be allowed to send a mean of their rows, are then not preferred to
    large ones. Clients whose size is unknown have not answered and are not drawn.
    """
    if n >= len(clients):
        return clients
    weight = np.array([sizes.get(client, 0) for client in clients], dtype=np.float64)
    n = min(n, int(np.count_nonzero(weight)))
    rng = generator(seed, "init clients")
    drawn = rng.choice(len(clients), n, replace=False, p=weight / weight.sum())
    return tuple(clients[index] for index in np.sort(drawn).tolist())


def find_initializer(
    init: str | DataArray, n_clusters: int, n_features: int, max_rows: int = ALL_ROWS
) -> Initializer:
    """Return the initializer with this name, or one that returns the given centroids.

    In k-FED, clients with more than `max_rows` rows use a sample.
    """
    if isinstance(init, str):
        if init not in INITIALIZERS:
            problem = f"must be an array of centroids or one of {', '.join(INITIALIZERS)}; got {init!r}."
            raise ParameterError(problem, parameter="init")
        return partial(kfed, max_rows=max_rows) if init == "kfed" else INITIALIZERS[init]
    try:
        centroids = np.array(init, dtype=np.float64)
    except (TypeError, ValueError) as error:
        problem = f"must be a name or a table of numbers, got {init!r}."
        raise ParameterError(problem, parameter="init") from error
    if centroids.shape != (n_clusters, n_features):
        problem = f"must hold {n_clusters} centroids of {n_features} columns, got shape {centroids.shape}."
        raise ParameterError(problem, parameter="init")
    if not np.isfinite(centroids).all():
        raise ParameterError("holds missing or infinite values.", parameter="init")

    def given(*_: Any) -> Conversation[FloatArray]:
        yield from ()
        return centroids

    return given
