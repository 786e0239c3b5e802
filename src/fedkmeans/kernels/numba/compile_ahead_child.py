"""The process that compiles ahead: it runs a tiny example, and prints what is compiled."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from fedkmeans.kernels.base import Rows
from fedkmeans.kernels.numba.compile_ahead import SCAN, STEPS
from fedkmeans.kernels.numba.jit.structures import StepSettings
from fedkmeans.kernels.numba.kernel import KERNEL, cache_of
from fedkmeans.kernels.numba.kernel_cache import FOLLOWED_COLUMNS
from fedkmeans.kernels.numba.local_steps import LocalSteps


def main(name: str, max_local: str, stamp: str) -> None:
    """Compile for rows of a type, and for one or several local steps."""
    numbers = 100 * np.random.default_rng(0).random((80, FOLLOWED_COLUMNS + 7))
    rows = Rows(numbers.astype(name), np.array([0, 40, 80]))
    KERNEL.lloyd_step(rows.X, numbers[:8])
    _print(SCAN)
    cache, received = cache_of(rows), numbers[:8].copy()
    bounds = cache.find_bounds(rows, received, with_gram=int(max_local) > 1)
    assert bounds is not None, "rows of this size are followed"
    no_clients = np.empty(0, dtype=np.int64)
    settings = StepSettings(int(max_local), 0.0, False)
    steps = LocalSteps(rows, cache, no_clients, received, settings)
    steps.step_follower(bounds)(no_clients, bounds.take_buffers(rows.X.dtype)[1])
    _print(STEPS)
    Path(stamp).touch()


def _print(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
