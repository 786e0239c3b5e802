"""Forgetting: all earlier statistics count, but their weight decreases with every round.

The server stores one total and clients store nothing. This is online EM with a constant step size
(Cappé & Moulines 2009); docs/memory.md compares it with the default.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedkmeans._utils.typing import ClientId
from fedkmeans.algorithms.response_log import ResponseLog
from fedkmeans.algorithms.server_update import remembered_target
from fedkmeans.algorithms.state import State, Target
from fedkmeans.algorithms.wf_kmeans import LocalWork
from fedkmeans.protocol.exchange import AskTotal, Conversation, Total
from fedkmeans.protocol.messages import SendStatistics, bytes_to
from fedkmeans.protocol.statistics import ClusterStatistics

# A cluster whose decayed number of holders is below this consists of rounding errors.
_FADED = 1e-100


@dataclass(frozen=True, slots=True)
class FadingTotal:
    """The memory of `forgetting`."""

    total: ClusterStatistics
    response_log: ResponseLog


def forgetting(
    state: State,
    clients: tuple[ClientId, ...],
    chosen: tuple[ClientId, ...],
    *,
    work: LocalWork,
    gamma: float,
) -> Conversation[Target]:
    """S ← γ S + Σ ω c, W ← γ W + Σ ω over the clients that replied; d = S / W.

    In round t = 0, 1, … γ is at most 1 - 1/(t + 2), so that the first rounds are averaged.
    """
    memory: FadingTotal = state.memory or FadingTotal(
        ClusterStatistics.nothing(*state.centroids.shape), ResponseLog(state.round)
    )
    response_log = memory.response_log
    response_log.check_round(state.round)
    query = SendStatistics(work.query(state.centroids))
    answer: Total = yield AskTotal(query, chosen, optional=True)
    total = memory.total * min(gamma, 1 - 1 / (state.round + 2))
    if answer.answered:
        total = total + answer.record
    response_log.record(clients, chosen, answer.answered)
    return Target(
        d=remembered_target(total, state.centroids, share=1.0, least=_FADED),
        answered=answer.answered,
        sent=bytes_to(chosen, query),
        received=answer.received,
        memory=FadingTotal(total, response_log),
        estimate=total.mean_inertia,
        window=response_log.window(),
    )
