"""The server's update, in the notation of the paper's equations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedkmeans._utils.typing import FloatArray
from fedkmeans.algorithms.state import State, Target
from fedkmeans.kernels.reference.lloyd import distance_between, means
from fedkmeans.protocol.messages import ClusterTotals
from fedkmeans.protocol.statistics import ClusterStatistics


def target(total: ClusterTotals) -> FloatArray:
    """d_j = Σ_i λ_ij c_ij with λ_ij = ω_ij / Σ_i ω_ij, or 1/|I_t| where all weights are zero.

    Parameters
    ----------
    total : ClusterTotals
        Sums over the clients I_t that answered.

    Returns
    -------
    ndarray of shape (k, m)
    """
    d = means(total.weighted_sum, total.weight, otherwise=total.weighted_sum)  # otherwise: see below
    unweighted = ~(total.weight > 0)
    d[unweighted] = total.plain_sum[unweighted] / total.n_clients
    return d


def remembered_target(
    total: ClusterStatistics, centroids: FloatArray, share: float, least: float = 0.5
) -> FloatArray:
    """d_j = (S_j + w c_j) / (W_j + w) with memory; a cluster without points stays where it is.

    Clients whose statistics are not known are taken to weigh as much as the others on average, spread
    evenly over the clusters: w = (1/f - 1) Σ_j W_j / k if a share f of the clients is known. Their
    statistics are the centroids as they are, not the initial ones: clients that never answer slow
    the run down, but do not change where it leads.

    Parameters
    ----------
    total : ClusterStatistics
        Sums over the known clients.
    centroids : ndarray of shape (k, m)
        C^(t).
    share : float
        f, known clients among all.
    least : float
        Clusters with fewer holders count as empty.

    Returns
    -------
    ndarray of shape (k, m)
    """
    held = total.holders >= least
    weight = np.where(held, total.weight, 0.0)
    weighted_sum = np.where(held[:, None], total.weighted_sum, 0.0)
    w = (1 / share - 1) * weight.sum() / len(weight) if share else 0.0
    return means(weighted_sum + w * centroids, weight + w, otherwise=centroids)


def advance(
    state: State, found: Target, learning_rate: float, momentum: float, keep: int | None = None
) -> State:
    """C^(t+1) = C^(t) + η (d - C^(t)) + μ (C^(t) - C^(t-1)).

    Parameters
    ----------
    state : State
    found : Target
        With d, the aggregated centroids of this round.
    learning_rate, momentum : float
        η and μ.
    keep : int or None
        How many movements and estimates the stopping criteria look back on now; None for all. What an
        earlier, longer look back kept stays: it may grow again.
    """
    c, c_previous = state.centroids, state.previous
    # C + η (d - C) is written d - (1 - η) (d - C), so that η = 1 gives exactly d; C + (d - C) would be
    # rounded. In place, as these are the largest arrays of a server.
    c_new = found.d - c
    c_new *= 1 - learning_rate
    np.subtract(found.d, c_new, out=c_new)
    drift = c - c_previous
    drift *= momentum
    c_new += drift
    # A round without an answer does not show whether the run has settled.
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
