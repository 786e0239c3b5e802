import warnings

import numpy as np
import pytest

from fedkmeans import FederatedKMeans, InProcess, Site, SitePolicy
from fedkmeans.algorithms.initialization import INITIALIZERS, _draw, find_initializer
from fedkmeans.errors import DataError, ParameterError
from fedkmeans.kernels.reference import kmeans
from fedkmeans.kernels.reference.kmeans import inertia_of
from fedkmeans.protocol.exchange import run
from fedkmeans.protocol.messages import Box, CentroidSet, DrawPoint, FindBox, LocalClusters

NAMES = sorted(INITIALIZERS)


class Recording(InProcess):
    """A federation that records every reply of a site."""

    def __init__(self, sites, n_jobs=None):
        super().__init__(sites, n_jobs)
        self.replies = []

    def ask(self, query, clients):
        replies = super().ask(query, clients)
        self.replies.extend(replies.values())
        return replies


def points_in(reply):
    """The points in a reply, as rows."""
    if isinstance(reply, Box):
        return np.vstack([reply.minimum, reply.maximum])
    if isinstance(reply, CentroidSet):
        return reply.centroids
    return reply.point[None] if reply.weight > 0 else np.empty((0, len(reply.point)))


def start(name, federation, k, m, seed=0):
    return run(federation, INITIALIZERS[name](k, m, federation.clients, seed))


@pytest.mark.parametrize("name", NAMES)
def test_shape_place_and_seed(blobs, name):
    X, clients = blobs
    federation = InProcess.from_arrays(X, clients)
    centroids = start(name, federation, 6, 4)
    assert centroids.shape == (6, 4)
    assert centroids.dtype == np.float64
    assert (centroids >= X.min(axis=0) - 1e-12).all()
    assert (centroids <= X.max(axis=0) + 1e-12).all()
    np.testing.assert_array_equal(centroids, start(name, federation, 6, 4))
    assert not np.array_equal(centroids, start(name, federation, 6, 4, seed=1))


@pytest.mark.parametrize("name", NAMES)
def test_no_initializer_sends_a_row(name):
    rng = np.random.default_rng(3)
    sizes = [1, 1, 2, 3, 9, 30]
    shards = [rng.normal(size=(n, 3)) for n in sizes]
    federation = Recording(Site(f"c{i}", X) for i, X in enumerate(shards))
    for seed in range(10):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            start(name, federation, 6, 3, seed)
    sent = np.vstack([points_in(reply) for reply in federation.replies])
    sent = sent[np.isfinite(sent).all(axis=1)]
    assert len(sent) > 10
    # Not even a single value of a row.
    assert np.abs(sent[:, None] - np.vstack(shards)).min() > 1e-9


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
        ([[1.0], [2.0, 3.0]], "table of numbers"),
        (len, "table of numbers"),
    ],
)
def test_bad_inits_are_refused(init, message):
    with pytest.raises(ParameterError, match=message):
        find_initializer(init, 3, 4)


@pytest.mark.parametrize("name", NAMES)
def test_clients_of_one_row_each_cannot_initialize_and_the_error_says_why(name):
    federation = InProcess(Site(str(i), np.full((1, 2), float(i))) for i in range(4))
    with pytest.raises(DataError, match="giving a row away"):
        start(name, federation, 2, 2)


def test_the_policy_of_a_site_sets_the_smallest_cluster_it_sends():
    X = np.array([[0.0], [0.0], [0.0], [50.0]])
    query = LocalClusters(2, "k-means", n_init=3, max_iter=10, seed=0)
    careful, open_ = Site("a", X), Site("a", X, policy=SitePolicy(min_cluster_size=1))
    np.testing.assert_allclose(sorted(open_.answer(query).centroids[:, 0]), [0, 50])
    reply = careful.answer(query)
    np.testing.assert_array_equal(reply.centroids, [[0.0]])
    np.testing.assert_array_equal(reply.counts, [4.0])  # the single row still counts


def test_a_site_widens_a_mean_that_would_be_too_narrow():
    site = Site("a", np.arange(10.0)[:, None], policy=SitePolicy(min_cluster_size=10))
    reply = site.answer(DrawPoint(np.empty((0, 1)), mean_of=1, spread=False, seed=0))
    np.testing.assert_allclose(reply.point, [4.5])


