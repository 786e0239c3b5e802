"""Hypothesis strategies for federations with edge cases."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st


@st.composite
def federations(draw, max_rows=40, max_features=4, max_clients=6, max_clusters=6):
    """(X, clients, centroids): duplicates, ties, empty clusters, single-row clients, big offsets."""
    n = draw(st.integers(2, max_rows))
    m = draw(st.integers(1, max_features))
    k = draw(st.integers(1, max_clusters))
    n_clients = draw(st.integers(1, min(max_clients, n)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["normal", "small integers", "constant", "duplicates"]))
    X = {
        "normal": lambda: rng.normal(size=(n, m)),
        "small integers": lambda: rng.integers(-2, 3, size=(n, m)).astype(float),
        "constant": lambda: np.full((n, m), rng.normal()),
        "duplicates": lambda: rng.normal(size=(max(1, n // 4), m))[rng.integers(max(1, n // 4), size=n)],
    }[kind]()
    clients = np.concatenate([np.arange(n_clients), rng.integers(n_clients, size=n - n_clients)])
    where = draw(st.sampled_from(["rows", "box", "far away"]))
    centroids = {
        "rows": lambda: X[rng.integers(n, size=k)].astype(float),
        "box": lambda: rng.uniform(-2, 2, size=(k, m)),
        "far away": lambda: rng.normal(size=(k, m)) * np.where(rng.random((k, 1)) < 0.5, 1, 1e3),
    }[where]()
    offset = draw(st.sampled_from([0.0, 0.0, 1e3, 1e6]))
    return X + offset, rng.permutation(clients), centroids + offset
