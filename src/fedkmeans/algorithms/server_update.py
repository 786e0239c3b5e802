"""The server's update, to be held against the paper's equations line by line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedkmeans._utils.typing import FloatArray
from fedkmeans.algorithms.state import State, Target
from fedkmeans.kernels.reference.lloyd import distance_between, means
from fedkmeans.protocol.messages import ClusterTotals


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
        How many movements and estimates are looked back on now; None for all. What was kept for an
        earlier, longer look back stays: it may grow again.
    """
    c, c_previous = state.centroids, state.previous
    # C + η (d - C) is written d - (1 - η) (d - C): so η = 1 goes to d itself; C + (d - C) would be rounded.
    # In place, as these are the largest arrays that a server touches in every round.
    c_new = found.d - c
    c_new *= 1 - learning_rate
    np.subtract(found.d, c_new, out=c_new)
    drift = c - c_previous
    drift *= momentum
    c_new += drift
    # A round without an answer says nothing about whether the run has settled.
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
