"""The server's update, to be held against the paper's equations line by line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedkmeans.lloyd import means
from fedkmeans.records import ClusterTotals, State, Target
from fedkmeans.typing import FloatArray


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
    return means(total.weighted_sum, total.weight, otherwise=total.plain_sum / total.n_clients)


def advance(state: State, found: Target, learning_rate: float, momentum: float, keep: int) -> State:
    """C^(t+1) = C^(t) + η (d - C^(t)) + μ (C^(t) - C^(t-1)).

    Parameters
    ----------
    state : State
    found : Target
        With d, the aggregated centroids of this round.
    learning_rate, momentum : float
        η and μ.
    keep : int
        How many movements and estimates to remember.
    """
    c, c_previous = state.centroids, state.previous
    c_new = c + learning_rate * (found.d - c) + momentum * (c - c_previous)
    movement = float(np.linalg.norm(c_new - c))
    return replace(
        state,
        centroids=c_new,
        previous=c,
        round=state.round + 1,
        movements=(*state.movements, movement)[-keep:],
        estimates=(*state.estimates, found.estimate)[-keep:],
        window=found.window,
        memory=found.memory,
    )
