import warnings

import numpy as np
import pytest

from fedkmeans import FederatedKMeans, InProcess, Site, SitePolicy
from fedkmeans.conversation import hold
from fedkmeans.errors import DataError, ParameterError
from fedkmeans.initialization import INITIALIZERS, find_initializer
from fedkmeans.records import DrawPoint, LocalClusters

NAMES = sorted(INITIALIZERS)


def start(name, federation, k, m, seed=0):
    return hold(federation, INITIALIZERS[name](k, m, federation.clients, seed))


@pytest.mark.parametrize("name", NAMES)
def test_shape_place_and_seed(blobs, name):
    X, clients = blobs
    federation = InProcess.from_arrays(X, clients)
    centroids = start(name, federation, 3, 4)
    assert centroids.shape == (3, 4)
    assert centroids.dtype == np.float64
    assert (centroids >= X.min(axis=0) - 1e-12).all()
    assert (centroids <= X.max(axis=0) + 1e-12).all()
    np.testing.assert_array_equal(centroids, start(name, federation, 3, 4))
    assert not np.array_equal(centroids, start(name, federation, 3, 4, seed=1))


@pytest.mark.parametrize("name", NAMES)
def test_no_initialiser_hands_out_a_row(name):
    rng = np.random.default_rng(3)
    sizes = [1, 1, 2, 3, 9, 30]
    shards = [rng.normal(size=(n, 3)) for n in sizes]
    federation = InProcess(Site(f"c{i}", X) for i, X in enumerate(shards))
    rows = np.vstack(shards)
    for seed in range(10):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            centroids = start(name, federation, 6, 3, seed)
        gaps = np.abs(centroids[:, None] - rows).max(axis=2)
        assert gaps.min() > 1e-6


def test_kmeans_plusplus_spreads_over_separated_groups():
    rng = np.random.default_rng(0)
    centres = 100.0 * np.eye(4)
    shards = [centre + rng.normal(size=(20, 4)) for centre in centres]
    federation = InProcess(Site(f"c{i}", X) for i, X in enumerate(shards))
    for seed in range(5):
        found = start("k-means++", federation, 4, 4, seed).argmax(axis=1)
        assert sorted(found) == [0, 1, 2, 3]


def test_kfed_uses_all_clients_even_when_rounds_do_not(blobs):
    X, clients = blobs
    few = FederatedKMeans(3, clients_per_round=1, max_rounds=1, random_state=0)
    every = FederatedKMeans(3, max_rounds=1, random_state=0)
    seen = {}
    for name, model in (("few", few), ("every", every)):
        federation = InProcess.from_arrays(X, clients)
        model.fit_federation(federation, on_round=lambda state, info, name=name: seen.update({name: state}))
    np.testing.assert_array_equal(seen["few"].previous, seen["every"].previous)


def test_given_centroids_are_used_as_they_are(blobs):
    X, clients = blobs
    given = X[:3] + 0.1
    seen = []
    FederatedKMeans(3, init=given, max_rounds=1).fit_federation(
        InProcess.from_arrays(X, clients), on_round=lambda state, info: seen.append(state.previous)
    )
    np.testing.assert_array_equal(seen[0], given)


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("kmeans", "k-means"),
        (np.zeros((2, 4)), r"3 centroids of 4 columns"),
        (np.full((3, 4), np.nan), "missing"),
    ],
)
def test_bad_inits_are_refused(init, message):
    with pytest.raises(ParameterError, match=message):
        find_initializer(init, 3, 4)


@pytest.mark.parametrize("name", ["kfed", "client_random", "k-means++"])
def test_clients_of_one_row_each_cannot_start_and_say_why(name):
    federation = InProcess(Site(str(i), np.full((1, 2), float(i))) for i in range(4))
    with pytest.raises(DataError, match="giving a row away"):
        start(name, federation, 2, 2)


def test_a_site_decides_how_small_a_cluster_it_sends():
    X = np.array([[0.0], [0.0], [0.0], [50.0]])
    query = LocalClusters(2, "k-means", n_init=3, max_iter=10, seed=0)
    careful, open_ = Site("a", X), Site("a", X, policy=SitePolicy(min_cluster_size=1))
    np.testing.assert_allclose(sorted(open_.answer(query).centroids[:, 0]), [0, 50])
    reply = careful.answer(query)
    np.testing.assert_array_equal(reply.centroids, [[0.0]])
    np.testing.assert_array_equal(reply.counts, [4.0])  # the lone row still counts


def test_a_site_widens_a_mean_that_would_be_too_narrow():
    site = Site("a", np.arange(10.0)[:, None], policy=SitePolicy(min_cluster_size=10))
    reply = site.answer(DrawPoint(np.empty((0, 1)), mean_of=1, spread=False, seed=0))
    np.testing.assert_allclose(reply.point, [4.5])


def test_too_few_centroids_are_filled_up_with_a_warning():
    federation = InProcess(Site(str(i), np.random.default_rng(i).normal(size=(3, 2))) for i in range(2))
    with pytest.warns(UserWarning, match=r"only 2 centroids for n_clusters=5"):
        assert start("kfed", federation, 5, 2).shape == (5, 2)
