"""Sparse rows against the same dense rows: the same labels, the same bits, whichever kernel."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fedkmeans import FKM, FederatedKMeans, InProcess, KFed, Site
from fedkmeans.client import local_kmeans
from fedkmeans.client.local_kmeans import top_directions
from fedkmeans.client.site import SitePolicy
from fedkmeans.kernels import Rows, find_kernel, fingerprint
from fedkmeans.kernels.numba import kernel as numba_kernel
from fedkmeans.kernels.numba import scanning
from fedkmeans.kernels.reference import lloyd
from fedkmeans.kernels.sparse import SparseRows
from fedkmeans.protocol.messages import DrawPoint, FindBox

pytestmark = pytest.mark.slow

KERNELS = ["numpy", "numba"]
DTYPES = [np.float64, np.float32, np.int64, np.uint8, np.bool_]
KINDS = ["normal", "counts", "binary", "far", "tiny", "duplicates"]

seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    """Compile for every kind of data before anything is measured."""
    fast_kernel = find_kernel("numba")
    for dtype in DTYPES:
        X = SparseRows.of(sparse.csr_array(np.eye(5, 6).astype(dtype)))
        fast_kernel.assign(X, np.eye(2, 6))
        steps(fast_kernel, Rows(X, np.array([0, 5])), np.eye(2, 6), 1, "keep")


def make_numbers(rng, shape, kind):
    few = max(1, shape[0] // 3)
    return {
        "normal": lambda: rng.normal(size=shape),
        "counts": lambda: rng.integers(1, 4, size=shape).astype(float),
        "binary": lambda: np.ones(shape),
        "far": lambda: 1e9 + rng.normal(size=shape),
        "tiny": lambda: 1e-158 * rng.normal(size=shape),
        "duplicates": lambda: rng.normal(size=(few, shape[1]))[rng.integers(few, size=shape[0])],
    }[kind]()


@st.composite
def tables(draw, max_rows=40, max_columns=30):
    """A dense array with many zeros; some rows and some columns may be nothing but zeros."""
    rng = np.random.default_rng(draw(seeds))
    shape = draw(st.integers(1, max_rows)), draw(st.integers(1, max_columns))
    kind, dtype = draw(st.sampled_from(KINDS)), np.dtype(draw(st.sampled_from(DTYPES)))
    X = make_numbers(rng, shape, kind)
    if kind == "duplicates":
        X[:, rng.random(shape[1]) < draw(st.sampled_from([0.0, 0.7]))] = 0
    else:
        X[rng.random(shape) >= draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))] = 0
    X[rng.random(shape[0]) < draw(st.sampled_from([0.0, 0.3]))] = 0
    X[:, rng.random(shape[1]) < draw(st.sampled_from([0.0, 0.3]))] = 0
    return (np.abs(X) % 200 if dtype.kind in "ub" else X).astype(dtype)


@st.composite
def problems(draw):
    """(dense, sparse rows, starts of clients, weights or None, centroids)."""
    X = draw(tables())
    rng = np.random.default_rng(draw(seeds))
    n, m = X.shape
    k = draw(st.integers(1, 12))
    where = draw(st.sampled_from(["rows", "means", "anywhere", "the same"]))
    dense = X.astype(np.float64)
    centroids = {
        "rows": lambda: dense[rng.integers(n, size=k)],
        "means": lambda: dense[rng.integers(n, size=(k, 2))].mean(axis=1),
        "anywhere": lambda: rng.normal(size=(k, m)),
        "the same": lambda: np.repeat(rng.normal(size=(1, m)), k, axis=0),
    }[where]()
    n_clients = draw(st.integers(1, min(4, n)))
    inside = np.sort(rng.choice(np.arange(1, n), size=n_clients - 1, replace=False))
    weight = draw(st.sampled_from([None, rng.integers(1, 4, size=n).astype(float), rng.uniform(0.1, 2, n)]))
    return X, SparseRows.of(sparse.csr_array(X)), np.concatenate([[0], inside, [n]]), weight, centroids


def steps(kernel, rows, centroids, max_local, empty_clusters, inertia=True):
    return kernel.local_steps(
        rows,
        np.arange(len(rows.starts) - 1),
        centroids,
        max_local=max_local,
        tol_local=0.0,
        empty_clusters=empty_clusters,
        inertia=inertia,
    )


@settings(max_examples=150, deadline=None)
@given(tables(), seeds)
def test_sparse_rows_are_the_same_rows(X, seed):
    rng = np.random.default_rng(seed)
    rows = SparseRows.of(sparse.csr_array(X))
    assert (rows.shape, len(rows), rows.size, rows.ndim) == (X.shape, len(X), X.size, 2)
    assert rows.dtype == X.dtype
    start, stop = sorted(rng.integers(0, len(X) + 1, size=2))
    order, held = rng.permutation(len(X)), rng.random(len(X)) < 0.5
    for part in (slice(start, stop), slice(None, None, 2), order, held):
        np.testing.assert_array_equal(rows[part].dense(), X[part])
        np.testing.assert_array_equal(rows[part][slice(1, None)].dense(), X[part][1:])
        np.testing.assert_array_equal(lloyd.double_block(rows, part), X[part].astype(np.float64))
        np.testing.assert_array_equal(rows[part].matrix().toarray(), X[part])
    for (numbers, places), column in zip(rows[start:stop].by_column(), X[start:stop].T, strict=True):
        np.testing.assert_array_equal(np.flatnonzero(column), places)
        np.testing.assert_array_equal(column[places], numbers)


@settings(max_examples=150, deadline=None)
@given(tables(max_rows=70, max_columns=70))
def test_checksum_is_that_of_the_dense_rows(X):
    rows = SparseRows.of(sparse.csr_array(X))
    expected = zlib.crc32(np.ascontiguousarray(X, dtype=np.float64) + 0.0)
    assert fingerprint.checksum(X) == expected
    assert fingerprint.checksum(rows) == expected
    assert fingerprint._of_sparse(rows) == expected


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=200, deadline=None)
@given(problem=problems())
def test_one_step_is_that_of_the_dense_rows(name, problem):
    X, rows, _, weight, centroids = problem
    kernel, plain = find_kernel(name), find_kernel("numpy")
    labels = lloyd.squared_distances(X, centroids).argmin(axis=1)
    np.testing.assert_array_equal(kernel.assign(rows, centroids), labels)
    for found, expected in zip(
        kernel.lloyd_step(rows, centroids, weight), plain.lloyd_step(X, centroids, weight), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    expected = plain.inertia(X, centroids, weight)
    assert kernel.inertia(rows, centroids, weight) == pytest.approx(expected, rel=1e-9, abs=1e-310)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("empty_clusters", ["keep", "relocate", "drop"])
@settings(max_examples=80, deadline=None)
@given(problem=problems(), max_local=st.sampled_from([1, 3]))
def test_local_steps_are_those_of_the_dense_rows(name, empty_clusters, problem, max_local):
    X, rows, starts, weight, centroids = problem
    found = steps(find_kernel(name), Rows(rows, starts, weight), centroids, max_local, empty_clusters)
    expected = steps(find_kernel("numpy"), Rows(X, starts, weight), centroids, max_local, empty_clusters)
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_array_equal(found.last_counts, expected.last_counts)
    scale = 1e-9 * (1 + X.size * float(np.abs(X).max()) ** 2 + np.abs(centroids).max() ** 2)
    np.testing.assert_allclose(found.inertia, expected.inertia, rtol=1e-9, atol=scale)
    np.testing.assert_allclose(found.received_inertia, expected.received_inertia, rtol=1e-9, atol=scale)
    for place in range(len(starts) - 1):
        np.testing.assert_array_equal(found.centroids(place), expected.centroids(place))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("small", [0, 2**22])
@settings(max_examples=60, deadline=None)
@given(problem=problems(), seed=seeds)
def test_kmeans_is_that_of_the_dense_rows(name, small, problem, seed):
    """Also where rows are never dense as a whole: `small` is how many numbers may be."""
    X, rows, _, weight, centroids = problem
    kernel, plain, k = find_kernel(name), find_kernel("numpy"), len(centroids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba_kernel, "SMALL", small)
        np.testing.assert_array_equal(
            kernel.lloyd(rows, centroids, 10, weight), plain.lloyd(X, centroids, 10, weight)
        )
        found = kernel.kmeans(rows, k, np.random.default_rng(seed), 2, 10, weight)
    dense = find_kernel(name).kmeans(X, k, np.random.default_rng(seed), 2, 10, weight)
    # Where two starts are as good as each other, rounding may choose either.
    scale = float(np.abs(X).max()) ** 2 * X.size
    assert plain.inertia(X, found, weight) == pytest.approx(
        plain.inertia(X, dense, weight), rel=1e-9, abs=1e-9 * scale
    )
    if name == "numpy" or small:
        np.testing.assert_array_equal(found, dense)


@settings(max_examples=30, deadline=None)
@given(problem=problems(), n_threads=st.sampled_from([1, 2]))
def test_many_rows_are_scanned_in_parts(problem, n_threads):
    """Sums of parts are rounded otherwise, but not otherwise by more threads."""
    _, rows, starts, weight, centroids = problem
    kernel = find_kernel("numba")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "_LARGE_SPARSE", 1)
        found = kernel.lloyd_step(rows, centroids, weight, n_threads)
        for one, other in zip(found, kernel.lloyd_step(rows, centroids, weight), strict=True):
            np.testing.assert_array_equal(one, other)
        parts = steps(kernel, Rows(rows, starts, weight), centroids, 2, "drop")
    whole = kernel.lloyd_step(rows, centroids, weight)
    np.testing.assert_allclose(found[0], whole[0], rtol=1e-12, atol=1e-12 * np.abs(rows.dense()).sum(0).max())
    np.testing.assert_allclose(found[1], whole[1], rtol=1e-12)
    expected = steps(kernel, Rows(rows, starts, weight), centroids, 1, "drop")
    np.testing.assert_allclose(parts.counts, expected.counts, rtol=1e-12)


ESTIMATORS = [
    FederatedKMeans(3),
    FederatedKMeans.paper(3, max_rounds=8, clients_per_round=2),
    FederatedKMeans(3, init="random", max_rounds=5),
    KFed(3),
    KFed(3, variant="published"),
    FKM(3),
]


@pytest.mark.filterwarnings("ignore:Too few centroids came:UserWarning")
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
@settings(max_examples=15, deadline=None)
@given(seed=seeds, weighted=st.booleans(), dtype=st.sampled_from(DTYPES))
def test_whole_fits_are_those_of_the_dense_rows(estimator, kernel, seed, weighted, dtype):
    rng = np.random.default_rng(seed)
    X = rng.poisson(rng.gamma(0.3, size=(3, 24))[rng.integers(3, size=60)]).astype(dtype)
    clients = rng.integers(4, size=60)
    weight = rng.uniform(0, 2, size=60) * (rng.random(60) < 0.9) if weighted else None
    model = estimator.set_params(random_state=seed, kernel=kernel)
    dense = model.fit(X, sample_weight=weight, clients=clients)
    centres, labels, inertia = dense.cluster_centers_, dense.labels_, dense.inertia_
    rows = sparse.csr_array(X)
    model.fit(rows, sample_weight=weight, clients=clients)
    np.testing.assert_array_equal(model.cluster_centers_, centres)
    np.testing.assert_array_equal(model.labels_, labels)
    assert model.inertia_ == pytest.approx(inertia, rel=1e-9)
    np.testing.assert_array_equal(model.predict(rows), model.predict(X))
    np.testing.assert_allclose(model.transform(rows), model.transform(X), rtol=1e-9, atol=1e-12)
    assert model.score(rows, sample_weight=weight) == pytest.approx(model.score(X, sample_weight=weight))


@settings(max_examples=60, deadline=None)
@given(X=tables(), seed=st.integers(0, 2**31), spread=st.booleans(), few=st.integers(1, 6))
def test_answers_for_a_start_are_those_of_the_dense_rows(X, seed, spread, few):
    dense, rows = (Site("a", table, policy=SitePolicy(few)) for table in (X, sparse.csr_array(X)))
    assert dense.fingerprint == rows.fingerprint
    found, expected = rows.answer(FindBox()), dense.answer(FindBox())
    np.testing.assert_array_equal(found.minimum, expected.minimum)
    np.testing.assert_array_equal(found.maximum, expected.maximum)
    for centroids in (np.empty((0, X.shape[1])), X[:2].astype(np.float64)):
        query = DrawPoint(centroids, mean_of=2, spread=spread, seed=seed)
        found, expected = rows.answer(query), dense.answer(query)
        np.testing.assert_array_equal(found.point, expected.point)
        assert found.weight == expected.weight


@settings(max_examples=25, deadline=None)
@given(seed=seeds, shape=st.sampled_from([(12, 40), (40, 12)]), gram=st.booleans())
def test_directions_span_the_same_space(seed, shape, gram):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random(shape) < 0.3, rng.normal(size=shape), 0.0)
    rows = SparseRows.of(sparse.csr_array(X))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_kmeans, "SMALL", 0)
        patch.setattr(local_kmeans, "_LARGEST_GRAM", 100 if gram else 0)
        found = top_directions(rows, 3, np.random.default_rng(0))
    expected = top_directions(X, 3, np.random.default_rng(0))
    values = np.linalg.svd(X, compute_uv=False)
    if values[2] - values[3] > 1e-3:
        np.testing.assert_allclose(found.T @ found, expected.T @ expected, atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_sites_may_be_sparse_dense_and_both(kernel):
    rng = np.random.default_rng(0)
    X = rng.poisson(0.3, size=(90, 20)).astype(float)
    parts = np.split(X, 3)
    fits = []
    for wrap in ([np.asarray] * 3, [sparse.csr_array] * 3, [sparse.coo_matrix, np.asarray, sparse.csc_array]):
        tables = [make(part) for make, part in zip(wrap, parts, strict=True)]
        sites = [Site(name, table, kernel=kernel) for name, table in zip("abc", tables, strict=True)]
        fits.append(FederatedKMeans(3, random_state=0).fit_federation(InProcess(sites)).cluster_centers_)
    np.testing.assert_array_equal(fits[0], fits[1])
    np.testing.assert_array_equal(fits[0], fits[2])
