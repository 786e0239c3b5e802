"""Does a query make sense to a site? What comes over a wire is looked at before it touches the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedkmeans.errors import WireError
from fedkmeans.kernels.weighting import WEIGHTINGS
from fedkmeans.protocol import messages
from fedkmeans.protocol.messages import LOCAL_METHODS, Query
from fedkmeans.protocol.replies import LARGEST

_EMPTY_CLUSTERS = ("keep", "relocate", "drop")
# Beyond these, a query is no work but an attack or a mistake.
_MOST_STEPS, _MOST_SEED = 10**6, 2**64


def check_query(query: Query, n_features: int) -> None:
    """Raise `WireError`, in one line, unless a site with so many columns can answer the query."""
    _CHECKS[type(query)](query, n_features)


def _centroids(centroids: Any, n_features: int, least: int = 1) -> None:
    if centroids.ndim != 2 or centroids.shape[1] != n_features or len(centroids) < least:
        raise WireError(
            f"the query's centroids have shape {centroids.shape}, and this site has {n_features} columns."
        )
    if not (np.abs(centroids) <= LARGEST).all():
        raise WireError("the query's centroids are not all finite numbers of a sensible size.")


def _count(name: str, value: int, least: int = 1, most: int = _MOST_STEPS) -> None:
    if not least <= value <= most:
        raise WireError(f"the query's {name} is {value}, not between {least} and {most}.")


def _choice(name: str, value: Any, choices: Any) -> None:
    if value not in choices:
        raise WireError(f"the query's {name} {str(value)[:50]!r} is not known here; update fedkmeans.")


def _update(query: messages.LocalUpdate, n_features: int) -> None:
    _centroids(query.centroids, n_features)
    _count("max_local", query.max_local)
    if not 0 <= query.tol_local < np.inf:
        raise WireError(f"the query's tol_local is {query.tol_local}, not a number from 0 on.")
    _choice("weighting", query.weighting, WEIGHTINGS)
    _choice("empty_clusters", query.empty_clusters, _EMPTY_CLUSTERS)


def _clusters(query: messages.LocalClusters, n_features: int) -> None:
    for name in ("n_clusters", "n_init", "max_iter"):
        _count(name, getattr(query, name))
    _count("seed", query.seed, 0, _MOST_SEED)
    _choice("method", query.method, LOCAL_METHODS)


def _draw(query: messages.DrawPoint, n_features: int) -> None:
    _centroids(query.centroids, n_features, least=0)
    _count("mean_of", query.mean_of)
    _count("seed", query.seed, 0, _MOST_SEED)


def _bundle(query: messages.Bundle, n_features: int) -> None:
    for part in query.queries:
        check_query(part, n_features)


_CHECKS: dict[type, Callable[[Any, int], None]] = {
    messages.LocalUpdate: _update,
    messages.SendStatistics: lambda query, m: _update(query.update, m),
    messages.SendDelta: lambda query, m: _update(query.update, m),
    messages.Score: lambda query, m: _centroids(query.centroids, m),
    messages.Describe: lambda query, m: None,
    messages.FindBox: lambda query, m: None,
    messages.LocalClusters: _clusters,
    messages.DrawPoint: _draw,
    messages.Bundle: _bundle,
}
