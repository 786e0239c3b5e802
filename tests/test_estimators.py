import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedkmeans import FKM, FederatedKMeans, InProcess, KFed, Site
from fedkmeans.algorithms.fit import Schema, find_memory, wf_kmeans
from fedkmeans.algorithms.initialization import INITIALIZERS
from fedkmeans.algorithms.rounds import RoundConfig, request_score
from fedkmeans.algorithms.stopping import Stopping
from fedkmeans.algorithms.wf_kmeans import LocalWork
from fedkmeans.errors import DataError, ParameterError
from fedkmeans.protocol.exchange import run

ESTIMATORS = [FederatedKMeans(), KFed(), FKM()]
SAME_AS_KMEANS = {
    f"check_sample_weight_equivalence_on_{kind}_data": "k-means++ draws differ, as in scikit-learn's KMeans"
    for kind in ("dense", "sparse")
}


@pytest.mark.filterwarnings("ignore:Too few centroids came:UserWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: SAME_AS_KMEANS)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_finds_clear_groups_as_kmeans_does(blobs, estimator):
    X, clients = blobs
    model = clone(estimator).set_params(n_clusters=3, random_state=0).fit(X, clients=clients)
    reference = KMeans(3, n_init=5, random_state=0).fit(X)
    assert model.inertia_ == pytest.approx(reference.inertia_, rel=0.02)
    assert model.score(X) == pytest.approx(-model.inertia_)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.transform(X).argmin(axis=1), model.labels_)
    assert model.fit_predict(X, clients=clients).shape == (240,)


