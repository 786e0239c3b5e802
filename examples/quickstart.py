"""Federated k-means in five lines, with one hundred clients that keep their rows.

Run it with ``python examples/quickstart.py``.
"""

import numpy as np

from fedkmeans import FederatedKMeans
from fedkmeans.data import load_synthetic, partition

data = load_synthetic()
clients = partition("non-iid", data.X, data.y, 100, np.random.default_rng(0))
model = FederatedKMeans(n_clusters=5, random_state=0).fit(data.X, clients=clients)
print(model.cluster_centers_.round(2))
print(f"score {model.score_per_sample_:.4f} after {model.n_iter_} rounds")
