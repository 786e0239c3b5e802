"""A weighting rule for ``own.toml``, which names it as ``rules.py:capped``."""

import numpy as np


def capped(local):
    """Return the rows nearest to each centroid, at most 10, so that large wards do not dominate."""
    return np.minimum(local.counts, 10)
