"""The process that compiles ahead: it does a little of what a run does, and says when what is compiled."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from fedkmeans.kernels.base import Rows
from fedkmeans.kernels.numba.ahead import SCAN, STEPS
from fedkmeans.kernels.numba.bounds_cache import FOLLOWED_COLUMNS
from fedkmeans.kernels.numba.kernel import KERNEL, memo_of
from fedkmeans.kernels.numba.work import Work


def main(name: str, max_local: str, stamp: str) -> None:
    """Compile for rows of a type, and for one local step or for several."""
    numbers = 100 * np.random.default_rng(0).random((80, FOLLOWED_COLUMNS + 7))
    rows = Rows(numbers.astype(name), np.array([0, 40, 80]))
    KERNEL.lloyd_step(rows.X, numbers[:8])
    _say(SCAN)
    memo, received = memo_of(rows), numbers[:8].copy()
    trail = memo.find_trail(rows, received, with_gram=int(max_local) > 1)
    assert trail is not None, "rows of this size are followed"
    nobody = np.empty(0, dtype=np.int64)
    work = Work(rows, memo, nobody, received, int(max_local), 0.0, False, False, 1)
    work.step_follower(trail)(nobody, trail.take_buffers(rows.X.dtype)[1])
    _say(STEPS)
    Path(stamp).touch()


def _say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
