"""A site: the only door to a client's data. It receives a query and answers with a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkmeans import records
from fedkmeans.clustering import local_clusters
from fedkmeans.errors import DataError
from fedkmeans.lloyd import assign, distances_to_own, inertia_per_cluster, local_update
from fedkmeans.parameters import check_integer
from fedkmeans.records import Query, Reply
from fedkmeans.seeding import generator
from fedkmeans.typing import ClientId, DataArray, FloatArray
from fedkmeans.weighting import weights_for


@dataclass(frozen=True, slots=True)
class SitePolicy:
    """What a site will not do, whoever asks.

    Attributes
    ----------
    min_cluster_size : int
        Rows that a centroid sent for an initialisation, k-FED or FKM's start must stand for. With
        1, a cluster of one row is sent as that very row.
    """

    min_cluster_size: int = 2

    def __post_init__(self) -> None:
        check_integer("min_cluster_size", self.min_cluster_size)


class Site:
    """One client with its own data.

    Parameters
    ----------
    name : str
        Unique in the federation; the client's own random choices depend on it.
    X : ndarray of shape (n, m)
        Real numbers of any dtype; kept as it is, never copied.
    sample_weight : ndarray of shape (n,) or None
    feature_names : tuple of str or None
    policy : SitePolicy
    """

    def __init__(
        self,
        name: ClientId,
        X: DataArray,
        sample_weight: FloatArray | None = None,
        feature_names: tuple[str, ...] | None = None,
        policy: SitePolicy | None = None,
    ) -> None:
        self.name = name
        self.X = X
        self.sample_weight = sample_weight
        self.feature_names = feature_names
        self.policy = policy or SitePolicy()
        self._check()

    def _check(self) -> None:
        who = f"Client {self.name!r}"
        if self.X.ndim != 2 or self.X.shape[1] == 0:
            raise DataError(f"{who}: data must have rows and columns, got shape {self.X.shape}.")
        if len(self.X) == 0:
            raise DataError(f"{who} has no rows. Leave the client out or give it data.")
        weight = self.sample_weight
        if weight is not None and not weight.sum() > 0:
            raise DataError(f"{who}: the sample weights add up to zero. Leave the client out.")
        if self.X.dtype.kind not in "fiub":
            raise DataError(f"{who}: data must be real numbers, got dtype {self.X.dtype}.")
        if self.X.dtype.kind == "f":
            with np.errstate(invalid="ignore", over="ignore"):
                sums = self.X.sum(axis=0, dtype=np.float64)
            for column in np.flatnonzero(~np.isfinite(sums)):
                self._check_finite(int(column))
        names = self.feature_names
        if names is not None and len(names) != self.X.shape[1]:
            raise DataError(f"{who}: {len(names)} column names for {self.X.shape[1]} columns.")

    def _check_finite(self, column: int) -> None:
        bad = np.flatnonzero(~np.isfinite(self.X[:, column]))
        if not len(bad):  # finite numbers whose sum overflowed
            return
        label = column if self.feature_names is None else repr(self.feature_names[column])
        raise DataError(
            f"Client {self.name!r}, column {label}: {len(bad)} missing or infinite value(s), the first in "
            f"row {int(bad[0])}. Drop these rows or fill the values in before fitting."
        )

    def answer(self, query: Query) -> Reply:
        """Answer a query about the data."""
        return _ANSWERS[type(query)](self, query)


def _update(site: Site, query: records.LocalUpdate) -> records.LocalModel:
    local = local_update(
        site.X,
        query.centroids,
        max_local=query.max_local,
        tol_local=query.tol_local,
        empty_clusters=query.empty_clusters,
        sample_weight=site.sample_weight,
    )
    return records.LocalModel(local.centroids, weights_for(query.weighting, local))


def _score(site: Site, query: records.Score) -> records.ScoreTotals:
    labels = assign(site.X, query.centroids)
    inertia = inertia_per_cluster(site.X, query.centroids, labels, site.sample_weight)
    weight = site.sample_weight
    return records.ScoreTotals.of(
        float(inertia.sum()), float(len(site.X) if weight is None else weight.sum())
    )


def _describe(site: Site, query: records.Describe) -> records.Description:
    return records.Description(len(site.X), site.X.shape[1], site.feature_names)


def _find_box(site: Site, query: records.FindBox) -> records.Box:
    return records.Box(
        site.X.min(axis=0).astype(np.float64, copy=False), site.X.max(axis=0).astype(np.float64, copy=False)
    )


def _cluster(site: Site, query: records.LocalClusters) -> records.CentroidSet:
    return local_clusters(
        site.X,
        query.n_clusters,
        query.method,
        generator(query.seed, site.name),
        n_init=query.n_init,
        max_iter=query.max_iter,
        min_cluster_size=site.policy.min_cluster_size,
        sample_weight=site.sample_weight,
    )


def _draw(site: Site, query: records.DrawPoint) -> records.Candidate:
    n, m = site.X.shape
    mean_of = min(n, max(query.mean_of, site.policy.min_cluster_size))
    if n < site.policy.min_cluster_size:
        return records.Candidate(np.zeros(m), 0.0)
    rng = generator(query.seed, site.name)
    potential = np.ones(n) if site.sample_weight is None else site.sample_weight.astype(np.float64)
    if len(query.centroids):
        potential = potential * distances_to_own(site.X, query.centroids, assign(site.X, query.centroids))
    total = float(potential.sum())
    if total == 0:  # every row is a centroid already
        return records.Candidate(np.zeros(m), 0.0)
    rows = rng.choice(n, size=1, p=potential / total)
    if query.spread:
        rows = rng.choice(n, size=mean_of, replace=False)
    elif mean_of > 1:
        drawn = site.X[rows].astype(np.float64)
        to_drawn = distances_to_own(site.X, drawn, np.zeros(n, dtype=np.intp))
        rows = np.argsort(to_drawn, kind="stable")[:mean_of]
    return records.Candidate(site.X[rows].mean(axis=0, dtype=np.float64), total)


def _bundle(site: Site, query: records.Bundle) -> records.BundleReply:
    return records.BundleReply(tuple(site.answer(part) for part in query.queries))


_ANSWERS: dict[type, Callable[[Site, Any], Reply]] = {
    records.LocalUpdate: _update,
    records.Score: _score,
    records.Describe: _describe,
    records.FindBox: _find_box,
    records.LocalClusters: _cluster,
    records.DrawPoint: _draw,
    records.Bundle: _bundle,
}
