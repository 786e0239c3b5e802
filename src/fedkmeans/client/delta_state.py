"""The client's side of a total to which each client sends only what changed.

The server keeps the sum and cannot take a client's part out of it; the client must know what its
part is. A change that was sent may or may not have been counted, since replies get lost, so a
client keeps two things: the part that the server is known to have counted, and the latest change
it sent. With each query the server says in which exchange it counted the client last, and that
decides. Exchanges have names that are used once, so that nothing else can be taken for the one meant.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedkmeans.protocol.field_types import register
from fedkmeans.protocol.messages import StatisticsDelta
from fedkmeans.protocol.statistics import ClusterStatistics, RunningTotal


@dataclass(frozen=True, slots=True)
class DeltaState:
    """What a client has said towards one running total.

    Attributes
    ----------
    counted : RunningTotal
        Sum of the changes known to be counted: the client's part of the server's total.
    counted_in : str or None
        Exchange of the latest of them.
    pending : Word
        The latest change sent, of which nothing is known yet.
    pending_in : str
        Its exchange.
    """

    counted: RunningTotal
    counted_in: str | None
    pending: ClusterStatistics
    pending_in: str


register(DeltaState)  # a site keeps it on disk, in the form in which messages travel


def make_delta(
    state: DeltaState | None, word: ClusterStatistics, exchange: str, acknowledged: str | None
) -> tuple[StatisticsDelta, DeltaState | None]:
    """Say what is new, and what to keep in mind.

    What is sent is the difference to the sum of all that was counted, not to the last word: what
    one difference rounds off, the next one brings.

    Parameters
    ----------
    state : DeltaState or None
        What the client remembers of this total; None if nothing.
    word : Word
        What it has to say now.
    exchange : str
    acknowledged : str or None
        Exchange of its latest change that the server counted; None if it counted none.

    Returns
    -------
    change : Change
        With `lost` 1 if the client does not know what was counted.
    state : DeltaState or None
        What to remember; what it was, if it does not fit.
    """
    k, m = word.weighted_sum.shape
    if acknowledged is None:
        counted = RunningTotal.nothing(k, m)
    elif state is not None and acknowledged == state.pending_in:
        counted = state.counted.plus(state.pending)
    elif state is not None and acknowledged == state.counted_in:
        counted = state.counted
    else:
        return StatisticsDelta(ClusterStatistics.nothing(k, m), lost=1, exchange=exchange), state
    difference = counted.to(word)
    return StatisticsDelta(difference, lost=0, exchange=exchange), DeltaState(
        counted, acknowledged, difference, exchange
    )
