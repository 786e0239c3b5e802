"""Sparse input at every door, what is refused there, and how much memory it takes."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from fedkmeans import FKM, FederatedKMeans, InProcess, KFed, Site
from fedkmeans.errors import DataError, ModelError
from fedkmeans.kernels import find_kernel
from fedkmeans.kernels.sparse import SparseRows, as_table
from fedkmeans.metrics import score_per_sample
from fedkmeans.model import Model

pytestmark = pytest.mark.slow

FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr"]


@pytest.fixture
def counts():
    rng = np.random.default_rng(0)
    X = rng.poisson(rng.gamma(0.3, size=(3, 30))[np.arange(120) % 3]).astype(float)
    return X, rng.integers(4, size=120)


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("kind", FORMATS)
def test_any_sparse_format_is_accepted(counts, kind, container):
    X, clients = counts
    matrix = container(X).asformat(kind)
    dense = FederatedKMeans(3, random_state=0).fit(X, clients=clients)
    found = FederatedKMeans(3, random_state=0).fit(matrix, clients=clients)
    np.testing.assert_array_equal(found.cluster_centers_, dense.cluster_centers_)
    np.testing.assert_array_equal(found.predict(matrix), dense.labels_)
    np.testing.assert_allclose(found.transform(matrix), dense.transform(X), rtol=1e-12)
    assert found.score(matrix) == pytest.approx(dense.score(X))
    federation = InProcess.from_arrays(matrix, clients)
    found = FederatedKMeans(3, random_state=0).fit_federation(federation)
    np.testing.assert_array_equal(found.cluster_centers_, dense.cluster_centers_)
    assert score_per_sample(matrix, dense.cluster_centers_) == pytest.approx(dense.score_per_sample_)


def test_rows_are_made_canonical_and_the_caller_s_stay_as_they_are():
    data, indices = np.array([1.0, 0.0, 2.0, 3.0, -3.0]), np.array([4, 0, 1, 4, 0])
    matrix = sparse.csr_array((data, indices, np.array([0, 5, 5])), shape=(2, 6))
    dense = matrix.toarray()
    rows = SparseRows.of(matrix)
    np.testing.assert_array_equal(rows.dense(), dense)
    assert rows.indices.tolist() == [0, 1, 4]
    assert rows.data.tolist() == [-3.0, 2.0, 4.0]
    assert matrix.data.tolist() == data.tolist()
    assert matrix.indices.tolist() == indices.tolist()
    assert rows.nbytes == 3 * 12 + 3 * 8


def test_canonical_rows_are_not_copied_and_parts_are_views():
    matrix = sparse.random_array((50, 20), density=0.2, format="csr", rng=0)
    rows = SparseRows.of(matrix)
    part = rows[10:30]
    assert np.shares_memory(rows.data, matrix.data)
    assert np.shares_memory(part.data, matrix.data)
    np.testing.assert_array_equal(part.dense(), matrix.toarray()[10:30])
    assert len(rows[30:10]) == 0
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(part)).dense(), part.dense())


def test_a_whole_table_does_not_become_dense_by_accident():
    rows = as_table(sparse.eye_array(3, format="csr"))
    with pytest.raises(TypeError, match="a block at a time"):
        np.asarray(rows)
    assert as_table(rows) is rows


def test_read_only_rows_and_wide_indices_are_read(counts):
    X, _ = counts
    matrix = sparse.csr_array(X)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.flags.writeable = False
    labels = find_kernel("numba").assign(SparseRows.of(matrix), X[:5])
    np.testing.assert_array_equal(labels, find_kernel("numpy").assign(X, X[:5]))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_missing_values_are_refused_as_in_dense_rows(counts, number):
    X, _ = counts
    X[7, 3] = number
    messages = []
    for table in (X, sparse.csr_array(X)):
        with pytest.raises(DataError, match=r"'north', column 3: 1 value.*row 7") as caught:
            Site("north", table)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    clients = np.repeat(["a", "b"], 60)
    with pytest.raises(DataError, match=r"'a', column 3: 1 value"):
        FederatedKMeans(3).fit(sparse.csr_array(X), clients=clients)
    model = FederatedKMeans(3, random_state=0).fit(sparse.csr_array(X[8:]))
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.predict(sparse.csr_array(X))


@pytest.mark.parametrize("number", [1e200, 2**60])
def test_too_large_numbers_are_refused(number):
    X = np.zeros((5, 3), dtype=type(number))
    X[4, 1] = number
    with pytest.raises(DataError, match=r"column 'b'.*too large.*row 4"):
        Site("north", sparse.csr_array(X), feature_names=("a", "b", "c"))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (sparse.csr_array((0, 4)), "no rows"),
        (sparse.csr_array((4, 0)), "rows and columns"),
        (sparse.coo_array(np.ones(4)), "rows and columns"),
        (sparse.csr_array(np.eye(3) * 1j), "real numbers"),
    ],
)
def test_what_is_no_table_is_refused(table, message):
    with pytest.raises(DataError, match=message):
        Site("north", table)


def test_sites_of_different_width_are_refused(counts):
    X, _ = counts
    federation = InProcess([Site("a", sparse.csr_array(X)), Site("b", X[:, :-1])])
    with pytest.raises(DataError, match=r"columns|features"):
        FederatedKMeans(3).fit_federation(federation)
    model = KFed(3, random_state=0).fit(sparse.csr_array(X))
    with pytest.raises(ValueError, match="features"):
        model.predict(sparse.csr_array(X[:, :-1]))


def test_rows_of_weight_zero_are_left_out(counts):
    X, clients = counts
    weight = np.where(np.arange(120) % 5, 2.0, 0.0)
    site = Site("a", sparse.csr_array(X), sample_weight=weight)
    np.testing.assert_array_equal(site.X.dense(), X[weight > 0])
    sites = InProcess.from_arrays(sparse.csr_array(X), clients, weight).sites
    for name, site in sites.items():
        np.testing.assert_array_equal(site.X.dense(), X[(clients.astype(str) == name) & (weight > 0)])


def test_a_table_of_zeros_is_one_cluster():
    model = FederatedKMeans(1, random_state=0).fit(sparse.csr_array((20, 5)), clients=np.arange(20) % 3)
    assert model.inertia_ == 0
    assert not model.cluster_centers_.any()


def test_models_predict_sparse_rows(counts):
    X, clients = counts
    fitted = FederatedKMeans(3, random_state=0).fit(X, clients=clients)
    model = Model(fitted.cluster_centers_, None, {})
    np.testing.assert_array_equal(model.predict(sparse.csc_array(X)), fitted.labels_)
    np.testing.assert_allclose(model.distances(sparse.csr_array(X)), model.distances(X), rtol=1e-12)
    with pytest.raises(ModelError, match="30 columns"):
        model.predict(sparse.csr_array(X[:, 1:]))
    X[2, 4] = np.nan
    with pytest.raises(ModelError, match="Column 4"):
        model.predict(sparse.csr_array(X))


def test_follows_a_vectorizer_in_a_pipeline():
    texts = ["a warm sunny day", "sunny and warm", "snow and ice", "ice cold snow", "warm day", "cold ice"]
    model = make_pipeline(TfidfVectorizer(), FederatedKMeans(2, random_state=0)).fit(texts)
    assert len(set(model.predict(texts))) == 2


@pytest.mark.filterwarnings("ignore:Too few centroids came:UserWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        FederatedKMeans(5, max_rounds=3),
        FederatedKMeans(5, max_rounds=3, init="random"),
        KFed(5, max_iter=5),
        KFed(5, variant="published", max_iter=5),
        FKM(5, max_rounds=3),
    ],
    ids=repr,
)
def test_memory_stays_far_below_that_of_dense_rows(estimator):
    n, m, each = 100_000, 10_000, 5
    rng = np.random.default_rng(0)
    columns = rng.integers(m // each, size=(n, each)) + np.arange(each) * (m // each)
    X = sparse.csr_array((rng.random(n * each), columns.ravel(), np.arange(0, n * each + 1, each)), (n, m))
    model = clone(estimator).set_params(random_state=0, kernel="numba")
    tracemalloc.start()
    try:
        model.fit(X, clients=np.arange(n) % 4)
        model.predict(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * n * m / 50
