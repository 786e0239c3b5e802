"""A site: the only door to a client's data. It receives a query and answers with a record."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedkmeans import records
from fedkmeans.clustering import local_clusters
from fedkmeans.errors import DataError, FederationError, ParameterError
from fedkmeans.frames import numeric_frame, ordered_array
from fedkmeans.last_word import Spoken, speak
from fedkmeans.lloyd import (
    assign,
    blocks,
    distances_to_own,
    double_block,
    inertia_per_cluster,
    local_update,
)
from fedkmeans.parameters import check_integer
from fedkmeans.records import Query, Reply
from fedkmeans.seeding import generator
from fedkmeans.typing import ClientId, DataArray, FloatArray
from fedkmeans.weighting import weights_for
from fedkmeans.words import Word


@dataclass(frozen=True, slots=True)
class SitePolicy:
    """What a site insists on, whoever asks.

    Attributes
    ----------
    min_cluster_size : int
        Rows that must stand behind each point or bound sent for an initialisation, for k-FED or
        for FKM's start. With 1, a cluster of one row is sent as that very row. The local centroids
        of later rounds are not held back: the paper's algorithm needs them all.
    """

    min_cluster_size: int = 2

    def __post_init__(self) -> None:
        check_integer("min_cluster_size", self.min_cluster_size)


# Runs for which a site keeps in mind what it said; one may begin while another is being finished.
RUNS_KEPT = 4
# Squares of larger numbers overflow, and distances with them.
_LARGEST = 1e150
# Larger whole numbers are not all different in double precision.
_LARGEST_INTEGER = 2.0**53 - 1


def check_data(name: ClientId, X: DataArray, feature_names: tuple[str, ...] | None) -> DataArray:
    """Return `X` if it is a table of finite numbers; else say whose column is wrong, and how."""
    who = f"Client {name!r}"
    if X.ndim != 2 or X.shape[1] == 0:
        raise DataError(f"{who}: data must have rows and columns, got shape {X.shape}.")
    if len(X) == 0:
        raise DataError(f"{who} has no rows. Leave the client out or give it data.")
    if X.dtype.kind not in "fiub":
        raise DataError(
            f"{who}: data must be real numbers, got dtype {X.dtype}. Drop or encode other columns."
        )
    if feature_names is not None and len(feature_names) != X.shape[1]:
        raise DataError(f"{who}: {len(feature_names)} column names for {X.shape[1]} columns.")
    if X.dtype.kind != "b":
        _check_range(who, X, feature_names)
    return X


def _check_range(who: str, X: DataArray, feature_names: tuple[str, ...] | None) -> None:
    limit = _LARGEST if X.dtype.kind == "f" else _LARGEST_INTEGER
    # Whatever is out of range shows in its column's least or largest value, without a copy.
    bounds = np.abs(np.stack([X.min(axis=0), X.max(axis=0)]).astype(np.float64))
    for column in np.flatnonzero(~(bounds <= limit).all(axis=0)):
        values = X[:, column].astype(np.float64)
        bad = np.flatnonzero(~(np.abs(values) <= limit))
        label = column if feature_names is None else repr(feature_names[column])
        found = f"{who}, column {label}: {len(bad)} value(s)"
        where = f"the first in row {int(bad[0])}"
        if np.isfinite(values[bad]).all():
            raise DataError(
                f"{found} beyond {limit:.3g}, too large for exact distances; {where}. Scale the column, or "
                "leave it out if it holds identifiers."
            )
        raise DataError(
            f"{found} missing (NaN) or infinite; {where}. Drop these rows, or fill the values in first."
        )


def check_weight(name: ClientId, sample_weight: Any, n_rows: int) -> FloatArray | None:
    """Return the weights as an array (n_rows,), or None; refuse what cannot be a weight."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    who = f"Client {name!r}"
    if weight.shape != (n_rows,):
        raise DataError(
            f"{who}: sample_weight must have one entry a row, {n_rows}, got shape {weight.shape}."
        )
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise DataError(f"{who}: sample weights must be finite and not negative.")
    if not weight.any():
        raise DataError(f"{who}: the sample weights add up to zero. Leave the client out.")
    return weight


