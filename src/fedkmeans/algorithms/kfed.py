"""k-FED, one-shot federated clustering (Dennis, Li & Smith 2021), in two variants.

Each client clusters its own data and sends its centroids once; the server merges them. In the paper
on DWF k-means, both clients and server run plain k-means. The published method uses other algorithms
on both sides.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping

import numpy as np

from fedkmeans._utils.seeding import generator
from fedkmeans._utils.typing import ClientId, FloatArray, IntArray
from fedkmeans.algorithms.state import Target
from fedkmeans.errors import DataError, FedKMeansWarning, Setting
from fedkmeans.kernels import kernel_for
from fedkmeans.kernels.reference.lloyd import assign, cluster_sums, means, squared_distances
from fedkmeans.protocol.exchange import Ask, Clients, Conversation
from fedkmeans.protocol.messages import CentroidSet, LocalClusters, bytes_to, n_bytes

# How clients cluster their rows in each variant; this also determines how the server merges.
VARIANTS = {"paper": "k-means", "published": "awasthi-sheffet"}
TOO_SMALL = (
    "No client that was asked has enough rows to send a mean of them without giving a row away. Bring "
    "clients with more rows, let more clients take part (init_clients), give the centroids yourself where "
    "they can be given (init), or let the sites set a smaller min_cluster_size."
)


def stack(sets: Mapping[ClientId, CentroidSet]) -> tuple[FloatArray, FloatArray]:
    """Return the centroids (n, m) and counts (n,) of all clients.

    They are sorted by coordinates, so that random draws do not depend on the names of clients.
    """
    table = np.concatenate([np.column_stack([part.centroids, part.counts]) for part in sets.values()])
    if not len(table):
        raise DataError(TOO_SMALL)
    order = _order_of_rows(table)
    return table[order, :-1], table[order, -1]


def _order_of_rows(table: FloatArray) -> IntArray:
    """Return the order of `np.lexsort` of the columns, the first one first; shape (n,).

    Except for the sign, the bits of doubles, read as integers, have the same order as the doubles. In
    big-endian byte order, one comparison covers all columns of a row, which is faster than a sort per column.
    """
    bits = (table + 0.0).view(np.int64)  # turns -0.0 into 0.0
    bits ^= (bits >> 63) | np.int64(-(2**63))  # flip all bits of negative numbers, else the sign bit
    if sys.byteorder == "little":
        bits.byteswap(inplace=True)
    return bits.view(f"V{8 * table.shape[1]}").ravel().argsort(kind="stable")


def merge_by_farthest(
    sets: Mapping[ClientId, CentroidSet], received: FloatArray, n_clusters: int, rng: np.random.Generator
) -> FloatArray:
    """Start with the centroids of one client and add the farthest received one until there are k.

    A single Lloyd step on the received centroids follows. The method has no restarts and no iterations.
    Returns an array of shape (n_clusters, m).
    """
    givers = sorted((part.centroids for part in sets.values() if len(part.centroids)), key=np.ndarray.tolist)
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


def kfed_exchange(
    query: LocalClusters, n_clusters: int, clients: Clients, n_init: int
) -> Conversation[Target]:
    """Run the single exchange of k-FED: merge the local centroids into k centroids (k, m)."""
    sets: dict[ClientId, CentroidSet] = yield Ask(query, clients)
    received, _ = stack(sets)
    rng = generator(query.seed, "k-FED server")
    if len(received) < n_clusters:
        d = fill_up(received, n_clusters, rng)
    elif query.method == VARIANTS["published"]:
        d = merge_by_farthest(sets, received, n_clusters, rng)
    else:
        d = kernel_for(received).kmeans(received, n_clusters, rng, n_init, query.max_iter)
    return Target(d, tuple(sorted(sets)), bytes_to(clients, query), sum(map(n_bytes, sets.values())))
