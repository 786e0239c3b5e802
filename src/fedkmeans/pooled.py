"""Classical k-means on pooled data: the baseline that a federation tries to match."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.cluster import KMeans

from fedkmeans._utils.checks import check_integer, check_real


class PooledKMeans(KMeans):  # type: ignore[misc]
    """scikit-learn's k-means, which sees all rows at once and ignores whose they are.

    Parameters
    ----------
    n_clusters : int, default=8
    n_init, max_iter, tol
        As in scikit-learn (where `tol` is relative to the spread of the data), with the paper's
        settings as defaults: 1, 10000 and 1e-8.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    See :class:`sklearn.cluster.KMeans`, and `score_per_sample_`, the paper's score.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_init: int = 1,
        max_iter: int = 10_000,
        tol: float = 1e-8,
        random_state: Any = None,
    ) -> None:
        super().__init__(n_clusters, n_init=n_init, max_iter=max_iter, tol=tol, random_state=random_state)

    def check_parameters(self) -> None:
        """Raise if a parameter is invalid, before any data is there."""
        for name in ("n_clusters", "n_init", "max_iter"):
            check_integer(name, getattr(self, name))
        check_real("tol", self.tol, low=0, high=float("inf"))

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, clients: Any = None) -> Self:
        """Fit on all rows; `clients` is accepted, so that algorithms can be compared, and ignored."""
        super().fit(X, y, sample_weight=sample_weight)
        weight = np.broadcast_to(1.0 if sample_weight is None else sample_weight, self.labels_.shape)
        self.score_per_sample_ = float(self.inertia_ / weight.sum())
        self.stop_reason_ = "max_rounds" if self.n_iter_ >= self.max_iter else "tol"
        return self