class Site:
    """One client with its own data.

    Parameters
    ----------
    name : str
        Unique in the federation.
    X : array-like or frame of shape (n, m)
        Real numbers of any dtype; an array is kept as it is, not copied.
    sample_weight : array-like of shape (n,) or None
        Rows of weight zero are left out.
    feature_names : tuple of str or None
        Taken from a frame where not given.
    policy : SitePolicy
    """

    def __init__(
        self,
        name: ClientId,
        X: Any,
        sample_weight: Any = None,
        feature_names: tuple[str, ...] | None = None,
        policy: SitePolicy | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ParameterError(f"A client's name must be a text that is not empty, got {name!r}.")
        frame = numeric_frame(X)
        if frame is not None:
            X, feature_names = ordered_array(frame), feature_names or tuple(map(str, frame.columns))
        self.name = name
        self.X = check_data(name, np.asarray(X), feature_names)
        self.sample_weight = check_weight(name, sample_weight, len(self.X))
        self.feature_names = feature_names
        self.policy = policy or SitePolicy()
        self.spoken: dict[str, dict[str, Spoken]] = {}  # by run and total
        if self.sample_weight is not None and not (self.sample_weight > 0).all():
            held = self.sample_weight > 0
            self.X, self.sample_weight = self.X[held], self.sample_weight[held]

    @cached_property
    def fingerprint(self) -> int:
        """A number that depends on the rows alone, from which the client's random choices follow.

        Not the name: renaming clients must not change a result. It never leaves the site.
        """
        digest = 0
        for rows in blocks(len(self.X), self.X.shape[1]):
            digest = zlib.crc32(double_block(self.X, rows).tobytes(), digest)
        return digest

    def generator(self, seed: int) -> np.random.Generator:
        """Return the client's own generator under the seed of a query."""
        return generator(seed, self.fingerprint)

    def answer(self, query: Query) -> Reply:
        """Answer a query about the data."""
        return _ANSWERS[type(query)](self, query)


def _work(site: Site, update: records.LocalUpdate) -> records.LocalSummary:
    return local_update(
        site.X,
        update.centroids,
        max_local=update.max_local,
        tol_local=update.tol_local,
        empty_clusters=update.empty_clusters,
        sample_weight=site.sample_weight,
    )


def _update(site: Site, query: records.LocalUpdate) -> records.LocalModel:
    local = _work(site, query)
    return records.LocalModel(local.centroids, weights_for(query.weighting, local))


def _word(site: Site, query: records.SendWord) -> Word:
    local = _work(site, query.update)
    weight = weights_for(query.update.weighting, local)
    if (weight[(local.counts == 0) & (local.last_counts == 0)] > 0).any():
        raise ParameterError(
            f"Client {site.name!r}: the weighting rule gives weight to a cluster in which the client has no "
            "points; this cannot be remembered. Return 0 there (where counts is 0), or use memory=None."
        )
    return Word(
        weighted_sum=weight[:, None] * local.centroids,
        weight=weight,
        holders=(weight > 0).astype(np.float64),
        inertia=local.received_inertia,
        n_samples=local.n_samples,
    )


def _change(site: Site, query: records.SendChange) -> records.Change:
    if site.name not in query.counted:
        raise FederationError(
            f"Client {site.name!r} was asked for what changed, but the query speaks only of "
            f"{', '.join(sorted(query.counted)[:5])}. The federation must know its sites by their own names."
        )
    word = _word(site, records.SendWord(query.update))
    totals = site.spoken.pop(query.run, {})
    change, spoken = speak(totals.get(query.total), word, query.exchange, query.counted[site.name])
    if spoken is not None:
        totals[query.total] = spoken
    site.spoken[query.run] = totals  # at the end: the run that was silent longest comes first
    while len(site.spoken) > RUNS_KEPT:
        site.spoken.pop(next(iter(site.spoken)))
    return change


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
    # Not the outermost value, which is somebody's, but the mean of the outermost few.
    few = site.policy.min_cluster_size
    n, m = site.X.shape
    if n < few:
        return records.Box(np.full(m, np.inf), np.full(m, -np.inf))  # bounds that bound nothing
    box = np.empty((2, m))
    for j in range(m):
        ordered = np.partition(site.X[:, j], sorted({few - 1, n - few}))
        box[:, j] = ordered[:few].mean(dtype=np.float64), ordered[n - few :].mean(dtype=np.float64)
    return records.Box(box[0], box[1])


def _cluster(site: Site, query: records.LocalClusters) -> records.CentroidSet:
    return local_clusters(
        site.X,
        query.n_clusters,
        query.method,
        site.generator(query.seed),
        n_init=query.n_init,
        max_iter=query.max_iter,
        min_cluster_size=site.policy.min_cluster_size,
        sample_weight=site.sample_weight,
    )


def _draw(site: Site, query: records.DrawPoint) -> records.Candidate:
    n, m = site.X.shape
    if n < site.policy.min_cluster_size:
        return records.Candidate(np.zeros(m), 0.0)
    potential = np.ones(n) if site.sample_weight is None else site.sample_weight
    if len(query.centroids):
        nearest = assign(site.X, query.centroids)
        potential = potential * distances_to_own(site.X, query.centroids, nearest)
    total = float(potential.sum())
    if total == 0:  # every row is a centroid already
        return records.Candidate(np.zeros(m), 0.0)
    rng = site.generator(query.seed)
    mean_of = min(n, max(query.mean_of, site.policy.min_cluster_size))
    if query.spread:
        rows = rng.choice(n, size=mean_of, replace=False)
    else:
        drawn = site.X[[rng.choice(n, p=potential / total)]].astype(np.float64)
        to_drawn = distances_to_own(site.X, drawn, np.zeros(n, dtype=np.intp))
        rows = np.argsort(to_drawn, kind="stable")[:mean_of]
    return records.Candidate(double_block(site.X, rows).mean(axis=0), total)


def _bundle(site: Site, query: records.Bundle) -> records.BundleReply:
    return records.BundleReply(tuple(site.answer(part) for part in query.queries))


_ANSWERS: dict[type, Callable[[Site, Any], Reply]] = {
    records.LocalUpdate: _update,
    records.SendWord: _word,
    records.SendChange: _change,
    records.Score: _score,
    records.Describe: _describe,
    records.FindBox: _find_box,
    records.LocalClusters: _cluster,
    records.DrawPoint: _draw,
    records.Bundle: _bundle,
}
