import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from fedkmeans.data import PARTITIONERS, by_column, clustered, dirichlet, half_iid, iid, label_mix, partition
from fedkmeans.errors import DataError, ParameterError

# The function of the same name hides the module in the package.
MODULE = sys.modules["fedkmeans.data.partitions"]
OPTIONS = {"label-mix": {"p": 0.7}, "dirichlet": {"alpha": 0.3}}


def rng(seed=0):
    return np.random.default_rng(seed)


def blobs(n_samples, n_distinct, seed):
    """Rows of which only `n_distinct` differ, with labels."""
    values = rng(seed).normal(size=(n_distinct, 2))
    index = rng(seed + 1).integers(n_distinct, size=n_samples)
    return values[index], index % 4


@st.composite
def cases(draw):
    n_samples = draw(st.integers(1, 40))
    n_clients = draw(st.integers(1, n_samples))
    X, y = blobs(n_samples, draw(st.integers(1, n_samples)), draw(st.integers(0, 99)))
    return X, y, n_clients, draw(st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("name", PARTITIONERS)
@settings(deadline=None, max_examples=15)
@given(case=cases())
def test_every_row_has_a_client_no_client_is_empty_and_the_seed_decides(name, case):
    X, y, n_clients, seed = case
    before = X.copy()
    clients = partition(name, X, y, n_clients, rng(seed), **OPTIONS.get(name, {}))
    assert clients.shape == (len(X),)
    assert clients.dtype == np.intp
    assert set(clients.tolist()) == set(range(n_clients))
    again = partition(name, X, y, n_clients, rng(seed), **OPTIONS.get(name, {}))
    np.testing.assert_array_equal(clients, again)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("name", PARTITIONERS)
def test_another_seed_gives_other_clients(name):
    X, y = blobs(200, 200, 0)
    options = OPTIONS.get(name, {})
    first, second = (partition(name, X, y, 10, rng(seed), **options) for seed in (1, 2))
    assert (first != second).any()


@given(n_samples=st.integers(1, 300), data=st.data())
def test_iid_chunks_differ_by_at_most_one_row(n_samples, data):
    n_clients = data.draw(st.integers(1, n_samples))
    sizes = np.bincount(iid(n_samples, n_clients, rng()))
    assert sizes.max() - sizes.min() <= 1


def test_iid_is_shuffled():
    clients = iid(1000, 10, rng())
    assert (np.diff(clients) != 0).sum() > 500  # in order there would be 9 changes


def test_clustered_is_one_k_means_cluster_per_client():
    centers = np.array([[0, 0], [100, 0], [0, 100], [100, 100]])
    truth = np.repeat(np.arange(4), 25)
    X = centers[truth] + rng().normal(size=(100, 2))
    assert adjusted_rand_score(truth, clustered(X, 4, rng(3))) == 1


def test_clustered_does_not_warn_that_five_steps_do_not_converge():
    X = np.repeat([[0.0], [1.0]], 10, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clients = clustered(X, 5, rng())  # only two distinct rows for five clients
    assert len(np.unique(clients)) == 5


def test_clustered_uses_the_settings_of_the_paper(monkeypatch):
    seen = {}

    class Spy(KMeans):
        def __init__(self, **settings):
            seen.update(settings)
            super().__init__(**settings)

    monkeypatch.setattr(MODULE, "KMeans", Spy)
    clustered(rng().normal(size=(30, 2)), 7, rng())
    assert {key: seen[key] for key in ("n_clusters", "n_init", "max_iter", "init")} == {
        "n_clusters": 7,
        "n_init": 5,
        "max_iter": 5,
        "init": "k-means++",
    }


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("rule", [clustered, half_iid])
def test_scikit_learn_gets_the_data_in_its_dtype(monkeypatch, dtype, rule):
    seen = []

    class Spy(KMeans):
        def fit_predict(self, X):
            seen.append(X.dtype)
            return super().fit_predict(X)

    monkeypatch.setattr(MODULE, "KMeans", Spy)
    rule(rng().integers(255, size=(60, 3)).astype(dtype), 4, rng())
    assert seen == [np.dtype(dtype)]


def test_data_that_cannot_be_clustered_is_a_data_error():
    with pytest.raises(DataError, match=r"cannot be clustered.*NaN.*finite numbers"):
        clustered(np.array([[np.nan], [1.0]]), 2, rng())


@pytest.mark.parametrize("rule", [clustered, half_iid])
def test_values_whose_squares_overflow_are_a_data_error(rule):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match="squares of its largest values overflow; make its scale smaller"):
            rule(1e200 * rng().normal(size=(40, 3)), 3, rng())


def test_half_iid_is_between_iid_and_clustered():
    truth = np.repeat(np.arange(10), 100)
    X = (100 * truth[:, None] + rng().normal(size=(1000, 1))).astype(float)
    scores = [
        adjusted_rand_score(truth, clients) for clients in (iid(1000, 10, rng()), half_iid(X, 10, rng()))
    ]
    assert scores[0] < 0.05 < scores[1] < 0.6
    assert adjusted_rand_score(truth, clustered(X, 10, rng())) > 0.8


def test_label_mix_takes_the_share_from_the_preferred_class():
    y = np.repeat(np.arange(5), 200)
    clients = label_mix(y, 10, 0.6, rng())
    for client in range(10):
        mine = y[clients == client]
        assert len(mine) == 100
        assert (mine == client % 5).sum() >= 60
    assert all(len(np.unique(y[clients == client])) > 1 for client in range(10))


def test_label_mix_with_p_one_gives_pure_clients_when_the_classes_suffice():
    y = np.tile([0, 1], 50)
    clients = label_mix(y, 4, 1.0, rng())
    assert [set(y[clients == client]) for client in range(4)] == [{0}, {1}, {0}, {1}]


def test_label_mix_shares_a_class_that_runs_out_evenly():
    y = np.array(["rare"] * 12 + ["usual"] * 88)
    clients = label_mix(y, 4, 1.0, rng())  # sorted: clients 0 and 2 prefer "rare", 25 rows each
    rare = [int((y[clients == client] == "rare").sum()) for client in range(4)]
    assert rare == [6, 0, 6, 0]
    assert np.bincount(clients).tolist() == [25] * 4


def test_small_alpha_is_less_even_than_large_alpha():
    y = np.repeat(np.arange(4), 250)

    def largest_share(alpha):
        clients = dirichlet(y, 5, alpha, rng(1))
        table = np.array([np.bincount(clients[y == label], minlength=5) for label in range(4)])
        return (table.max(axis=1) / 250).mean()

    assert largest_share(1e6) < 0.21
    assert largest_share(0.01) > 0.8


@pytest.mark.parametrize("alpha", [1e-300, 1e308])
def test_dirichlet_works_with_extreme_concentrations(alpha):
    sizes = np.bincount(dirichlet(np.zeros(100, dtype=int), 4, alpha, rng()), minlength=4)
    assert sizes.sum() == 100
    assert sizes.min() >= 1
    assert sizes.max() == (97 if alpha < 1 else 25)


def test_by_column_numbers_clients_in_sorted_order():
    clients, names = by_column(["b", "a", "b"])
    assert (clients.tolist(), names) == ([1, 0, 1], ("a", "b"))
    assert by_column(np.array([10, 9, 10]))[1] == ("9", "10")  # as numbers, not as text
    assert by_column(np.array([2, "x"], dtype=object))[1] == ("2", "x")


@pytest.mark.parametrize("values", [[1.0, np.nan], np.array(["a", None], dtype=object)])
def test_by_column_refuses_rows_without_client(values):
    with pytest.raises(DataError, match=r"no client in 1 rows.*row 1.*fill it in"):
        by_column(values)


@pytest.mark.parametrize("values", [[], [[1, 2]]])
def test_by_column_refuses_what_is_no_column(values):
    with pytest.raises(DataError, match="one value per row"):
        by_column(values)


@pytest.mark.parametrize(
    ("name", "n_clients", "options", "message"),
    [
        ("iid", 0, {}, "between 1 and the number of rows, 8, got 0"),
        ("iid", 9, {}, "got 9; a client needs at least one row"),
        ("half_iid", 9, {}, "got 9"),
        ("clustered", -1, {}, "got -1"),
        ("label-mix", 9, {"p": 0.5}, "got 9"),
        ("dirichlet", 9, {"alpha": 1}, "got 9"),
        ("iid", 2.5, {}, "whole number, got 2.5"),
        ("label-mix", 2, {"p": 1.1}, "p must lie between 0 and 1, got 1.1"),
        ("label-mix", 2, {"p": float("nan")}, "p must lie between 0 and 1"),
        ("dirichlet", 2, {"alpha": 0}, "alpha must be a finite number above 0, got 0"),
        ("dirichlet", 2, {"alpha": float("inf")}, "alpha must be a finite number"),
        ("dirichlet", 2, {}, r"^dirichlet needs alpha \(--alpha\)"),
        ("label-mix", 2, {"alpha": 1}, r"^label-mix needs p \(--p\)"),
        ("label-mix", 2, {"p": 1, "alpha": 1}, r"^label-mix takes no alpha \(--alpha\); leave it out"),
        ("iid", 2, {"p": 1}, r"^iid takes no p \(--p\); leave it out"),
        ("sorted", 2, {}, "unknown partitioner 'sorted'; choose one of 'iid', 'half-iid', 'non-iid'"),
    ],
)
def test_invalid_parameters_are_refused(name, n_clients, options, message):
    with pytest.raises(ParameterError, match=message):
        partition(name, np.arange(8.0)[:, None], np.zeros(8), n_clients, rng(), **options)


@pytest.mark.parametrize("name", OPTIONS)
def test_partitioners_by_label_need_one_label_per_row(name):
    X = np.zeros((4, 1))
    with pytest.raises(ParameterError, match="give the labels y"):
        partition(name, X, None, 2, rng(), **OPTIONS[name])
    with pytest.raises(DataError, match="y has 3 labels and X has 4 rows"):
        partition(name, X, np.zeros(3), 2, rng(), **OPTIONS[name])
    with pytest.raises(DataError, match="one label per row"):
        partition(name, X, np.zeros((4, 2)), 2, rng(), **OPTIONS[name])
