"""k-means on the rows of many small clients, each by the Gram matrix of its rows, in one compiled call."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedkmeans._utils.threads import in_threads, split_evenly
from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.kernels.base import Rows
from fedkmeans.kernels.numba import compiled
from fedkmeans.kernels.reference.kmeans import BETTER, first_draws, same_row
from fedkmeans.kernels.sparse import SparseRows

# Clients up to so many rows, with so many columns or more; it pays up to so many rows for each centroid
# of each start.
ROWS, COLUMNS, ROWS_A_CENTROID = 2048, 8, 50


class Draws(NamedTuple):
    """All that is random in a client's starts, drawn beforehand: one entry a start.

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
        """How many clusters are wanted."""
        return int(self.uniforms.shape[1]) + 1


class Found(NamedTuple):
    """What came of it, for A clients of which the one with the most clusters has k.

    Attributes
    ----------
    chosen : ndarray of shape (A, n_init, k)
        Rows from which each start begins.
    centroids, counts : ndarray of shape (A, k, m) and (A, k)
        Of the best start.
    done : ndarray of shape (A,)
        Whether these are good. Where not, it was close which centroid is the nearest, a cluster was
        empty, or labels still changed in the last step.
    """

    chosen: IntArray
    centroids: FloatArray
    counts: FloatArray
    done: Any


def are_few(rows: Rows, which: IntArray, draws: list[Draws]) -> Any:
    """Whether clients have so few rows that their Gram matrix pays, shape (A,)."""
    n_centroids = np.array([draw.k * len(draw.firsts) for draw in draws])
    few = rows.sizes[which] <= np.minimum(ROWS, ROWS_A_CENTROID * n_centroids)
    return few & (rows.X.shape[1] >= COLUMNS) & (not isinstance(rows.X, SparseRows))


def cluster_each(
    data: Any,
    weights: FloatArray,
    rows: Rows,
    which: IntArray,
    draws: list[Draws],
    max_iter: int,
    n_threads: int,
) -> Found:
    """Cluster the rows of each of the clients `which`, the same way as `clustering.kmeans`.

    `data` and `weights` are those of `rows` in the form that compiled code knows.
    """
    wanted = np.array([draw.k for draw in draws])
    n_trials = np.array([draw.uniforms.shape[2] for draw in draws])
    n_clients, n_init, k, m = len(draws), len(draws[0].firsts), int(wanted.max()), data.shape[1]
    uniforms = np.zeros((n_clients, n_init, k, int(n_trials.max())))
    found = Found(
        chosen=np.zeros((n_clients, n_init, k), dtype=np.int64),
        centroids=np.empty((n_clients, k, m)),
        counts=np.empty((n_clients, k)),
        done=np.ones(n_clients, dtype=np.bool_),
    )
    for place, draw in enumerate(draws):
        found.chosen[place, :, 0] = draw.firsts
        uniforms[place, :, : draw.k - 1, : n_trials[place]] = draw.uniforms
    sizes = rows.sizes[which]

    def work(part: slice) -> None:
        n = int(sizes[part].max())
        compiled.gram_kmeans(
            data, weights, rows.starts, which[part], wanted[part], n_trials[part], uniforms[part],
            same_row(m), BETTER, max_iter, np.empty(n * n), np.empty(n * m), np.empty(2 * n),
            compiled.new_room(k, m, n, with_gram=True), *(numbers[part] for numbers in found),
        )  # fmt: skip

    in_threads(work, [(part,) for part in split_evenly((sizes**2).tolist(), n_threads)], n_threads)
    return found
