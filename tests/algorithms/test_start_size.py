"""The start from a sample of clients, and of the rows of large clients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.cluster import KMeans

from fedkmeans import FederatedKMeans, InProcess, Site, SitePolicy
from fedkmeans.algorithms.initialization import draw_clients, most_used
from fedkmeans.client.local_kmeans import lightweight_coreset
from fedkmeans.errors import ParameterError
from fedkmeans.kernels.reference.lloyd import assign, cluster_sums
from fedkmeans.protocol.messages import ALL_ROWS, DrawPoint, FindBox, LocalClusters
from fedkmeans.registry import make


class Watched(InProcess):
    """Records who is asked for the start, and for how many rows."""

    def __init__(self, sites, n_jobs=None):
        super().__init__(sites, n_jobs)
        self.asked = []

    def ask(self, query, clients):
        if isinstance(query, LocalClusters | DrawPoint | FindBox):
            self.asked.append((tuple(clients), getattr(query, "max_rows", None)))
        return super().ask(query, clients)


def groups(n, seed=0, m=3, k=4):
    rng = np.random.default_rng(seed)
    return 20.0 * rng.normal(size=(k, m))[rng.integers(k, size=n)] + rng.normal(size=(n, m))


@pytest.mark.parametrize(
    ("parameter", "value", "n_clusters", "expected"),
    [
        ("init_clients", "auto", 8, 500),
        ("init_clients", "auto", 64, 640),
        ("init_rows", "auto", 8, 10_000),
        ("init_rows", "auto", 1000, 100_000),
        ("init_clients", "all", 8, ALL_ROWS),
        ("init_rows", np.int64(7), 8, 7),
    ],
)
def test_the_size_follows_from_the_number_of_clusters(parameter, value, n_clusters, expected):
    assert most_used(parameter, value, n_clusters) == expected


@pytest.mark.parametrize("value", [0, -3, 2.5, True, None, "some", np.array([1, 2])])
@pytest.mark.parametrize("parameter", ["init_clients", "init_rows"])
def test_other_sizes_are_refused(parameter, value):
    with pytest.raises(ParameterError, match=rf"{parameter} must be a whole number .*'auto' or 'all'"):
        FederatedKMeans(3, **{parameter: value}).check_parameters()


@pytest.mark.parametrize("init", ["kfed", "random", "client_random", "k-means++"])
def test_a_sample_of_clients_makes_the_start(init):
    X = groups(1200)
    federation = Watched.from_arrays(X, np.arange(1200) // 2)

    def asked(**settings):
        federation.asked.clear()
        FederatedKMeans(4, init=init, max_rounds=1, **settings).fit_federation(federation)
        return {client for clients, _ in federation.asked for client in clients}

    ten = asked(init_clients=10, random_state=0)
    assert len(ten) <= 10
    if init != "client_random":  # which asks only as many as it needs
        assert len(ten) == 10
        assert len(asked(random_state=0)) == 500
        assert len(asked(random_state=0, init_clients="all")) == 600
    assert asked(init_clients=10, random_state=0) == ten
    assert asked(init_clients=10, random_state=1) != ten


def test_every_restart_draws_its_own_clients():
    federation = Watched.from_arrays(groups(120), np.arange(120) // 4)
    FederatedKMeans(4, n_init=3, init_clients=5, max_rounds=1, random_state=0).fit_federation(federation)
    drawn = [clients for clients, _ in federation.asked]
    assert len(set(drawn)) == 3
    assert {len(clients) for clients in drawn} == {5}


def test_clients_are_drawn_by_their_size():
    """Tiny clients, which may send nothing, are many; the few that can make a start are drawn first."""
    X = groups(3000 + 5 * 400)
    clients = np.concatenate([np.arange(3000), 3000 + np.arange(2000) // 400])
    for seed in range(4):
        model = FederatedKMeans(4, random_state=seed, max_rounds=20).fit(X, clients=clients)
        assert model.score_per_sample_ < 2 * 3  # three columns with a variance of one
    sizes = {"a": 10, "b": 0, "c": 30, "d": 60}
    drawn = [draw_clients(("a", "b", "c", "d", "e"), sizes, 1, seed)[0] for seed in range(400)]
    assert set(drawn) == {"a", "c", "d"}
    assert abs(drawn.count("d") - 240) < 50
    assert draw_clients(("a", "b", "c", "d", "e"), sizes, 4, 0) == ("a", "c", "d")


def test_the_paper_starts_from_all_rows_of_all_clients():
    federation = Watched.from_arrays(groups(1200), np.arange(1200) // 2)
    for name in ("dwf", "ewf", "wf"):
        make(name, n_clusters=4, max_rounds=1, random_state=0).fit_federation(federation)
        assert federation.asked.pop() == (federation.clients, ALL_ROWS)


@pytest.mark.parametrize("kernel", ["numpy", "numba"])
def test_clients_without_a_sample_send_what_they_always_sent(kernel):
    sites = [Site("small", groups(50, 1), kernel=kernel), Site("large", groups(90, 2), kernel=kernel)]
    query = LocalClusters(4, "k-means", 3, 20, seed=5, max_rows=50)
    every = LocalClusters(4, "k-means", 3, 20, seed=5)
    np.testing.assert_array_equal(sites[0].answer(query).centroids, sites[0].answer(every).centroids)
    assert not np.array_equal(sites[1].answer(query).centroids, sites[1].answer(every).centroids)


@pytest.mark.parametrize("method", ["k-means", "awasthi-sheffet"])
@pytest.mark.parametrize("kernel", ["numpy", "numba"])
def test_the_last_step_uses_all_rows(kernel, method):
    """What a large client sends are means of all its rows, and the counts are those of all rows."""
    X = groups(5000, m=2)
    site = Site("a", X, kernel=kernel)
    reply = site.answer(LocalClusters(4, method, 2, 100, seed=0, max_rows=60))
    counts = cluster_sums(X, assign(X, reply.centroids), 4)[1]
    np.testing.assert_array_equal(reply.counts, counts)
    # The groups are far apart, so that all rows of a group are in one cluster: its mean is exact.
    pooled = KMeans(4, n_init=10, random_state=0).fit(X).cluster_centers_
    np.testing.assert_allclose(reply.centroids[np.lexsort(reply.centroids.T)], pooled[np.lexsort(pooled.T)])


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    k=st.integers(1, 5),
    max_rows=st.integers(1, 70),
    least=st.integers(1, 4),
    weighted=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_a_client_sends_the_same_alone_in_threads_and_among_others(sizes, k, max_rows, least, weighted, seed):
    rng = np.random.default_rng(seed)
    shards = [rng.normal(size=(n, 2)) for n in sizes]
    weights = [rng.uniform(0.5, 2, size=n) if weighted else None for n in sizes]
    policy = SitePolicy(min_cluster_size=least)
    names = [str(i) for i in range(len(sizes))]
    query = LocalClusters(k, "k-means", 2, 10, seed, max_rows)
    shared = InProcess.from_arrays(
        np.concatenate(shards),
        np.repeat(names, sizes),
        np.concatenate(weights) if weighted else None,
        policy=policy,
    )
    for n_jobs in (1, 2):
        shared.n_jobs = n_jobs
        together = shared.ask(query, shared.clients)
        for name, X, weight in zip(names, shards, weights, strict=True):
            alone = Site(name, X, weight, policy=policy).answer(query)
            np.testing.assert_array_equal(together[name].centroids, alone.centroids)
            np.testing.assert_array_equal(together[name].counts, alone.counts)
            assert len(alone.centroids) <= min(k, len(X) // least)
            total = len(X) if weight is None else weight.sum()
            assert alone.counts.sum() == pytest.approx(total if len(alone.counts) else 0)


def test_a_sample_has_at_least_the_rows_that_the_policy_needs():
    site = Site("a", groups(200), policy=SitePolicy(min_cluster_size=3))
    reply = site.answer(LocalClusters(4, "k-means", 3, 20, seed=0, max_rows=1))
    assert 2 <= len(reply.centroids) <= 4
    assert reply.counts.sum() == 200


@pytest.mark.parametrize("weighted", [False, True])
def test_the_weights_of_a_coreset_stand_for_all_rows(weighted):
    """The inertia of any centroids on the coreset estimates that on all rows without bias."""
    X = groups(3000, m=2)
    X[7] = 500.0
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2, size=3000) if weighted else None
    C = X[:3] + 1.0
    closest = ((X[:, None] - C) ** 2).sum(axis=2).min(axis=1)
    inertia = closest.sum() if weight is None else closest @ weight
    estimates = []
    for _ in range(200):
        chosen, own = lightweight_coreset(X, weight, 100, rng)
        assert (np.diff(chosen) >= 0).all()
        estimates.append(closest[chosen] @ own)
    error = np.std(estimates) / np.sqrt(200)
    assert abs(np.mean(estimates) - inertia) < 4 * error
    assert error < 0.02 * inertia  # rows drawn uniformly would nearly always miss the outlier


def test_a_coreset_of_equal_rows_is_drawn_uniformly():
    chosen, weight = lightweight_coreset(np.ones((50, 2)), None, 10, np.random.default_rng(0))
    assert len(set(chosen.tolist())) > 3
    np.testing.assert_allclose(weight, 5.0)


def test_sparse_rows_are_sampled_like_dense_ones():
    X = np.round(groups(400)) * (np.random.default_rng(0).random((400, 3)) < 0.4)
    query = LocalClusters(4, "k-means", 2, 20, seed=0, max_rows=100)
    dense, thin = Site("a", X).answer(query), Site("a", sparse.csr_array(X)).answer(query)
    np.testing.assert_allclose(dense.centroids, thin.centroids)
    np.testing.assert_array_equal(dense.counts, thin.counts)


def test_a_start_from_a_sample_ends_where_a_start_from_all_rows_does():
    X, clients = groups(30_000, k=6), np.arange(30_000) % 3
    model = FederatedKMeans(6, random_state=0, init_rows=500).fit(X, clients=clients)
    every = FederatedKMeans(6, random_state=0, init_rows="all").fit(X, clients=clients)
    assert model.score_per_sample_ == pytest.approx(every.score_per_sample_, rel=5e-4)
