"""Look-ahead: correct the target of a round for the age of the statistics that it is made of.

If some of the clients are asked per round, the statistics of the others are old, on average by half of
the rounds that it takes to ask everybody. The target is therefore where the centroids should have been
some rounds ago. Look-ahead follows the recent movement of the target into the present. At a fixed point the
target does not move, so look-ahead changes nothing there; if all clients are asked in each round, the
age is zero. docs/memory.md has the theory and the study.
"""

from __future__ import annotations

import math

import numpy as np

from fedkmeans._utils.typing import DataArray, FloatArray


class LookAhead:
    """Moves targets ahead, by a part of the age of the statistics; updated in place.

    It ends for good as soon as the score has not decreased over a window. The run then has the guarantees
    of a run without it.

    Parameters
    ----------
    part : float
        The part of the age that is corrected; 0 means no look-ahead.
    """

    def __init__(self, part: float) -> None:
        self._part = part
        self.start_again()

    def start_again(self) -> None:
        """Forget earlier targets and scores: after a change of the clients, they are those of other rows."""
        self._latest: FloatArray | None = None  # target
        self._average: FloatArray | None = None  # of earlier targets, over about a window
        self._ahead: FloatArray | float = 0.0  # how far targets are moved
        self._still = 0  # number of rounds in which the target has not changed
        self._sum, self._rounds = 0.0, 0  # of the estimates of the score in this window
        self._last_mean = math.inf  # of the window before

    def move(
        self, d: FloatArray, held: DataArray, age: float, window: int | None, estimate: float
    ) -> FloatArray:
        """Return the target (k, m) of a round with replies, moved ahead.

        Parameters
        ----------
        d : ndarray of shape (k, m)
        held : ndarray of shape (k,), bool
            Clusters with rows. Others are not moved: their target is the centroid itself, which would
            run away.
        age : float
            Mean age of the statistics in rounds.
        window : int or None
            Number of latest rounds in which every client replied; None if some client never replied.
        estimate : float
            The score, as far as the server knows it.
        """
        if window is None or window < 2 or not self._part or self._has_ended(window, estimate):
            self._average, self._ahead = None, 0.0
            return d
        self._still = self._still + 1 if self._latest is not None and np.array_equal(d, self._latest) else 0
        if self._average is None or self._still >= window:  # nothing changes any more
            self._average = d
        behind = np.where(held[:, None], d - self._average, 0.0)
        # If the target moves by u in each round, the average of a window is about `window` times u behind.
        self._ahead = self._part * age / (window - 1) * behind
        self._average = d - behind * (1 - 1 / window)
        self._latest = d
        return d + self._ahead

    def keep(self, d: FloatArray) -> FloatArray:
        """Return the target (k, m) of a round without replies, moved ahead as in the round before."""
        return d + self._ahead

    def _has_ended(self, window: int, estimate: float) -> bool:
        self._sum, self._rounds = self._sum + estimate, self._rounds + 1
        if self._rounds >= window:
            mean, self._sum, self._rounds = self._sum / self._rounds, 0.0, 0
            if mean >= self._last_mean:
                self._part = 0.0
            self._last_mean = mean
        return not self._part
