"""A weighting rule of your own: a function that returns one weight per cluster.

The rule counts the rows of a cluster as the rule "dynamic" does, but at most 50 of them, so that large
clients do not dominate. It gives no weight to a cluster in which the client has no rows, so it can be used
with memory. Equal weights give weight to such clusters, so they work only without memory, as in the paper.
Run it with ``python examples/own_weighting.py``.
"""

import numpy as np

from fedkmeans import FederatedKMeans
from fedkmeans.data import load_synthetic, partition


def capped(local):
    """Return the number of rows nearest to each centroid as received, at most 50; shape (k,)."""
    return np.minimum(local.counts, 50)


data = load_synthetic()
clients = partition("non-iid", data.X, data.y, 100, np.random.default_rng(0))
models = {
    "dynamic": FederatedKMeans(5, random_state=0),
    "capped": FederatedKMeans(5, weighting=capped, random_state=0),
    "equal": FederatedKMeans.paper(5, weighting="equal", max_rounds=200, random_state=0),
}
for name, model in models.items():
    model.fit(data.X, clients=clients)
    print(f"{name:8} score {model.score_per_sample_:.4f} after {model.n_iter_} rounds")
