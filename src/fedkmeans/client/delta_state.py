"""The contribution of a client to a running total that is updated with deltas.

The server stores only the sum, so each client must remember its own contribution. A reply can be lost,
so a client does not know whether the server counted its latest delta. It therefore stores both the sum
of the deltas known to be counted and the latest delta. Each query names the exchange in which the server
last counted the client, which resolves the latest delta. Every exchange has a unique name.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedkmeans.protocol.field_types import register
from fedkmeans.protocol.messages import StatisticsDelta
from fedkmeans.protocol.statistics import ClusterStatistics, RunningTotal


@dataclass(frozen=True, slots=True)
class DeltaState:
    """The deltas that a client has sent for one running total.

    Attributes
    ----------
    counted : RunningTotal
        Sum of the deltas known to be counted: the contribution of the client to the total.
    counted_in : str or None
        Exchange of the latest counted delta.
    pending : ClusterStatistics
        The latest delta; it is not known yet whether the server counted it.
    pending_in : str
        Exchange of the pending delta.
    """

    counted: RunningTotal
    counted_in: str | None
    pending: ClusterStatistics
    pending_in: str

    def state(self) -> DeltaState:
        """Return the state itself; see `StackedDelta.state`."""
        return self


register(DeltaState)  # sites store it on disk, encoded like a message


def make_delta(
    state: DeltaState | None, statistics: ClusterStatistics, exchange: str, acknowledged: str | None
) -> tuple[StatisticsDelta, DeltaState | None]:
    """Return the delta to send and the state to store.

    The delta is the difference from the sum of all counted deltas, not from the previous statistics.
    Each delta thus corrects the rounding errors of earlier ones.

    Parameters
    ----------
    state : DeltaState or None
        The stored state for this total; None if there is none.
    statistics : ClusterStatistics
        The current statistics of the client.
    exchange : str
    acknowledged : str or None
        Exchange of the latest delta that the server counted; None if it counted none.

    Returns
    -------
    delta : StatisticsDelta
        Has `lost` = 1 if the client does not know the acknowledged exchange.
    state : DeltaState or None
        The state to store; unchanged if the acknowledged exchange is unknown.
    """
    k, m = statistics.weighted_sum.shape
    if acknowledged is None:
        counted = RunningTotal.nothing(k, m)
    elif state is not None and acknowledged == state.pending_in:
        counted = state.counted.plus(state.pending)
    elif state is not None and acknowledged == state.counted_in:
        counted = state.counted
    else:
        return StatisticsDelta(ClusterStatistics.nothing(k, m), lost=1, exchange=exchange), state
    difference = counted.to(statistics)
    return StatisticsDelta(difference, lost=0, exchange=exchange), DeltaState(
        counted, acknowledged, difference, exchange
    )
