"""k-means on one client's rows: both kernels draw and find the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkmeans.baselines.kfed import _order_of_rows
from fedkmeans.kernels import fast, find_kernel
from fedkmeans.kernels.fast import GramKMeans


def table(kind, n, m, rng):
    X = rng.normal(size=(n, m))
    return {
        "normal": X,
        "grid": rng.integers(0, 3, size=(n, m)).astype(np.float64),
        "few different rows": rng.normal(size=(3, m))[rng.integers(3, size=n)],
        "all the same": np.repeat(X[:1], n, axis=0),
        "far away": X + 1e6,
        "single precision": X.astype(np.float32),
        "bytes": rng.integers(0, 255, size=(n, m)).astype(np.uint8),
    }[kind]


KINDS = ("normal", "grid", "few different rows", "all the same", "far away", "single precision", "bytes")


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(KINDS),
    st.integers(1, 50),
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(1, 3),
    st.sampled_from([1, 2, 300]),
    st.booleans(),
    st.integers(0, 2**20),
)
def test_kernels_run_the_same_k_means(kind, n, m, k, n_init, max_iter, weighted, seed):
    rng = np.random.default_rng(seed)
    X = table(kind, n, m, rng)
    weight = rng.random(n) + 0.1 if weighted else None
    k = min(k, n)
    found = [
        find_kernel(name).kmeans(X, k, np.random.default_rng(seed), n_init, max_iter, weight)
        for name in ("numpy", "numba")
    ]
    np.testing.assert_array_equal(*found)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(KINDS), st.integers(2, 60), st.integers(8, 40), st.booleans(), st.integers(0, 2**20))
def test_steps_from_the_same_start_with_and_without_the_gram_matrix(kind, n, m, weighted, seed):
    """The other way through `kmeans`: more rows than a Gram matrix is made for."""
    rng = np.random.default_rng(seed)
    X = table(kind, n, m, rng)
    weight = rng.random(n) + 0.1 if weighted else None
    start = X[rng.choice(n, size=min(n, 5), replace=False)].astype(np.float64)
    found = [find_kernel(name).lloyd(X, start, 50, weight) for name in ("numpy", "numba")]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("rows_a_centroid", [0, 1000])
def test_both_ways_are_taken(rows_a_centroid, monkeypatch):
    monkeypatch.setattr(fast, "_GRAM_ROWS_A_CENTROID", rows_a_centroid)
    taken = []
    monkeypatch.setattr(GramKMeans, "lloyd", lambda self, *rest: taken.append(1))
    find_kernel("numba").kmeans(np.random.default_rng(0).normal(size=(60, 20)), 3, np.random.default_rng(0))
    assert bool(taken) == (rows_a_centroid > 0)


@given(st.integers(0, 2**20), st.sampled_from([1.0, -0.1, 1e-310, 1e200]))
def test_rows_are_ordered_as_lexsort_orders_them(seed, scale):
    rng = np.random.default_rng(seed)
    shape = (rng.integers(1, 30), rng.integers(1, 5))
    rows = rng.integers(-2, 3, size=shape) * scale
    np.testing.assert_array_equal(_order_of_rows(rows), np.lexsort(rows.T[::-1]))
