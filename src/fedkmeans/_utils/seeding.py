"""Randomness as a pure function of one seed and a path of names.

Each random choice has its own generator, named by its purpose. The choices of round 7 do not depend on how
many numbers were drawn in round 6, and a run can be resumed or moved to another transport unchanged.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np


def as_seed(random_state: Any) -> int:
    """Turn an int, None, RandomState or Generator into a seed; all but an int draw a new one in each call."""
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if random_state is None:
        # New entropy instead of the global generator, whose state belongs to the caller.
        return int(np.random.default_rng().integers(2**31))
    from sklearn.utils import check_random_state  # takes long to load, and is seldom needed

    return int(check_random_state(random_state).randint(2**31 - 1))


def _sequence(seed: int, path: tuple[int | str, ...]) -> np.random.SeedSequence:
    words = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in path]
    return np.random.SeedSequence([seed, *words])


def derive_seed(seed: int, *path: int | str) -> int:
    """Return the seed of a sub-process named by `path`."""
    return int(_sequence(seed, path).generate_state(1, np.uint32)[0])


def generator(seed: int, *path: int | str) -> np.random.Generator:
    """Return the generator that belongs to `path` under `seed`."""
    return np.random.default_rng(_sequence(seed, path))
