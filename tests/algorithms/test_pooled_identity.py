"""With one local step, rate 1, no momentum and all clients, a run is Lloyd on the pooled data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from fedkmeans import FKM, FederatedKMeans, KFed, Site
from fedkmeans.algorithms.server_update import target
from fedkmeans.client.in_process import InProcess
from fedkmeans.protocol.exchange import add_up
from fedkmeans.protocol.messages import LocalUpdate
from tests.strategies import federations

pytestmark = pytest.mark.slow


def pooled_lloyd(X, centroids, n_steps):
    """Lloyd's method; an empty cluster does not move."""
    path = [centroids]
    for _ in range(n_steps):
        c = path[-1]
        labels = ((X[:, None, :] - c) ** 2).sum(axis=2).argmin(axis=1)
        path.append(
            np.array([X[labels == j].mean(axis=0) if (labels == j).any() else c[j] for j in range(len(c))])
        )
    return path


@given(federations(), st.integers(1, 6), st.sampled_from([None, None, "server", "client"]))
@settings(max_examples=400)
def test_single_steps_are_pooled_lloyd_step_by_step(problem, n_rounds, memory):
    """DWF with one local step, and memory at the server or the clients, with all clients."""
    X, clients, start = problem
    seen = []
    model = FederatedKMeans(
        len(start), memory=memory, max_local=1, learning_rate=1.0, momentum=0.0, init=start, tol=0,
        tol_score=0, max_rounds=n_rounds, random_state=0,
    )  # fmt: skip
    assume(len(X) >= max(2, len(start)))
    model.fit_federation(
        InProcess.from_arrays(X, clients), on_round=lambda state, info: seen.append(state.centroids)
    )
    scale = max(1.0, np.abs(X).max(), np.abs(start).max())
    # Each step is compared from the same centroids, so that a tie that rounding decides in one step does
    # not affect the comparison of later ones.
    for before, after in zip([start, *seen], seen, strict=False):
        np.testing.assert_allclose(after, pooled_lloyd(X, before, 1)[1], rtol=0, atol=1e-10 * scale)


@given(federations(), st.sampled_from([None, "server", "client"]))
def test_whole_path_is_pooled_lloyd_on_untied_data(problem, memory):
    X, clients, start = problem
    rng = np.random.default_rng(len(X))
    X = rng.normal(size=X.shape)
    start = rng.normal(size=start.shape)
    assume(len(X) >= max(2, len(start)))
    seen = [start]
    model = FederatedKMeans(len(start), memory=memory, init=start, max_rounds=12, min_rounds=12)
    model.fit_federation(
        InProcess.from_arrays(X, clients), on_round=lambda state, info: seen.append(state.centroids)
    )
    np.testing.assert_allclose(seen, pooled_lloyd(X, start, 12), rtol=0, atol=1e-10)


@given(federations(), st.sampled_from(["dynamic", "equal", "by_size", "by_compactness"]), st.integers(1, 5))
def test_permuting_and_renaming_clients_changes_only_rounding(problem, weighting, max_local):
    X, clients, start = problem
    query = LocalUpdate(start, max_local, 1e-8, weighting, "keep")

    def aggregate(ids):
        federation = InProcess.from_arrays(X, ids)
        return target(add_up(federation.ask(query, federation.clients)).record)

    renamed = np.random.default_rng(0).permutation(len(X))[clients]
    scale = max(1.0, np.abs(X).max(), np.abs(start).max())
    np.testing.assert_allclose(aggregate(clients), aggregate(renamed), rtol=0, atol=1e-10 * scale)


@given(
    federations(),
    st.integers(0, 2**31 - 1),
    st.sampled_from(["kfed", "random", "client_random", "k-means++"]),
    st.sampled_from([None, "server", "client", 0.9]),
)
@settings(max_examples=80)
def test_a_run_is_a_pure_function_of_its_seed(problem, seed, init, memory):
    X, clients, start = problem
    assume(len(X) >= max(4, len(start)) and np.bincount(clients).max() >= 2)

    def fit(n_jobs):
        np.random.seed(n_jobs)  # noqa: NPY002 - the global generator must not matter
        model = FederatedKMeans(
            len(start),
            clients_per_round=1,
            memory=memory,
            n_init=2,
            init=init,
            max_rounds=3,
            random_state=seed,
            n_jobs=n_jobs,
        )

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # k-FED warns that there are few rows
            return model.fit(X, clients=clients)

    one, two = fit(1), fit(2)
    np.testing.assert_array_equal(one.cluster_centers_, two.cluster_centers_)
    assert one.history_.equals(two.history_)


@given(federations(), st.integers(0, 1000))
@settings(max_examples=50)
def test_order_of_rows_among_clients_does_not_matter(problem, seed):
    """Interleaving the rows of clients does not change the run: the order within a client is the same."""
    X, clients, start = problem
    assume(len(X) >= max(2, len(start)))
    order = np.argsort(clients, kind="stable")
    settings_ = {"init": start, "max_rounds": 4, "random_state": seed}
    one = FederatedKMeans(len(start), **settings_).fit(X, clients=clients)
    two = FederatedKMeans(len(start), **settings_).fit(X[order], clients=clients[order])
    np.testing.assert_array_equal(one.cluster_centers_, two.cluster_centers_)
    np.testing.assert_array_equal(one.labels_[order], two.labels_)


@pytest.mark.parametrize(
    "estimator",
    [
        FederatedKMeans(3, max_rounds=20),
        FederatedKMeans(3, max_rounds=20, memory=0.9),
        FederatedKMeans.paper(3, max_rounds=20, init="random"),
        FederatedKMeans.paper(3, max_rounds=20, init="k-means++", weighting="equal"),
        KFed(3),
        KFed(3, variant="published"),
        FKM(3),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_permuting_clients_changes_nothing_but_rounding_in_a_whole_run(estimator, seed):
    """Names and order of the clients do not change the run."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 3))
    clients = rng.integers(8, size=120)
    names = rng.permutation(8)
    estimator = clone(estimator).set_params(random_state=seed)
    one = clone(estimator).fit(X, clients=clients)
    two = clone(estimator).fit(X, clients=names[clients])
    np.testing.assert_allclose(two.cluster_centers_, one.cluster_centers_, rtol=0, atol=1e-10)
    sites = [Site(f"c{i}", X[clients == i]) for i in range(8)]
    forwards = clone(estimator).fit_federation(InProcess(sites))
    backwards = clone(estimator).fit_federation(InProcess(sites[::-1]))
    np.testing.assert_array_equal(forwards.cluster_centers_, backwards.cluster_centers_)
    np.testing.assert_allclose(forwards.cluster_centers_, one.cluster_centers_, rtol=0, atol=1e-10)