def test_too_few_centroids_are_filled_up_with_a_warning():
    federation = InProcess(Site(str(i), np.random.default_rng(i).normal(size=(3, 2))) for i in range(2))
    with pytest.warns(UserWarning, match="from the clients: 2 for n_clusters=5"):
        assert start("kfed", federation, 5, 2).shape == (5, 2)


def test_weights_cannot_make_a_centroid_of_one_row():
    """Two rows per cluster, one with a negligible weight: the mean would be the other row."""
    X, query = np.array([[0.123], [0.2], [10.77], [10.0]]), LocalClusters(2, "k-means", 3, 10, 0)
    for light in (0.0, 1e-12):
        reply = Site("a", X, sample_weight=[1, light, 1, light]).answer(query)
        assert np.abs(reply.centroids - X[:, 0]).min(initial=np.inf) > 1e-6
    even = Site("a", X, sample_weight=np.full(4, 0.3)).answer(query)
    np.testing.assert_allclose(np.sort(even.centroids[:, 0]), [0.1615, 10.385])


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_weight_do_not_affect_the_initialization(name):
    X = np.concatenate([np.random.default_rng(0).normal(size=(50, 1)), np.full((50, 1), 1e6)])
    federation = InProcess([Site("a", X, sample_weight=np.repeat([1.0, 0.0], 50))])
    assert np.abs(start(name, federation, 3, 1)).max() < 10


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_does_not_reply_does_not_stop_the_initialization(blobs, name):
    X, clients = blobs

    class Deaf(InProcess):
        def ask(self, query, clients):
            return super().ask(query, [client for client in clients if client != "3"])

    federation = Deaf.from_arrays(X, clients)
    for seed in range(8):
        assert start(name, federation, 4, 4, seed).shape == (4, 4)


def test_kmeans_plusplus_chooses_no_point_twice():
    X = np.random.default_rng(0).normal(size=(160, 2))
    for n_clients in (4, 16, 40):
        federation = InProcess.from_arrays(X, np.arange(160) % n_clients)
        for seed in range(5):
            centroids = start("k-means++", federation, 20, 2, seed)
            assert len(np.unique(centroids, axis=0)) == 20


def test_kmeans_plusplus_draws_in_proportion_to_squared_distances():
    """Rows at 0, 1, 2 and 3 (the last two on another client), one centroid at 0: odds 0, 1, 4, 9."""
    policy = SitePolicy(min_cluster_size=1)
    left = Site("a", np.array([[0.0], [1.0]]), policy=policy)
    right = Site("b", np.array([[2.0], [3.0]]), policy=policy)
    federation = InProcess([left, right])
    n_draws, drawn = 600, np.zeros(4)
    for seed in range(n_draws):
        found = run(federation, second_centroid(federation.clients, seed))
        drawn[int(found)] += 1
    expected = n_draws * np.array([1, 4, 9]) / 14
    assert drawn[0] == 0
    # Chi-squared with two degrees of freedom: 13.8 is exceeded once in a thousand.
    assert ((drawn[1:] - expected) ** 2 / expected).sum() < 13.8


def second_centroid(clients, seed):
    query = DrawPoint(np.array([[0.0]]), mean_of=1, spread=False, seed=seed)
    return (yield from _draw(query, clients, np.random.default_rng(seed)))[0]


def test_client_random_takes_a_few_random_rows():
    X = np.arange(1000.0)[:, None]
    federation = InProcess([Site("a", X)])
    points = np.concatenate([start("client_random", federation, 20, 1, seed) for seed in range(5)])
    # Means of five of 0 … 999: around 499.5 with a standard deviation of about 129.
    assert abs(points.mean() - 499.5) < 4 * 129 / np.sqrt(len(points))
    assert 90 < points.std() < 170


def test_the_box_leaves_out_the_outermost_value():
    X = np.array([[0.0], [1.0], [2.0], [3.0], [100.0]])
    box = Site("a", X).answer(FindBox())
    assert (box.minimum[0], box.maximum[0]) == (0.5, 51.5)
    exact = Site("a", X, policy=SitePolicy(min_cluster_size=1)).answer(FindBox())
    assert (exact.minimum[0], exact.maximum[0]) == (0.0, 100.0)


def test_greedy_seeding_beats_a_single_trial():
    X = np.random.default_rng(0).normal(size=(300, 2))

    def potential(n_trials):
        total = 0.0
        for seed in range(20):
            rng = np.random.default_rng(seed)
            total += inertia_of(X, kmeans.kmeans_plusplus(X, 12, rng, n_trials=n_trials))
        return total

    assert potential(None) < 0.95 * potential(1)
