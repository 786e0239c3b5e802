"""A weighting rule of your own: a function of what a client knows, one weight for each cluster.

The rule here counts the points of a cluster as DWF k-means does, but no more than 50 of them, so
that no large client outvotes the small ones. Run it with ``python examples/own_weighting.py``.
"""

import numpy as np

from fedkmeans import FederatedKMeans
from fedkmeans.data import load_synthetic, partition


def capped(local):
    """Points nearest to each centroid as received, but at most 50; shape (k,)."""
    return np.minimum(local.counts, 50)


data = load_synthetic()
clients = partition("non-iid", data.X, data.y, 100, np.random.default_rng(0))
for weighting in ("dynamic", capped, "equal"):
    model = FederatedKMeans(5, weighting=weighting, max_rounds=40, random_state=0)
    model.fit(data.X, clients=clients)
    name = getattr(weighting, "__name__", weighting)
    print(f"{name:8} score {model.score_per_sample_:.4f}")
