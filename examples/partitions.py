"""How much does the partition matter? The digits, partitioned among clients in six ways.

The more the clients differ, the worse EWF (equal weights) is compared with DWF (a client's weight is its
number of rows in the cluster). Run it with ``python examples/partitions.py [folder]``;
it saves ``partitions.csv``.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from fedkmeans.data import load_digits, partition
from fedkmeans.registry import make

N_CLIENTS = 12
WAYS = {
    "iid": {},
    "half-iid": {},
    "dirichlet, alpha 1": {"alpha": 1.0},
    "dirichlet, alpha 0.1": {"alpha": 0.1},
    "label-mix, p 0.9": {"p": 0.9},
    "non-iid": {},
}
# With one local step and full server steps, a few rounds are enough.
QUICK = {"n_clusters": 10, "max_local": 1, "learning_rate": 1.0, "momentum": 0.0, "max_rounds": 15}


def main(folder="."):
    data = load_digits()
    rows = []
    for way, options in WAYS.items():
        name = way.split(",")[0]
        clients = partition(name, data.X, data.y, N_CLIENTS, np.random.default_rng(0), **options)
        # The mean number of classes per client, of ten.
        classes = np.mean([len(np.unique(data.y[clients == client])) for client in range(N_CLIENTS)])
        scores = {
            name: make(name, random_state=0, **QUICK).fit(data.X, clients=clients).score_per_sample_
            for name in ("dwf", "ewf")
        }
        rows.append({"way": way, "smallest": np.bincount(clients).min(), "classes": classes, **scores})
    table = pd.DataFrame(rows).set_index("way")
    table["ewf behind by"] = (table["ewf"] / table["dwf"] - 1).map("{:.1%}".format)
    print(f"k-means on the pooled rows: {pooled_score(data.X):.3f}\n\n{table.round(3)}")
    table.to_csv(Path(folder) / "partitions.csv")


def pooled_score(X):
    return make("k-means", n_clusters=10, n_init=5, random_state=0).fit(X).score_per_sample_


if __name__ == "__main__":
    main(*sys.argv[1:])
