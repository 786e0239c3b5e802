"""Weighting rules: how much a client's centroid counts, per cluster and round.

A rule is a function of the result of a client's local steps, and returns one non-negative weight per
cluster. The server divides by the sum over clients, so only proportions matter. To add a rule, write the
function and add it to `WEIGHTINGS`; in process, pass the function itself.

The rules in this module also accept many clients at once, with arrays (N, k) instead of (k,) and no
centroids: they work over the last axis. A function passed by a user gets one client at a time.
"""

from __future__ import annotations

import numpy as np

from fedkmeans._utils.typing import FloatArray
from fedkmeans.errors import ParameterError
from fedkmeans.kernels.base import LocalSummary, WeightingRule


def dynamic(local: LocalSummary) -> FloatArray:
    """DWF k-means: the number of points nearest to each centroid as received."""
    return local.counts


def equal(local: LocalSummary) -> FloatArray:
    """EWF k-means: every client counts the same (1/|I_t| once the server has divided)."""
    return np.ones_like(local.counts)


def by_size(local: LocalSummary) -> FloatArray:
    """Federated averaging: every centroid of a client counts with the client's number of rows."""
    return np.expand_dims(local.n_samples, -1) * np.ones_like(local.counts)


def by_compactness(local: LocalSummary) -> FloatArray:
    """Points per cluster, times the compactness of the cluster relative to the client's others.

    With v_j the mean squared distance within cluster j and v the mean over the client's rows, the
    factor is v / (v + v_j): one for a cluster that is a single point, near zero for a wide one.
    """
    filled = np.maximum(local.last_counts, np.finfo(np.float64).tiny)
    spread = local.inertia / filled
    typical = np.expand_dims(local.inertia.sum(axis=-1) / local.n_samples, -1)
    total = typical + spread
    return np.asarray(local.counts * np.where(total > 0, typical / np.where(total > 0, total, 1.0), 1.0))


def last_counts(local: LocalSummary) -> FloatArray:
    """Points in each cluster in the last local step, as FKM sends them."""
    return local.last_counts


WEIGHTINGS: dict[str, WeightingRule] = {
    "dynamic": dynamic,
    "equal": equal,
    "by_size": by_size,
    "by_compactness": by_compactness,
    "last_counts": last_counts,
}


# Rules that use inertia, which takes another pass over the rows.
USES_INERTIA = frozenset({"by_compactness"})

# Rules that give weight to clusters in which the client has no points. There its centroid only repeats
# what the server sent, which is useless to an algorithm that remembers statistics.
ECHOING = frozenset({"equal", "by_size"})


def find_rule(weighting: str | WeightingRule) -> WeightingRule:
    """Return the rule with this name, or the function itself."""
    if callable(weighting):
        return weighting
    if not isinstance(weighting, str) or weighting not in WEIGHTINGS:
        raise ParameterError(
            f"must be a function or one of {', '.join(WEIGHTINGS)}; got {weighting!r}.", parameter="weighting"
        )
    return WEIGHTINGS[weighting]


def needs_inertia(weighting: str | WeightingRule) -> bool:
    """Whether the rule may use inertia; any function might."""
    return callable(weighting) or weighting in USES_INERTIA


def weights_for(weighting: str | WeightingRule, local: LocalSummary) -> FloatArray:
    """Apply a rule and check its result.

    Returns
    -------
    ndarray of shape (k,), or (N, k) for many clients at once
    """
    rule = find_rule(weighting)
    weights = np.asarray(rule(local), dtype=np.float64)
    name = getattr(rule, "__name__", repr(rule))
    if weights.shape != local.counts.shape:
        raise ParameterError(
            f"weighting rule {name} must return one weight per cluster, shape {local.counts.shape}; "
            f"it returned shape {weights.shape}."
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ParameterError(f"weighting rule {name} returned a negative or infinite weight: {weights}.")
    return weights
