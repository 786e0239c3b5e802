"""Statistics of clients in one process, which stay in the arrays of the kernel, and their totals."""

import numpy as np
import pytest

from fedkmeans import FederatedKMeans, InProcess, Site
from fedkmeans.algorithms.latest_statistics import LatestStatistics
from fedkmeans.algorithms.wf_kmeans import LocalWork
from fedkmeans.protocol.exchange import add_up
from fedkmeans.protocol.messages import SendStatistics
from fedkmeans.protocol.statistics import ClusterStatistics, RunningTotal, StackedStatistics
from tests.lossy import Lossy

pytestmark = pytest.mark.slow

KERNELS = ["numpy", "numba"]


@pytest.fixture
def problem():
    """Rows with enough columns for the compiled kernel to keep bounds."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 30)) + 3 * rng.normal(size=(6, 30))[rng.integers(6, size=600)]
    return X, np.sort(rng.integers(12, size=600)), rng.random(600) + 0.1


def query(centroids, weighting="dynamic", max_local=1):
    return SendStatistics(LocalWork(weighting, max_local).query(centroids))


def assert_same(one, two):
    for a, b in zip(one.parts()[:3], two.parts()[:3], strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.inertia == pytest.approx(two.inertia, rel=1e-12)
    assert one.n_samples == pytest.approx(two.n_samples)


def own_rule(local):
    return np.sqrt(local.counts)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("weighting", ["dynamic", "by_compactness", own_rule])
@pytest.mark.parametrize("max_local", [1, 3])
def test_stacked_statistics_are_those_of_each_site(problem, kernel, weighting, max_local):
    X, clients, weight = problem
    federation = InProcess.from_arrays(X, clients, weight, kernel=kernel)
    names = np.unique(clients)
    alone = [Site(str(name), X[clients == name], weight[clients == name], kernel="numpy") for name in names]
    rng = np.random.default_rng(1)
    centroids = X[:5]
    for _ in range(4):
        found = federation.ask(query(centroids, weighting, max_local), federation.clients)
        assert isinstance(found, StackedStatistics)
        assert list(found) == sorted(site.name for site in alone)
        for site in alone:
            expected = site.answer(query(centroids, weighting, max_local))
            if weighting == "by_compactness":  # weights depend on inertia, which may be rounded differently
                np.testing.assert_allclose(found[site.name].weighted_sum, expected.weighted_sum, rtol=1e-9)
            else:
                assert_same(found[site.name], expected)
        total = federation.total(query(centroids, weighting, max_local), federation.clients)
        assert_same(total.record, add_up(dict(found)).record)
        assert total.received == add_up(dict(found)).received
        centroids = centroids + 0.2 * rng.normal(size=centroids.shape)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_stored_reply_does_not_change(problem, kernel):
    X, clients, _ = problem
    federation = InProcess.from_arrays(X, clients, kernel=kernel)
    first = federation.ask(query(X[:5]), federation.clients)
    copies = {name: federation.sites[name].answer(query(X[:5])) for name in first}
    federation.ask(query(X[50:55]), federation.clients)
    federation.ask(query(X[90:95]), federation.clients)
    for name, expected in copies.items():
        assert_same(first[name], expected)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("memory", ["server", "client", 0.9])
@pytest.mark.parametrize("clients_per_round", [None, 4])
def test_plain_and_stacked_replies_lead_to_the_same_bits(problem, kernel, memory, clients_per_round):
    """With `Lossy` the server gets plain messages, as over a network."""
    X, clients, weight = problem
    model = FederatedKMeans(
        5, memory=memory, clients_per_round=clients_per_round, init=X[:5], max_rounds=25, tol_score=0, tol=0,
        random_state=0,
    )  # fmt: skip
    stacked = InProcess.from_arrays(X, clients, weight, kernel=kernel)
    plain = Lossy(InProcess.from_arrays(X, clients, weight, kernel="numpy"))
    expected = model.fit_federation(plain)
    centres, history = expected.cluster_centers_, expected.history_
    found = model.fit_federation(stacked)
    np.testing.assert_array_equal(found.cluster_centers_, centres)
    np.testing.assert_allclose(found.history_.estimate, history.estimate, rtol=1e-12)
    assert list(found.history_.bytes_received) == list(history.bytes_received)


def test_restarts_that_share_an_exchange_do_not_mix(problem):
    X, clients, _ = problem
    settings = {"n_init": 3, "max_rounds": 12, "init": "client_random", "random_state": 3, "tol_score": 0}
    fits = [
        FederatedKMeans(4, **settings).fit_federation(InProcess.from_arrays(X, clients, kernel=kernel))
        for kernel in KERNELS
    ]
    np.testing.assert_array_equal(fits[0].cluster_centers_, fits[1].cluster_centers_)
    np.testing.assert_allclose(fits[0].history_.estimate, fits[1].history_.estimate, rtol=1e-12)


def some_statistics(rng, last, k, m):
    """New statistics: some clusters unchanged, some without points, numbers of very different sizes."""
    size = 10.0 ** rng.integers(-8, 9)
    weight = np.where(rng.random(k) < 0.3, 0.0, rng.random(k) * size)
    sums = np.where(weight[:, None] > 0, rng.normal(size=(k, m)) * size, 0.0)
    if last is not None:
        same = rng.random(k) < 0.4
        weight, sums = np.where(same, last.weight, weight), np.where(same[:, None], last.weighted_sum, sums)
    return ClusterStatistics(sums, weight, (weight > 0) * 1.0, float(rng.random()), 7.0)


@pytest.mark.parametrize("seed", range(5))
def test_both_kernels_update_a_total_with_the_same_bits(seed):
    rng = np.random.default_rng(seed)
    k, m, names = 4, 21, tuple("abcdef")
    tables = {kernel: LatestStatistics(names, k, m) for kernel in KERNELS}
    latest, exact = {}, RunningTotal.nothing(k, m)
    for round_ in range(40):
        here = names if round_ < 30 else names[:4]
        asked = [name for name in here if rng.random() < 0.6]
        news = {name: some_statistics(rng, latest.get(name), k, m) for name in asked}
        for name in {**dict.fromkeys(asked), **dict.fromkeys(set(latest) - set(here))}:
            if name in latest:
                exact = exact.plus(-latest.pop(name))
        for name in asked:
            exact, latest[name] = exact.plus(news[name]), news[name]
        for kernel, table in tables.items():
            table.keep(here)
            if news:
                stacked = StackedStatistics.of(news)
                stacked.kernel = kernel
                table.replace(stacked)
        one, two = (table.total() for table in tables.values())
        for a, b in ((one.high, two.high), (one.low, two.low)):
            for left, right in zip(a.parts(), b.parts(), strict=True):
                np.testing.assert_array_equal(left, right)
        assert set(tables["numba"].known) == set(latest)
        np.testing.assert_allclose(one.high.weighted_sum, exact.high.weighted_sum, rtol=1e-15, atol=1e-19)
        np.testing.assert_array_equal(one.high.holders, exact.high.holders)
