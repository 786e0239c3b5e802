"""A weighting rule for ``own.toml``, which names it as ``rules.py:capped``."""

import numpy as np


def capped(local):
    """Rows nearest to each centroid, but no more than 10: no large ward outvotes the small ones."""
    return np.minimum(local.counts, 10)
