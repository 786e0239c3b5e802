"""Does a reply fit its query? What a server looks at before it counts what a stranger sent.

`wire.decode` makes sure that a reply is *some* record; here it must be one that an honest site could
have sent to this very query: of the right kind and shapes, with numbers that are numbers. That a site
speaks the truth about its rows nobody can check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedkmeans._utils.typing import FloatArray
from fedkmeans.errors import WireError
from fedkmeans.protocol import messages
from fedkmeans.protocol.messages import Query
from fedkmeans.protocol.statistics import ClusterStatistics

# A site refuses rows with larger numbers, as their squares overflow; a mean of them may be a hair larger.
LARGEST = 1e150 * (1 + 1e-9)
# Larger whole numbers are no counts.
_LARGEST_COUNT = 2**53
_LONGEST_NAME, _LONGEST_KERNEL = 10_000, 100


def expected_types(query: Query) -> tuple[type, ...]:
    """What kinds of reply a query may be answered with."""
    return (_CHECKS[type(query)][0],)


def check_reply(query: Query, reply: Any, n_features: int | None) -> None:
    """Refuse a reply that no honest site would have sent.

    Parameters
    ----------
    query : Query
    reply : object
        As `wire.decode` returns it.
    n_features : int or None
        Columns that the sites have, where that is known already.

    Raises
    ------
    WireError
        With one line that says what is wrong; the caller knows whose reply it is.
    """
    kind, check = _CHECKS[type(query)]
    if type(reply) is not kind:
        raise WireError(
            f"{type(query).__name__} is answered with {kind.__name__}, the reply is {type(reply).__name__}."
        )
    check(query, reply, n_features)


def _array(name: str, array: Any, shape: tuple[int | None, ...], largest: float = LARGEST) -> FloatArray:
    """Refuse what is no array of finite numbers of that shape; None stands for any length."""
    if not isinstance(array, np.ndarray) or array.dtype != np.float64:
        raise WireError(f"{name} is no array of float64.")
    fits = len(array.shape) == len(shape) and all(
        wanted is None or side == wanted for side, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = "(" + ", ".join("any" if side is None else str(side) for side in shape) + ")"
        raise WireError(f"{name} has shape {array.shape}, expected {wanted}.")
    if not np.isfinite(array).all():
        raise WireError(f"{name} has values that are missing (NaN) or infinite.")
    if not (np.abs(array) <= largest).all():
        raise WireError(f"{name} has huge values, up to {np.abs(array).max():.3g}.")
    return array


def _not_negative(name: str, array: Any, shape: tuple[int | None, ...]) -> FloatArray:
    if (_array(name, array, shape) < 0).any():
        raise WireError(f"{name} has negative values.")
    return np.asarray(array)


def _real(name: str, value: Any, least: float = -np.inf) -> None:
    """Refuse what is no finite number, or less than `least`."""
    if not isinstance(value, float | int) or not np.isfinite(value):
        raise WireError(f"{name} is {value!r}, which is no finite number.")
    if value < least:
        raise WireError(f"{name} is {value!r}, expected {least:g} or more.")


def _count(name: str, value: Any) -> None:
    if not isinstance(value, int) or not 1 <= value <= _LARGEST_COUNT:
        raise WireError(f"{name} is {value!r}, expected a whole number from 1 to 2**53.")


def _model(query: messages.LocalUpdate, reply: messages.LocalModel, n_features: int | None) -> None:
    k, m = query.centroids.shape
    _array("centroids", reply.centroids, (k, m))
    _not_negative("weights", reply.weights, (k,))


def _statistics(query: messages.SendStatistics, reply: ClusterStatistics, n_features: int | None) -> None:
    k, m = query.update.centroids.shape
    weight = _not_negative("weight", reply.weight, (k,))
    sums = _array("weighted_sum", reply.weighted_sum, (k, m), largest=np.inf)
    # They are weights times centroids; so a cluster without weight has no sum either.
    if (np.abs(sums) > weight[:, None] * LARGEST).any():
        raise WireError("weighted_sum is huge compared with weight, or there is no weight.")
    _array("holders", reply.holders, (k,))
    if not np.array_equal(reply.holders, weight > 0):
        raise WireError("holders is not one where there is weight and zero elsewhere.")
    _real("inertia", reply.inertia, 0)
    _positive("n_samples", reply.n_samples)


def _positive(name: str, value: Any) -> None:
    _real(name, value)
    if not value > 0:
        raise WireError(f"{name} is {value!r}, expected more than 0.")


def _delta(query: messages.SendDelta, reply: messages.StatisticsDelta, n_features: int | None) -> None:
    if reply.exchange != query.exchange:
        raise WireError("it belongs to another exchange: it came late, or was sent a second time.")
    if reply.lost not in (0, 1):
        raise WireError(f"lost is {reply.lost!r}, expected 0 or 1.")
    k, m = query.update.centroids.shape
    difference = reply.difference
    if not isinstance(difference, ClusterStatistics):
        raise WireError("difference is no Word.")
    _array("weighted_sum", difference.weighted_sum, (k, m))
    _array("weight", difference.weight, (k,))
    if not np.isin(_array("holders", difference.holders, (k,)), (-1, 0, 1)).all():
        raise WireError("holders has changes other than -1, 0 and 1.")
    _real("inertia", difference.inertia)
    _real("n_samples", difference.n_samples)
    if reply.lost and any(np.any(part) for part in difference.parts()):
        raise WireError("it says that what was counted is lost, and yet what has changed.")


def _score(query: messages.Score, reply: messages.ScoreTotals, n_features: int | None) -> None:
    if reply.n_clients != 1:
        raise WireError(f"n_clients is {reply.n_clients!r}, expected 1.")
    _real("inertia", reply.inertia, 0)
    _positive("n_samples", reply.n_samples)
    _real("client_scores", reply.client_scores, 0)
    if not np.isclose(reply.client_scores, reply.inertia / reply.n_samples, rtol=1e-9, atol=0):
        raise WireError("client_scores is not inertia / n_samples.")


def _description(query: messages.Describe, reply: messages.Description, n_features: int | None) -> None:
    # Whether sites have the same columns is for the algorithm to say, which knows whom to compare.
    _count("n_samples", reply.n_samples)
    _count("n_features", reply.n_features)
    if len(reply.kernel) > _LONGEST_KERNEL:
        raise WireError(f"kernel has {len(reply.kernel)} characters, more than {_LONGEST_KERNEL}.")
    if reply.feature_names is None:
        return
    if len(reply.feature_names) != reply.n_features:
        raise WireError(f"{len(reply.feature_names)} column names for {reply.n_features} columns.")
    longest = max(map(len, reply.feature_names))
    if longest > _LONGEST_NAME:
        raise WireError(f"a column name has {longest} characters, more than {_LONGEST_NAME}.")


def _box(query: messages.FindBox, reply: messages.Box, n_features: int | None) -> None:
    low, high = reply.minimum, reply.maximum
    if not isinstance(low, np.ndarray) or not isinstance(high, np.ndarray) or low.shape != high.shape:
        raise WireError("minimum and maximum are no arrays of one shape.")
    if low.size and (low == np.inf).all() and (high == -np.inf).all():
        # Bounds that bound nothing, from a site with too few rows to tell.
        low, high = np.zeros_like(low), np.zeros_like(high)
    _array("minimum", low, (n_features,))
    _array("maximum", high, (n_features,))
    if not low.size:
        raise WireError("the box has no columns.")
    if (low > high).any():
        raise WireError("minimum is larger than maximum.")


def _clusters(query: messages.LocalClusters, reply: messages.CentroidSet, n_features: int | None) -> None:
    _array("centroids", reply.centroids, (None, n_features))
    k = len(reply.centroids)
    if k > query.n_clusters:
        raise WireError(f"there are {k} centroids, {query.n_clusters} were asked for.")
    if not reply.centroids.shape[1]:
        raise WireError("the centroids have no columns.")
    # A centroid may be left without rows by the very last step.
    _not_negative("counts", reply.counts, (k,))


def _candidate(query: messages.DrawPoint, reply: messages.Candidate, n_features: int | None) -> None:
    _array("point", reply.point, (query.centroids.shape[1],))
    _real("weight", reply.weight, 0)


def _bundle(query: messages.Bundle, reply: messages.BundleReply, n_features: int | None) -> None:
    if len(reply.replies) != len(query.queries):
        raise WireError(f"{len(reply.replies)} replies to a bundle of {len(query.queries)} queries.")
    for part, answer in zip(query.queries, reply.replies, strict=True):
        check_reply(part, answer, n_features)


_CHECKS: dict[type, tuple[type, Callable[[Any, Any, int | None], None]]] = {
    messages.LocalUpdate: (messages.LocalModel, _model),
    messages.SendStatistics: (ClusterStatistics, _statistics),
    messages.SendDelta: (messages.StatisticsDelta, _delta),
    messages.Score: (messages.ScoreTotals, _score),
    messages.Describe: (messages.Description, _description),
    messages.FindBox: (messages.Box, _box),
    messages.LocalClusters: (messages.CentroidSet, _clusters),
    messages.DrawPoint: (messages.Candidate, _candidate),
    messages.Bundle: (messages.BundleReply, _bundle),
}
