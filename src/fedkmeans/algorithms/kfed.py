"""k-FED, one-shot federated clustering (Dennis, Li & Smith 2021), in two variants.

Each client clusters its own data and sends its centroids once; the server merges them. In the paper
on DWF k-means, both clients and server run plain k-means. The published method uses other algorithms
on both sides.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedkmeans._utils.seeding import generator
from fedkmeans._utils.typing import ClientId, FloatArray, IntArray
from fedkmeans.algorithms.state import Target
from fedkmeans.errors import DataError, FedKMeansWarning, Setting
from fedkmeans.kernels import kernel_for
from fedkmeans.kernels.reference.lloyd import assign, cluster_sums, means, squared_distances
from fedkmeans.protocol.exchange import Ask, Conversation
from fedkmeans.protocol.messages import CentroidSet, LocalClusters, bytes_to, n_bytes


def stack(sets: Mapping[ClientId, CentroidSet]) -> tuple[FloatArray, FloatArray]:
    """Return the centroids (n, m) and counts (n,) of all clients.

    They are sorted by coordinates, so that random draws do not depend on the names of clients.
    """
    table = np.concatenate([np.column_stack([part.centroids, part.counts]) for part in sets.values()])
    if not len(table):
        raise DataError(
            "No client has enough rows to send a centroid without giving a row away. "
            "Bring clients with more rows, give the centroids yourself where they can be given (init), or "
            "let the sites set a smaller min_cluster_size."
        )
    order = _order_of_rows(table)
    return table[order, :-1], table[order, -1]


def _order_of_rows(table: FloatArray) -> IntArray:
    """Return the order that sorts rows by the first column, then the second, and so on; shape (n,).

    The result equals that of `np.lexsort`, which sorts once per column. Except for the sign, the bits
    of doubles, read as integers, have the same order as the doubles. In big-endian byte order, one
    comparison covers all columns of a row.
    """
    bits = (table + 0.0).view(np.int64)  # turns -0.0 into 0.0
    bits ^= (bits >> 63) | np.int64(-(2**63))  # flip all bits of negative numbers, else the sign bit
    if sys.byteorder == "little":
        bits.byteswap(inplace=True)
    return bits.view(f"V{8 * table.shape[1]}").ravel().argsort(kind="stable")


def merge_by_kmeans(
    sets: Mapping[ClientId, CentroidSet],
    n_clusters: int,
    rng: np.random.Generator,
    n_init: int,
    max_iter: int,
) -> FloatArray:
    """Run k-means on all received centroids; shape (n_clusters, m)."""
    received, _ = stack(sets)
    if len(received) < n_clusters:
        return fill_up(received, n_clusters, rng)
    return kernel_for(received).kmeans(received, n_clusters, rng, n_init, max_iter)


def merge_by_farthest(
    sets: Mapping[ClientId, CentroidSet],
    n_clusters: int,
    rng: np.random.Generator,
    n_init: int,
    max_iter: int,
) -> FloatArray:
    """Start with the centroids of one client and add the farthest received one until there are k.

    A single Lloyd step on the received centroids follows. The method has no restarts and no iterations,
    so `n_init` and `max_iter` have no effect. Returns an array of shape (n_clusters, m).
    """
    received, _ = stack(sets)
    if len(received) < n_clusters:
        return fill_up(received, n_clusters, rng)
    givers = sorted(
        (part.centroids for part in sets.values() if len(part.centroids)), key=lambda c: c.tolist()
    )
    chosen = givers[int(rng.integers(len(givers)))]
    closest = squared_distances(received, chosen).min(axis=1)
    while len(chosen) < n_clusters:
        farthest = received[int(np.argmax(closest))][None, :]
        chosen = np.vstack([chosen, farthest])
        closest = np.minimum(closest, squared_distances(received, farthest)[:, 0])
    sums, counts = cluster_sums(received, assign(received, chosen), n_clusters)
    return means(sums, counts, otherwise=chosen)


def fill_up(received: FloatArray, n_clusters: int, rng: np.random.Generator) -> FloatArray:
    """Draw missing centroids uniformly in the bounding box of the others; shape (n_clusters, m)."""
    missing = n_clusters - len(received)
    warnings.warn(
        FedKMeansWarning(
            f"Too few centroids came from the clients: {len(received)} for ",
            Setting("n_clusters", n_clusters),
            ". The missing ones are drawn at random between them. A site sends no centroid that stands "
            "for too few rows, and no more than it is asked for: ask for fewer clusters, or bring more "
            "clients or rows.",
        ),
        stacklevel=2,
    )
    drawn = rng.uniform(received.min(axis=0), received.max(axis=0), size=(missing, received.shape[1]))
    return np.vstack([received, drawn])


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of k-FED.

    Attributes
    ----------
    local : str
        One of `LOCAL_METHODS`, the local clustering method.
    merge : callable
        Merges the centroid sets of the clients into k centroids.
    n_local : callable
        The default k' for a given k.
    """

    local: str
    merge: Callable[[Mapping[ClientId, CentroidSet], int, np.random.Generator, int, int], FloatArray]
    n_local: Callable[[int], int]


def kfed_exchange(
    variant: Variant,
    n_clusters: int,
    clients: tuple[ClientId, ...],
    seed: int,
    *,
    n_local: int,
    n_init_local: int,
    n_init: int,
    max_iter: int,
) -> Conversation[Target]:
    """Run the single exchange of k-FED: merge the local centroids into k centroids (k, m)."""
    query = LocalClusters(n_local, variant.local, n_init_local, max_iter, seed)
    sets: dict[ClientId, CentroidSet] = yield Ask(query, clients)
    rng = generator(seed, "k-FED server")
    return Target(
        variant.merge(sets, n_clusters, rng, n_init, max_iter),
        tuple(sorted(sets)),
        sent=bytes_to(clients, query),
        received=sum(map(n_bytes, sets.values())),
    )


VARIANTS = {
    "paper": Variant("k-means", merge_by_kmeans, lambda k: k),
    # The theory assumes clients with few of the clusters, k' ≤ √k; with k' = k the server would only
    # use the centroids of one client.
    "published": Variant("awasthi-sheffet", merge_by_farthest, lambda k: math.ceil(math.sqrt(k))),
}
