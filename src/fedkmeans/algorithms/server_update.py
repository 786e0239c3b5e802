"""The server's update, in the notation of the paper's equations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedkmeans._utils.typing import FloatArray
from fedkmeans.algorithms.state import State, Target
from fedkmeans.kernels.reference.lloyd import distance_between, means
from fedkmeans.protocol.messages import ClusterTotals
from fedkmeans.protocol.statistics import ClusterStatistics

HELD = 0.5  # clusters with fewer holders count as empty; sums of holders are whole numbers


def target(total: ClusterTotals) -> FloatArray:
    """d_j = Σ_i λ_ij c_ij with λ_ij = ω_ij / Σ_i ω_ij, or 1/|I_t| where all weights are zero.

    Parameters
    ----------
    total : ClusterTotals
        Sums over the clients I_t that replied.

    Returns
    -------
    ndarray of shape (k, m)
    """
    d = means(total.weighted_sum, total.weight, otherwise=total.weighted_sum)  # zero weights: see below
    unweighted = ~(total.weight > 0)
    d[unweighted] = total.plain_sum[unweighted] / total.n_clients
    return d


def remembered_target(
    total: ClusterStatistics, centroids: FloatArray, share: float, least: float = HELD
) -> FloatArray:
    """d_j = (S_j + w c_j) / (W_j + w) with memory; a cluster without points does not move.

    A client whose statistics are unknown gets the average weight of the known clients, distributed
    evenly over the clusters: w = (1/f - 1) Σ_j W_j / k if a fraction f of the clients is known. Its
    statistics are the current centroids, not the initial ones. Clients that never reply therefore
    slow the run down but do not change its fixed points.

    Parameters
    ----------
    total : ClusterStatistics
        Sums over the known clients.
    centroids : ndarray of shape (k, m)
        C^(t).
    share : float
        f, the fraction of known clients.
    least : float
        Clusters with fewer holders than this count as empty.

    Returns
    -------
    ndarray of shape (k, m)
    """
    held = total.holders >= least
    weight = np.where(held, total.weight, 0.0)
    weighted_sum = np.where(held[:, None], total.weighted_sum, 0.0)
    w = (1 / share - 1) * weight.sum() / len(weight) if share else 0.0
    if w:
        weighted_sum, weight = weighted_sum + w * centroids, weight + w
    return means(weighted_sum, weight, otherwise=centroids)


def advance(
    state: State, found: Target, learning_rate: float, momentum: float, keep: int | None = None
) -> State:
    """C^(t+1) = C^(t) + η (d - C^(t)) + μ (C^(t) - C^(t-1)).

    Parameters
    ----------
    state : State
    found : Target
        The target of this round, with the aggregated centroids d.
    learning_rate, momentum : float
        η and μ.
    keep : int or None
        Number of movements and estimates that the stopping criteria need; None means all. A history
        that is already longer is not shortened, because the number may grow again.
    """
    c, c_previous = state.centroids, state.previous
    # C + η (d - C) is computed as d - (1 - η) (d - C), which is exactly d for η = 1; C + (d - C) would
    # be rounded. The operations are in place, because these are the largest arrays of the server.
    c_new = found.d - c
    c_new *= 1 - learning_rate
    np.subtract(found.d, c_new, out=c_new)
    drift = c - c_previous
    drift *= momentum
    c_new += drift
    # A round without replies does not show whether the run has converged.
    news = bool(found.answered)
    movements = (distance_between(c_new, c, room=drift),) * news
    estimates = (found.estimate,) * news
    first = 0 if keep is None else -max(keep, len(state.movements))
    return replace(
        state,
        centroids=c_new,
        previous=c,
        round=state.round + 1,
        movements=(*state.movements, *movements)[first:],
        estimates=(*state.estimates, *estimates)[first:],
        window=found.window,
        memory=found.memory,
    )