@pytest.mark.parametrize("make_frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_column_names_of_frames_are_used(blobs, estimator, make_frame):
    X, clients = blobs
    names = ["age", "pulse", "weight", "height"]
    frame = make_frame(dict(zip(names, X.T, strict=True)))
    model = clone(estimator).set_params(n_clusters=3, random_state=0).fit(frame, clients=clients)
    assert list(model.feature_names_in_) == names
    np.testing.assert_array_equal(model.predict(frame), model.labels_)
    plain = clone(estimator).set_params(n_clusters=3, random_state=0).fit(X, clients=clients)
    np.testing.assert_array_equal(model.cluster_centers_, plain.cluster_centers_)
    kind = "pandas" if make_frame is pd.DataFrame else "polars"
    out = model.set_output(transform=kind).transform(frame)
    assert list(out.columns) == [f"{type(model).__name__.lower()}{j}" for j in range(3)]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(make_frame(dict(zip(["other", *names[1:]], X.T, strict=True))))


def test_history_is_tidy(blobs):
    X, clients = blobs
    model = FederatedKMeans(3, clients_per_round=2, score_every=2, max_rounds=5, tol=0, random_state=0)
    history = model.fit(X, clients=clients).history_
    assert list(history.columns) == [
        "restart", "round", "movement", "participants", "asked", "estimate", "score", "score_per_client",
        "bytes_sent", "bytes_received", "kernel",
    ]  # fmt: skip
    assert (history.kernel == "numpy").all()
    assert list(history["round"]) == [1, 2, 3, 4, 5]
    assert (history.participants == 2).all()
    assert list(history.score.notna()) == [False, True, False, True, False]
    assert (model.n_iter_, model.stop_reason_) == (5, "max_rounds")


def test_seed_is_recorded_and_repeats_the_run(blobs):
    X, clients = blobs
    first = FederatedKMeans(3, max_rounds=3).fit(X, clients=clients)
    again = FederatedKMeans(3, max_rounds=3, random_state=first.seed_).fit(X, clients=clients)
    np.testing.assert_array_equal(first.cluster_centers_, again.cluster_centers_)
    for random_state in (np.random.RandomState(3), np.random.default_rng(3)):
        FederatedKMeans(3, max_rounds=1, random_state=random_state).fit(X)


@pytest.mark.parametrize(
    ("estimator", "bad"),
    [
        (FederatedKMeans, {"n_clusters": 0}),
        (FederatedKMeans, {"n_clusters": 2.5}),
        (FederatedKMeans, {"max_local": 0}),
        (FederatedKMeans, {"learning_rate": 0}),
        (FederatedKMeans, {"learning_rate": 1.5}),
        (FederatedKMeans, {"momentum": -0.1}),
        (FederatedKMeans, {"momentum": 1.0}),
        (FederatedKMeans, {"memory": 1.0}),
        (FederatedKMeans, {"memory": 0.0}),
        (FederatedKMeans, {"memory": -0.5}),
        (FederatedKMeans, {"memory": float("nan")}),
        (FederatedKMeans, {"memory": True}),
        (FederatedKMeans, {"memory": "sever"}),
        (FederatedKMeans, {"memory": ["server"]}),
        (FederatedKMeans, {"participation": "always"}),
        (FederatedKMeans, {"tol_score": -0.1}),
        (FederatedKMeans, {"tol_score": 1.0}),
        (FederatedKMeans, {"n_init": 0}),
        (FederatedKMeans, {"empty_clusters": "drop"}),
        (FederatedKMeans, {"tol": -1}),
        (FederatedKMeans, {"tol_local": -1}),
        (FederatedKMeans, {"clients_per_round": 0}),
        (FederatedKMeans, {"clients_per_round": 6}),
        (FederatedKMeans, {"score_every": -1}),
        (FederatedKMeans, {"weighting": "unknown"}),
        (FederatedKMeans, {"weighting": [1]}),
        (FederatedKMeans, {"n_jobs": 0}),
        (FederatedKMeans, {"init": "unknown"}),
        (KFed, {"variant": "unknown"}),
        (KFed, {"n_local_clusters": 0}),
        (KFed, {"n_local_clusters": 4}),
        (KFed, {"clients_per_round": -1}),
        (KFed, {"max_iter": 0}),
        (FKM, {"max_local": 0}),
        (FKM, {"max_rounds": 0}),
    ],
)
def test_bad_parameters_are_refused_by_name(blobs, estimator, bad):
    X, clients = blobs
    with pytest.raises(ParameterError, match=next(iter(bad))):
        estimator(**{"n_clusters": 3, **bad}).fit(X, clients=clients)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_missing_and_infinite_values_name_client_column_and_row(blobs, value):
    X, clients = blobs
    X = X.copy()
    row = int(np.flatnonzero(clients == 3)[5])
    X[row, 2] = value
    frame = pd.DataFrame(X, columns=["a", "b", "pulse", "d"])
    with pytest.raises(
        DataError,
        match=r"Client '3', column 'pulse': 1 value\(s\) missing .* or infinite; the first in row 5",
    ):
        FederatedKMeans(3).fit(frame, clients=clients)


def test_errors_name_sites_with_different_columns():
    a, b = np.ones((4, 2)), np.ones((4, 3))
    with pytest.raises(DataError, match=r"Client 'b' has 3 columns, client 'a' has 2"):
        KFed(2).fit_federation(InProcess([Site("a", a), Site("b", b)]))
    named = [Site("a", a, feature_names=("x", "y")), Site("b", a, feature_names=("x", "z"))]
    with pytest.raises(DataError, match=r"only 'a' has \['y'\], only 'b' has \['z'\]"):
        KFed(2).fit_federation(InProcess(named))
    swapped = [Site("a", a, feature_names=("x", "y")), Site("b", a, feature_names=("y", "x"))]
    with pytest.raises(DataError, match="same order"):
        KFed(2).fit_federation(InProcess(swapped))
    with pytest.raises(DataError, match="Two clients are called 'a'"):
        InProcess([Site("a", a), Site("a", a)])
    with pytest.raises(DataError, match="Client 'empty' has no rows"):
        Site("empty", np.empty((0, 2)))
    with pytest.raises(DataError, match="at least one client"):
        InProcess([])
    with pytest.raises(DataError, match="real numbers"):
        Site("text", np.array([["a", "b"]]))


def test_more_clusters_than_rows_is_refused(blobs):
    with pytest.raises(DataError, match=r"n_samples=5 row.* n_clusters=6"):
        FederatedKMeans(6).fit(np.arange(10.0).reshape(5, 2))


def test_clients_with_fewer_rows_than_clusters_take_part(blobs):
    X, _ = blobs
    clients = np.minimum(np.arange(240), 3)  # three clients of one row, one of 237
    for estimator in ESTIMATORS:
        model = clone(estimator).set_params(n_clusters=3, random_state=0).fit(X, clients=clients)
        assert model.score_per_sample_ < 1.2


@pytest.mark.parametrize("clients", [np.zeros(3), np.zeros((240, 2)), np.full(240, np.nan)])
def test_bad_client_ids_are_refused(blobs, clients):
    with pytest.raises(DataError, match="client"):
        FederatedKMeans(3).fit(blobs[0], clients=clients)


def test_rows_without_weight_do_not_count(blobs):
    X, clients = blobs
    weight = (clients != 4).astype(float) + (np.arange(240) % 2)
    model = FederatedKMeans(3, random_state=0).fit(X, sample_weight=weight, clients=clients)
    distances = ((X[:, None] - model.cluster_centers_) ** 2).sum(axis=2).min(axis=1)
    assert model.score_per_sample_ == pytest.approx(np.average(distances, weights=weight))
    with pytest.raises(DataError, match="Client '4': the sample weights add up to zero"):
        FederatedKMeans(3).fit(X, sample_weight=(clients != 4).astype(float), clients=clients)


@pytest.mark.parametrize("ids", [list("abcde"), [10, 2, 33, 4, 5], [0.5, 1.5, 2.5, 3.5, 4.5]])
def test_client_ids_of_any_kind(blobs, ids):
    X, clients = blobs
    model = FederatedKMeans(3, random_state=0, max_rounds=2).fit(X, clients=np.array(ids)[clients])
    assert (model.history_.participants == 5).all()


def test_refitting_without_names_removes_the_old_ones(blobs):
    X, _ = blobs
    model = KFed(2, random_state=0)
    model.fit_federation(InProcess([Site("a", X[:, :2], feature_names=("p", "q"))]))
    assert list(model.feature_names_in_) == ["p", "q"]
    model.fit_federation(InProcess([Site("a", X)]))
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 4


def test_constant_columns_are_allowed(blobs):
    X, clients = blobs
    padded = np.column_stack([X, np.full(240, 7.0)])
    model = FederatedKMeans(3, random_state=0).fit(padded, clients=clients)
    np.testing.assert_allclose(model.cluster_centers_[:, 4], 7.0)
    assert model.score_per_sample_ < 1.2


def test_an_interrupted_fit_keeps_the_best_centroids(blobs):
    X, clients = blobs

    def stop(state, info):
        if info.round == 3:
            raise KeyboardInterrupt

    model = FederatedKMeans(3, n_init=2, tol=0, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit_federation(InProcess.from_arrays(X, clients), on_round=stop)
    assert model.stop_reason_ == "interrupted"
    assert model.n_iter_ == 3 or model.n_iter_ == 2
    assert model.predict(X).shape == (240,)


@pytest.mark.parametrize("make_frame", [pd.DataFrame, pl.DataFrame])
def test_sites_take_frames_and_their_names(blobs, make_frame):
    X, clients = blobs
    names = ["a", "b", "c", "d"]
    sites = [Site(str(i), make_frame(dict(zip(names, X[clients == i].T, strict=True)))) for i in range(5)]
    model = FederatedKMeans(3, random_state=0, max_rounds=3).fit_federation(InProcess(sites))
    assert list(model.feature_names_in_) == names
    plain = FederatedKMeans(3, random_state=0, max_rounds=3).fit(X, clients=clients)
    np.testing.assert_array_equal(model.cluster_centers_, plain.cluster_centers_)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": 7}, "name must be a text"),
        ({"name": ""}, "name must be a text"),
        ({"X": [1.0, 2.0]}, "rows and columns"),
        ({"X": [["a", "b"]]}, "real numbers"),
        ({"X": np.full((2, 1), 1e200)}, r"column 0: 2 value\(s\) beyond 1e\+150"),
        ({"X": np.array([[1.0], [np.inf]], dtype=np.float32)}, r"column 0: 1 value\(s\) missing"),
        ({"X": np.array([[1.0], [np.inf]], dtype=np.float16)}, r"column 0: 1 value\(s\) missing"),
        ({"X": np.array([[1], [2**53 + 1]])}, r"beyond 9.01e\+15, .* identifiers"),
        ({"sample_weight": [1.0]}, "one entry a row, 2"),
        ({"sample_weight": [1.0, -1.0]}, "not negative"),
        ({"sample_weight": [1.0, np.nan]}, "finite"),
        ({"sample_weight": [0.0, 0.0]}, "add up to zero"),
        ({"feature_names": ("a", "b")}, "2 column names for 1 columns"),
    ],
)
def test_sites_check_their_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Site(**{"name": "a", "X": [[1.0], [2.0]], **arguments})


