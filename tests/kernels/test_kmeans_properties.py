"""k-means on one client's rows: both kernels draw and find the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkmeans.algorithms.kfed import _order_of_rows
from fedkmeans.kernels import Rows, find_kernel
from fedkmeans.kernels.numba import gram_kmeans
from fedkmeans.kernels.numba.jit import kmeans

pytestmark = pytest.mark.slow


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
    monkeypatch.setattr(gram_kmeans, "ROWS_A_CENTROID", rows_a_centroid)
    taken, real = [], kmeans.gram_kmeans
    monkeypatch.setattr(kmeans, "gram_kmeans", lambda *arguments: taken.append(real(*arguments)))
    X = np.random.default_rng(0).normal(size=(60, 20))
    found, expected = (
        find_kernel(name).kmeans(X, 3, np.random.default_rng(0)) for name in ("numba", "numpy")
    )
    np.testing.assert_array_equal(found, expected)
    assert bool(taken) == (rows_a_centroid > 0)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(KINDS),
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.integers(1, 30),
    st.sampled_from([1, 2, 300]),
    st.booleans(),
    st.integers(1, 3),
    st.integers(0, 2**20),
)
def test_many_clients_in_one_call_are_clustered_as_each_alone(
    kind, sizes, m, max_iter, weighted, n_threads, seed
):
    rng = np.random.default_rng(seed)
    X = table(kind, sum(sizes), m, rng)
    rows = Rows(X, np.cumsum([0, *sizes]), rng.random(len(X)) + 0.1 if weighted else None)
    which = rng.permutation(len(sizes))[: rng.integers(1, len(sizes) + 1)]
    wanted = [int(rng.integers(1, min(6, sizes[client]) + 1)) for client in which]
    n_init = int(rng.integers(1, 4))

    def cluster(name):
        rngs = [np.random.default_rng([seed, client]) for client in which]
        return find_kernel(name).kmeans_each(rows, which, wanted, rngs, n_init, max_iter, n_threads)

    kernel = find_kernel("numpy")
    for client, k, expected, found in zip(which, wanted, cluster("numpy"), cluster("numba"), strict=True):
        assert found.centroids.shape == (k, m)
        np.testing.assert_array_equal(found.centroids, expected.centroids)
        if found.counts is not None:  # then it promises that another step would change nothing
            shard, weight = rows.shard(client)
            sums, counts = kernel.lloyd_step(shard, found.centroids, weight)
            np.testing.assert_array_equal(found.counts, counts)
            np.testing.assert_array_equal(found.centroids, sums / counts[:, None])


def test_counts_are_known_where_nothing_moves_any_more():
    X = np.random.default_rng(0).normal(size=(200, 20))
    rows = Rows(X, np.array([0, 100, 200]))
    rngs = [np.random.default_rng(client) for client in (0, 1)]
    found = find_kernel("numba").kmeans_each(rows, np.array([0, 1]), [4, 5], rngs)
    assert [clustered.counts.sum() for clustered in found] == [100, 100]


@given(st.integers(0, 2**20), st.sampled_from([1.0, -0.1, 1e-310, 1e200]))
def test_rows_are_ordered_as_lexsort_orders_them(seed, scale):
    rng = np.random.default_rng(seed)
    shape = (rng.integers(1, 30), rng.integers(1, 5))
    rows = rng.integers(-2, 3, size=shape) * scale
    np.testing.assert_array_equal(_order_of_rows(rows), np.lexsort(rows.T[::-1]))
