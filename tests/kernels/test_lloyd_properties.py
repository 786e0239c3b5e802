"""The fast assignment equals the plain formula on every input, block by block."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkmeans.kernels.reference import lloyd
from fedkmeans.kernels.reference.lloyd import (
    assign,
    cluster_sums,
    local_update,
    means,
    relocate_empty,
    squared_distances,
)
from tests.strategies import federations


@given(federations(max_rows=60), st.sampled_from([np.float64, np.float32]))
@settings(max_examples=200)
def test_matrix_product_labels_equal_the_plain_formula(problem, dtype):
    X, _, centroids = problem
    X = X.astype(dtype)
    expected = squared_distances(X, centroids).argmin(axis=1)
    small, lloyd._SMALL = lloyd._SMALL, -1  # take the matrix product however small the problem is
    try:
        np.testing.assert_array_equal(assign(X, centroids), expected)
    finally:
        lloyd._SMALL = small


@given(federations(max_rows=60))
def test_labels_do_not_depend_on_blocks_or_neighbours(problem):
    X, _, centroids = problem
    whole = assign(X, centroids)
    np.testing.assert_array_equal(whole, [assign(row[None], centroids)[0] for row in X])
    blocks, lloyd._BLOCK_NUMBERS = lloyd._BLOCK_NUMBERS, 7
    try:
        np.testing.assert_array_equal(assign(X, centroids), whole)
    finally:
        lloyd._BLOCK_NUMBERS = blocks


@given(federations(), st.integers(0, 2**32 - 1))
def test_sums_are_sums(problem, seed):
    X, _, centroids = problem
    weight = np.random.default_rng(seed).integers(0, 4, size=len(X)).astype(float)
    labels = assign(X, centroids)
    sums, counts = cluster_sums(X, labels, len(centroids), weight)
    for j in range(len(centroids)):
        expected = (weight[labels == j, None] * X[labels == j]).sum(axis=0)
        np.testing.assert_allclose(sums[j], expected, rtol=1e-12, atol=1e-9)
        assert counts[j] == weight[labels == j].sum()


@given(federations())
def test_integer_weights_are_repeated_rows(problem):
    X, _, centroids = problem
    weight = np.random.default_rng(len(X)).integers(1, 4, size=len(X))
    weighted = local_update(X, centroids, max_local=1, tol_local=0, sample_weight=weight.astype(float))
    repeated = local_update(np.repeat(X, weight, axis=0), centroids, max_local=1, tol_local=0)
    scale = max(1.0, np.abs(X).max())
    np.testing.assert_allclose(weighted.centroids, repeated.centroids, rtol=0, atol=1e-10 * scale)
    np.testing.assert_array_equal(weighted.counts, repeated.counts)


@given(federations(), st.booleans())
def test_relocation_fills_what_can_be_filled_and_loses_nothing(problem, weighted):
    X, _, centroids = problem
    rng = np.random.default_rng(len(X))
    weight = rng.choice([0.1, 0.2, 0.3, 0.7], size=len(X)) if weighted else None
    labels = assign(X, centroids)
    before = labels.copy()
    sums, counts = cluster_sums(X, labels, len(centroids), weight)
    n_empty = np.sum(counts == 0)
    new_labels, new_sums, new_counts = relocate_empty(X, centroids, labels, sums, counts, weight)
    np.testing.assert_array_equal(labels, before)
    expected = cluster_sums(X, new_labels, len(centroids), weight)
    np.testing.assert_array_equal(new_sums, expected[0])
    np.testing.assert_array_equal(new_counts, expected[1])
    still_empty = np.sum(new_counts == 0)
    movable = len(np.unique(X, axis=0)) >= len(centroids) and still_empty > 0
    assert still_empty <= n_empty
    if movable:  # only rows that lie exactly on their centroid may refuse to move
        own = ((X - centroids[new_labels]) ** 2).sum(axis=1)
        assert ((own == 0) | (np.bincount(new_labels, minlength=len(centroids))[new_labels] == 1)).all()


@given(federations(), st.integers(1, 5))
def test_centroids_stay_within_the_data_whatever_the_weights(problem, max_local):
    X, _, centroids = problem
    weight = np.random.default_rng(len(X)).choice([0.1, 0.2, 0.3, 0.7], size=len(X))
    for empty in ("keep", "relocate", "drop"):
        local = local_update(
            X, centroids, max_local=max_local, tol_local=0, empty_clusters=empty, sample_weight=weight
        )
        filled = local.centroids[local.last_counts > 0]
        margin = 1e-9 * max(1.0, np.abs(X).max())
        assert (filled >= X.min(axis=0) - margin).all()
        assert (filled <= X.max(axis=0) + margin).all()


def test_local_steps_stop_when_centroids_hardly_move(monkeypatch):
    X = np.random.default_rng(0).normal(size=(50, 2))
    steps = []
    monkeypatch.setattr(lloyd, "cluster_sums", lambda *a, **k: steps.append(1) or cluster_sums(*a, **k))
    local_update(X, X[:3].copy(), max_local=50, tol_local=0.0)
    until_still = len(steps)
    steps.clear()
    local_update(X, X[:3].copy(), max_local=50, tol_local=0.5)
    assert len(steps) < until_still <= 50


@given(federations(), st.integers(1, 5))
def test_dropped_clusters_stay_where_they_are(problem, max_local):
    X, _, centroids = problem
    local = local_update(X, centroids, max_local=max_local, tol_local=0, empty_clusters="drop")
    empty = local.counts == 0
    np.testing.assert_array_equal(local.centroids[empty], centroids[empty])
    assert (local.last_counts[empty] == 0).all()
    assert local.last_counts.sum() == len(X)


def test_means_keep_the_fallback_for_empty_clusters():
    result = means(
        np.array([[4.0, 2.0], [0.0, 0.0]]), np.array([2.0, 0.0]), np.array([[9.0, 9.0], [5.0, 6.0]])
    )
    np.testing.assert_array_equal(result, [[2.0, 1.0], [5.0, 6.0]])