def test_a_nameless_client_does_not_hide_swapped_columns():
    X = np.random.default_rng(0).normal(size=(9, 3))
    sites = [
        Site("a", X),
        Site("b", X, feature_names=("x", "y", "z")),
        Site("c", X, feature_names=("z", "y", "x")),
    ]
    with pytest.raises(DataError, match="Clients 'b' and 'c' have different columns"):
        FederatedKMeans(2).fit_federation(InProcess(sites))
    model = FederatedKMeans(2, max_rounds=1).fit_federation(InProcess(sites[:2]))
    assert list(model.feature_names_in_) == ["x", "y", "z"]


@pytest.mark.parametrize(
    "ids",
    [["a", np.nan], [None, "b"], [pd.NA, "b"], [np.datetime64("NaT"), np.datetime64("2020-01-01")]],
)
def test_missing_client_ids_are_refused(ids):
    with pytest.raises(DataError, match=r"30 row\(s\) have no client id, the first is row [01]"):
        FederatedKMeans(2).fit(np.ones((60, 1)), clients=np.array(ids * 30, dtype=object))


def test_ids_with_the_same_text_are_refused():
    with pytest.raises(DataError, match="two different ids read '1'"):
        FederatedKMeans(2).fit(np.ones((4, 1)), clients=np.array([1, "1", 1, "1"], dtype=object))


