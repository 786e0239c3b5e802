"""The client's part of a total to which each client sends only what changed.

The server keeps the sum and cannot take a client's part out of it, so the client must know its part.
A change that was sent may or may not have been counted, because replies get lost. A client therefore
keeps two things: the part that the server is known to have counted, and the latest change it sent.
With each query the server says in which exchange it last counted the client, and that decides. Every
exchange has a name that is used once, so that none is mistaken for another.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedkmeans.protocol.field_types import register
from fedkmeans.protocol.messages import StatisticsDelta
from fedkmeans.protocol.statistics import ClusterStatistics, RunningTotal


@dataclass(frozen=True, slots=True)
class DeltaState:
    """What a client has sent towards one running total.

    Attributes
    ----------
    counted : RunningTotal
        Sum of the changes known to be counted: the client's part of the server's total.
    counted_in : str or None
        Exchange of the latest of them.
    pending : ClusterStatistics
        The latest change sent; whether it was counted is not known yet.
    pending_in : str
        Its exchange.
    """

    counted: RunningTotal
    counted_in: str | None
    pending: ClusterStatistics
    pending_in: str

    def state(self) -> DeltaState:
        """The state itself; see `StackedDelta.state`."""
        return self


register(DeltaState)  # a site keeps it on disk, encoded like a message


def make_delta(
    state: DeltaState | None, statistics: ClusterStatistics, exchange: str, acknowledged: str | None
) -> tuple[StatisticsDelta, DeltaState | None]:
    """Return what changed, and what to remember.

    The change is the difference to the sum of all changes that were counted, not to the last
    statistics: what one difference rounds off, the next one includes.

    Parameters
    ----------
    state : DeltaState or None
        What the client remembers of this total; None if nothing.
    statistics : ClusterStatistics
        Its statistics now.
    exchange : str
    acknowledged : str or None
        Exchange of its latest change that the server counted; None if it counted none.

    Returns
    -------
    change : StatisticsDelta
        With `lost` 1 if the client does not know what was counted.
    state : DeltaState or None
        What to remember; unchanged if the acknowledged exchange is unknown.
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
