"""Randomness as a pure function of one seed and a path of names.

Each random choice has a generator of its own, named by what it is for. So the choices of round 7
do not depend on how much chance was used in round 6, a client's own choices depend on its name and
not on its place in a list, and a run can be resumed or moved to another transport unchanged.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np


def as_seed(random_state: Any) -> int:
    """Turn what scikit-learn's users pass as `random_state` into one whole number.

    Parameters
    ----------
    random_state : int, None, numpy.random.RandomState or numpy.random.Generator
        An int is returned as it is; the others draw a number, so a second call gives another one.
    """
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if random_state is None:
        # Fresh entropy rather than the global generator: drawing must not disturb the caller.
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