def test_a_failed_refit_does_not_change_the_old_fit(blobs):
    X, clients = blobs
    model = FederatedKMeans(3, max_rounds=2, random_state=0).fit(X, clients=clients)
    expected = model.predict(X)
    with pytest.raises(ParameterError):
        model.set_params(momentum=2).fit_federation(InProcess.from_arrays(X[:, :2]))
    np.testing.assert_array_equal(model.predict(X), expected)


def test_fitting_a_federation_removes_the_labels_of_an_earlier_fit(blobs):
    X, _ = blobs
    model = FederatedKMeans(3, max_rounds=2, random_state=0).fit(X)
    model.fit_federation(InProcess.from_arrays(X[:30]))
    assert not hasattr(model, "labels_")


def test_observers_and_weightings_cannot_change_the_run(blobs):
    X, clients = blobs

    def change(state, info):
        state.centroids[:] = 0

    with pytest.raises(ValueError, match="read-only"):
        FederatedKMeans(3).fit_federation(InProcess.from_arrays(X, clients), on_round=change)

    def rule(local):
        local.counts[:] = 1
        return local.counts

    with pytest.raises(ValueError, match="read-only"):
        FederatedKMeans(3, weighting=rule).fit(X, clients=clients)
    model = FederatedKMeans(3, max_rounds=1).fit(X)
    model.cluster_centers_[0] = 0  # the caller may change the result


def test_other_clients_take_part_in_other_rounds(blobs):
    X, clients = blobs
    seen = []
    model = FederatedKMeans.paper(3, clients_per_round=2, tol=0, max_rounds=40, random_state=0)
    model.fit_federation(
        InProcess.from_arrays(X, clients), on_round=lambda state, info: seen.append(info.asked)
    )
    times = pd.Series([client for chosen in seen for client in chosen]).value_counts()
    assert len(set(seen)) == 10  # all pairs of five
    assert times.min() >= 8  # 16 expected


def test_restarts_are_compared_per_sample_not_per_client():
    """One large and one small client; the two scores prefer different local optima."""
    large = np.repeat([0.0, 1.0, 10.0, 11.0], 50)[:, None]
    small = np.array([100.0, 100.0, 140.0, 140.0])[:, None]
    federation = InProcess([Site("large", large), Site("small", small)])
    per_sample, per_client = np.array([[5.5], [100.0], [140.0]]), np.array([[0.5], [10.5], [120.0]])
    scores = [run(federation, request_score(c, federation.clients)) for c in (per_sample, per_client)]
    assert scores[0].per_client < scores[1].per_client  # each score prefers another one
    assert scores[1].per_sample < scores[0].per_sample
    starts = iter([per_sample, per_client])

    def start(n_clusters, n_features, clients, seed):
        yield from ()
        return next(starts)

    plan = RoundConfig(seed=0, learning_rate=1.0, momentum=0.0, stopping=Stopping(max_rounds=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(INITIALIZERS, "random", start)
        memory, everything = find_memory(None, LocalWork()), (10, 10)
        conversation = wf_kmeans(
            3,
            Schema(204, 1, None),
            federation.clients,
            plan,
            memory,
            "random",
            *everything,
            2,
            lambda *_: None,
        )
        assert run(federation, conversation).restart == 1


def test_given_centroids_need_no_restarts(blobs):
    X, clients = blobs
    with pytest.warns(UserWarning, match="n_init=3 would repeat one run"):
        model = FederatedKMeans(3, init=X[:3], n_init=3, max_rounds=2).fit(X, clients=clients)
    assert len(model.history_) == 2


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("sparse", [False, True])
def test_transform_is_accurate_also_close_to_a_centroid(offset, sparse):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 40)) + offset
    if sparse:
        X[rng.random(X.shape) < 0.8] = 0.0
    model = FederatedKMeans(3, init=X[:3], max_rounds=1).fit(X)
    centres = model.cluster_centers_
    X[10:13] = centres
    X[13:16] = centres * (1 + 1e-9) + 1e-9
    found = model.transform(scipy.sparse.csr_array(X) if sparse else X)
    expected = np.sqrt(((X[:, None] - centres) ** 2).sum(axis=2))
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    np.testing.assert_array_equal(np.diag(found[10:13]), 0.0)
