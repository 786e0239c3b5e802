"""How close last-word k-means comes to pooled Lloyd from the same start, with few clients per round."""

from __future__ import annotations

import numpy as np
import pytest
from joblib import Parallel, delayed

from fedkmeans import FKM, FederatedKMeans, KFed
from fedkmeans.algorithms.initialization import INITIALIZERS
from fedkmeans.kernels.reference.kmeans import inertia_of, lloyd
from fedkmeans.protocol.exchange import run
from tests.parity.test_paper import federation_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_data")]

N_CLUSTERS = {"mnist-10k": 20, "femnist": 64}


def start_of(federation, k, seed):
    n_features = next(iter(federation.sites.values())).X.shape[1]
    return run(federation, INITIALIZERS["kfed"](k, n_features, federation.clients, seed))


def pooled_score(federation, start):
    X = np.concatenate([site.X for site in federation.sites.values()])
    return inertia_of(X, lloyd(X, start, 1000)) / len(X)


def above_pooled(dataset, distribution, seed, clients_per_round, rounds):
    """Per cent above pooled Lloyd."""
    federation = federation_of(dataset, distribution, seed)
    start = start_of(federation, N_CLUSTERS[dataset], seed)
    model = FederatedKMeans(
        len(start),
        clients_per_round=clients_per_round,
        init=start,
        max_rounds=rounds,
        tol_score=0,
        random_state=seed,
    ).fit_federation(federation)
    return 100 * (model.score_per_sample_ / pooled_score(federation, start) - 1)


def mean_above(*case, seeds):
    return np.mean(Parallel(n_jobs=2)(delayed(above_pooled)(*case[:2], seed, *case[2:]) for seed in seeds))


def test_mnist_non_iid_short():
    assert mean_above("mnist-10k", "non-iid", 10, 100, seeds=range(1)) <= 0.2


@pytest.mark.paper
@pytest.mark.parametrize(
    ("distribution", "clients_per_round", "rounds", "bar"),
    [("non-iid", 10, 100, 0.2), ("non-iid", 5, 200, 0.3), ("half-iid", 10, 100, 0.2), ("iid", 10, 100, 0.2)],
)
def test_mnist(distribution, clients_per_round, rounds, bar):
    assert mean_above("mnist-10k", distribution, clients_per_round, rounds, seeds=range(10)) <= bar


@pytest.mark.paper
@pytest.mark.parametrize("distribution", ["iid", "half-iid", "non-iid"])
def test_mnist_with_all_clients_is_pooled_lloyd(distribution):
    """The same centroids in every round, and as many rounds as Lloyd makes steps."""
    federation = federation_of("mnist-10k", distribution, 0)
    start = start_of(federation, 20, 0)
    X = np.concatenate([site.X for site in federation.sites.values()])
    path = []
    model = FederatedKMeans(20, init=start, tol_score=0)
    model.fit_federation(federation, on_round=lambda state, info: path.append(state.centroids))
    centroids = start
    for found in path:
        centroids = lloyd(X, centroids, 1)
        np.testing.assert_allclose(found, centroids, rtol=0, atol=1e-10)
    assert model.stop_reason_ == "tol"
    # The last step is the first without movement.
    assert np.abs(path[-2] - path[-3]).max() > 0
    np.testing.assert_array_equal(path[-1], path[-2])


@pytest.mark.paper
def test_femnist_half_iid():
    """Within 0.5 % of pooled after 200 rounds, and below the other algorithms after as many."""
    federation = federation_of("femnist", "half-iid", 0, n_jobs=2)
    start = start_of(federation, 64, 0)
    settings = {"clients_per_round": 10, "max_rounds": 200, "random_state": 0}
    ours = FederatedKMeans(64, init=start, tol_score=0, **settings)
    others = [
        FederatedKMeans.paper(64, init=start, **settings),
        FederatedKMeans.paper(64, init=start, weighting="equal", **settings),
        KFed(64, random_state=0),
        FKM(64, **settings),
    ]
    found = ours.fit_federation(federation).score_per_sample_
    assert found <= 1.005 * pooled_score(federation, start)
    for other in others:
        assert found < other.fit_federation(federation).score_per_sample_
