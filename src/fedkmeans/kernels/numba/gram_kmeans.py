"""k-means on the rows of many small clients by their Gram matrices, in one compiled call."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedkmeans._utils.threads import in_threads, split_evenly
from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import Clustered, Rows
from fedkmeans.kernels.numba.jit import kmeans
from fedkmeans.kernels.numba.jit.structures import ClientData, GramDraws, GramResult
from fedkmeans.kernels.reference.kmeans import BETTER, first_draws, same_row
from fedkmeans.kernels.sparse import SparseRows

# Used for clients with at most so many rows, at least so many columns, and at most so many rows for each
# centroid of each start.
ROWS, COLUMNS, ROWS_A_CENTROID = 2048, 8, 50


class Draws(NamedTuple):
    """All random numbers of a client's starts, drawn beforehand; one entry per start.

    Attributes
    ----------
    firsts : list of int
        The first row.
    uniforms : ndarray of shape (n_init, k - 1, n_trials)
    """

    firsts: list[int]
    uniforms: FloatArray

    @classmethod
    def of(cls, weight: FloatArray, k: int, rng: np.random.Generator, n_init: int) -> Draws:
        """Draw for `n_init` starts with k clusters."""
        drawn = [first_draws(weight, k, rng) for _ in range(n_init)]
        return cls([first for (first,), _ in drawn], np.array([uniforms for _, uniforms in drawn]))

    @property
    def k(self) -> int:
        """Number of clusters."""
        return int(self.uniforms.shape[1]) + 1


def are_few(rows: Rows, which: IntArray, draws: list[Draws]) -> Any:
    """Whether clients have so few rows that using their Gram matrix is faster, shape (A,)."""
    n_centroids = np.array([draw.k * len(draw.firsts) for draw in draws])
    few = rows.sizes[which] <= np.minimum(ROWS, ROWS_A_CENTROID * n_centroids)
    return few & (rows.X.shape[1] >= COLUMNS) & (not isinstance(rows.X, SparseRows))


def cluster_each(
    data: ClientData, which: IntArray, draws: list[Draws], max_iter: int, n_threads: int
) -> list[Clustered | None]:
    """Cluster the rows of each of the clients `which` as the plain version does; None where it fails."""
    wanted = np.array([draw.k for draw in draws])
    n_trials = np.array([draw.uniforms.shape[2] for draw in draws])
    n_clients, n_init, k, m = len(draws), len(draws[0].firsts), int(wanted.max()), data.X.shape[1]
    uniforms = np.zeros((n_clients, n_init, k, int(n_trials.max())))
    for place, draw in enumerate(draws):
        uniforms[place, :, : draw.k - 1, : n_trials[place]] = draw.uniforms
    drawn = GramDraws(wanted, n_trials, np.array([draw.firsts for draw in draws]), uniforms)
    result = GramResult(
        centroids=np.empty((n_clients, k, m)),
        counts=np.empty((n_clients, k)),
        done=np.ones(n_clients, dtype=np.bool_),
    )

    def work(part: slice) -> None:
        some, found = (type(arrays)(*(numbers[part] for numbers in arrays)) for arrays in (drawn, result))
        kmeans.gram_kmeans(data, which[part], some, same_row(m), BETTER, max_iter, found)

    sizes = data.starts[which + 1] - data.starts[which]
    in_threads(work, [(part,) for part in split_evenly((sizes**2).tolist(), n_threads)], n_threads)
    return [
        Clustered(centroids[:k], counts[:k]) if done else None
        for centroids, counts, done, k in zip(*result, wanted, strict=True)
    ]
