"""The client's side of a total to which each client sends only what changed.

The server keeps the sum and cannot take a client's part out of it; the client must know what its
part is. A change that was sent may or may not have been counted, since replies get lost, so a
client keeps two things: the part that the server is known to have counted, and the latest change
it sent. With each query the server says which round's change it counted last, and that decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedkmeans.records import Change
from fedkmeans.words import RunningTotal, Word


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a client has said towards one running total.

    Attributes
    ----------
    counted : RunningTotal
        Sum of the changes known to be counted: the client's part of the server's total.
    counted_round : int or None
        Round of the latest of them.
    pending : Word
        The latest change sent, of which nothing is known yet.
    pending_round : int
    begun : int
        How often the total had been begun anew then.
    """

    counted: RunningTotal
    counted_round: int | None
    pending: Word
    pending_round: int
    begun: int


def speak(
    spoken: Spoken | None, word: Word, round_: int, acknowledged: int | None, begun: int = 0
) -> tuple[Change, Spoken | None]:
    """Say what is new, and what to keep in mind.

    What is sent is the difference to the sum of all that was counted, not to the last word: what
    one difference rounds off, the next one brings.

    Parameters
    ----------
    spoken : Spoken or None
        What the client remembers of this total; None if nothing.
    word : Word
        What it has to say now.
    round_ : int
    acknowledged : int or None
        Round of its latest change that the server counted; None if it counted none.
    begun : int
        How often the total has been begun anew; what was said before no longer counts.

    Returns
    -------
    change : Change
        With `lost` 1 if the client does not know what was counted.
    spoken : Spoken or None
    """
    k, m = word.weighted_sum.shape
    if spoken is not None and spoken.begun != begun:
        spoken = None
    if acknowledged is None:
        counted = RunningTotal.nothing(k, m)
    elif spoken is not None and acknowledged == spoken.pending_round:
        counted = spoken.counted.plus(spoken.pending)
    elif spoken is not None and acknowledged == spoken.counted_round:
        counted = spoken.counted
    else:
        return Change(Word.nothing(k, m), lost=1), None
    difference = counted.to(word)
    return Change(difference, lost=0), Spoken(counted, acknowledged, difference, round_, begun)
