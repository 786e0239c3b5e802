"""Memory: settings, stopping, counted bytes and refused combinations."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fedkmeans import FederatedKMeans, InProcess, Site
from fedkmeans.algorithms.fit import find_memory
from fedkmeans.algorithms.response_log import ResponseLog
from fedkmeans.algorithms.rounds import PARTICIPATION, in_turns, sample_clients
from fedkmeans.algorithms.server_update import remembered_target
from fedkmeans.algorithms.state import State
from fedkmeans.algorithms.stopping import Stopping, change_left
from fedkmeans.algorithms.wf_kmeans import LocalWork
from fedkmeans.errors import FederationError, ParameterError
from fedkmeans.kernels.reference.lloyd import assign, cluster_sums
from fedkmeans.protocol.exchange import add_up, run
from fedkmeans.protocol.messages import Bundle, LocalUpdate, SendDelta, SendStatistics, bytes_to, n_bytes
from fedkmeans.protocol.statistics import ClusterStatistics
from fedkmeans.registry import make
from tests.lossy import Lossy

pytestmark = pytest.mark.slow

LAST_WORD = ["server", "client"]
ALL = [*LAST_WORD, 0.9]


def fit(federation, memory="server", **changes):
    settings = {"clients_per_round": 2, "max_rounds": 60, "tol_score": 0, "random_state": 0} | changes
    k = len(settings["init"]) if isinstance(settings.get("init"), np.ndarray) else 3
    return FederatedKMeans(k, memory=memory, **settings).fit_federation(federation)


@pytest.fixture
def scattered():
    """Rows without clear groups on unlike clients, so that labels change in many rounds."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2))
    return X, np.argsort(np.argsort(X[:, 0])) // 20  # ten clients, each a slice of the first column


def pooled(X, start):
    labels = None
    while labels is None or not np.array_equal(labels, assign(X, start)):
        labels = assign(X, start)
        sums, counts = cluster_sums(X, labels, len(start))
        start = sums / counts[:, None]
    return start


# --- fixed points ------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", LAST_WORD)
@pytest.mark.parametrize("participation", ["turns", "random"])
def test_few_clients_per_round_end_at_a_fixed_point_of_pooled_lloyd(scattered, memory, participation):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    model = fit(federation, memory, participation=participation, init=X[:4], max_rounds=1000)
    assert model.stop_reason_ == "tol"
    np.testing.assert_allclose(pooled(X, model.cluster_centers_), model.cluster_centers_, rtol=0, atol=1e-9)


@pytest.mark.parametrize("memory", [None, *ALL])
def test_learning_rate_and_momentum_work_with_every_memory(scattered, memory):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    settings = {"init": X[:4], "clients_per_round": None, "max_rounds": 1}
    whole = fit(federation, memory, **settings).cluster_centers_
    half = fit(federation, memory, learning_rate=0.5, **settings).cluster_centers_
    np.testing.assert_allclose(half, (X[:4] + whole) / 2)
    path = []
    FederatedKMeans(
        4, memory=memory, init=X[:4], max_rounds=2, momentum=0.5, learning_rate=0.5, tol_score=0
    ).fit_federation(federation, on_round=lambda state, info: path.append(state.centroids))
    plain = fit(federation, memory, learning_rate=0.5, **{**settings, "max_rounds": 2}).cluster_centers_
    np.testing.assert_allclose(path[1], plain + 0.5 * (path[0] - X[:4]))


def test_forgetting_follows_its_formula(scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    asked, seen, C = [], [], X[:4]
    FederatedKMeans(
        4, memory=0.7, init=C, clients_per_round=3, max_rounds=8, tol_score=0, random_state=5
    ).fit_federation(
        federation, on_round=lambda state, info: (asked.append(info.asked), seen.append(state.centroids))
    )
    S, W = np.zeros((4, 2)), np.zeros(4)
    for t, (chosen, found) in enumerate(zip(asked, seen, strict=True)):
        rows = X[np.isin(clients, [int(name) for name in chosen])]
        sums, counts = cluster_sums(rows, assign(rows, C), 4)
        gamma = min(0.7, 1 - 1 / (t + 2))
        S, W = gamma * S + sums, gamma * W + counts
        C = np.where(W[:, None] > 0, S / np.maximum(W, 1e-300)[:, None], C)
        np.testing.assert_allclose(found, C, rtol=1e-12)


def test_a_cluster_with_a_negligible_total_does_not_move():
    """The remaining total is too small to define a centroid."""
    total = ClusterStatistics(np.full((1, 1), 1e-200), np.full(1, 3e-201), np.full(1, 1e-201), 0.0, 1.0)
    np.testing.assert_array_equal(remembered_target(total, np.array([[7.0]]), 1.0, least=1e-100), [[7.0]])


def test_a_cluster_without_rows_for_a_few_rounds_still_moves_to_its_total():
    """Forgetting is gradual."""
    sites = [Site("a", [[0.0], [1.0]]), Site("b", [[9.0], [10.0]])]
    path = []
    model = FederatedKMeans(
        2, memory=0.3, init=np.array([[0.2], [9.2]]), clients_per_round=1, learning_rate=0.5,
        participation="random", max_rounds=12, tol=0, tol_score=0, random_state=2,
    )  # fmt: skip
    model.fit_federation(InProcess(sites), on_round=lambda s, info: path.append((info.asked, s.centroids)))
    asked = "".join(names[0] for names, _ in path)
    for absent, column, goal in (("bbb", 0, 0.5), ("aaa", 1, 9.5)):
        start = asked.find(absent)
        if start > 0:
            places = [c[column, 0] for _, c in path[start - 1 : start + 3]]
            assert all(abs(b - goal) < abs(a - goal) for a, b in pairwise(places))
    assert "aaa" in asked[1:] or "bbb" in asked[1:]


def test_clients_that_never_replied_count_with_the_current_centroids(blobs):
    X, clients = blobs
    federation = InProcess.from_arrays(X, clients)
    start = np.array([[0.0, 0, 0, 0], [6, 6, 0, 0], [0, 6, 6, 5]])
    state = State.start(start)
    found = run(federation, find_memory("server", LocalWork(max_local=1))(state, federation.clients, ("3",)))
    rows = X[clients == 3]
    sums, counts = cluster_sums(rows, assign(rows, start), 3)
    others = 4 * len(rows) / 3  # four more clients like this one, in three clusters
    np.testing.assert_allclose(found.d, (sums + others * start) / (counts + others)[:, None])


def test_a_cluster_that_became_empty_does_not_move(blobs):
    """Statistics with fractional weights leave rounding errors, which are no cluster."""
    X, clients = blobs
    weight = np.random.default_rng(0).random(len(X))
    federation = InProcess.from_arrays(X, clients, weight)
    far = np.array([[1e3, 1e3, 1e3, 1e3]])
    find_target = find_memory("client", LocalWork(max_local=1))
    state = State.start(np.concatenate([X[:2], far]))
    everybody = federation.clients
    found = run(federation, find_target(State.start(X[[0, 100, 200]]), everybody, everybody))
    state = State(state.centroids, state.centroids, 1, memory=found.memory)
    found = run(federation, find_target(state, everybody, everybody))
    assert found.memory.total.high.holders[2] == 0
    np.testing.assert_array_equal(found.d[2], far[0])


@pytest.mark.parametrize("n_init", [1, 3])
def test_each_restart_has_its_own_memory(scattered, n_init):
    X, clients = scattered
    one, two = (
        fit(InProcess.from_arrays(X, clients), memory, n_init=n_init, max_rounds=30) for memory in LAST_WORD
    )
    np.testing.assert_allclose(one.cluster_centers_, two.cluster_centers_, rtol=0, atol=1e-12)
    assert one.best_restart_ == two.best_restart_


def test_restarts_share_exchanges_with_memory_too(scattered):
    X, clients = scattered
    counts = []
    for n_init in (1, 4):
        lossy = Lossy(InProcess.from_arrays(X, clients))
        fit(lossy, "client", n_init=n_init, max_rounds=5, tol=0)
        counts.append(lossy.exchange)
    assert counts[0] == counts[1]


def test_sites_remember_few_runs(scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    for _ in range(6):
        fit(federation, "client", n_init=3, max_rounds=12, tol=0)
    for site in federation.sites.values():
        assert len(site.delta_states) == 4
        assert all(len(totals) == 3 for totals in site.delta_states.values())


# --- faults ------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ALL)
def test_rounds_without_replies_are_skipped(scattered, memory):
    X, clients = scattered
    silent = Lossy(InProcess.from_arrays(X, clients), lose=lambda n: "0123456789" if n in (3, 7) else ())
    model = fit(silent, memory, init=X[:4], max_rounds=12, tol=0)
    assert list(model.history_.participants == 0) == [n in (3, 7) for n in range(1, 13)]
    assert (model.history_.bytes_received[model.history_.participants == 0] == 0).all()


@pytest.mark.parametrize("memory", ALL)
def test_the_run_ends_when_all_clients_were_asked_and_none_replied(scattered, memory):
    X, clients = scattered
    silent = Lossy(InProcess.from_arrays(X, clients), lose=lambda n: "0123456789" if n > 4 else ())
    with pytest.raises(FederationError, match=r"Each of the 10 client.* 5 times and none answered"):
        fit(silent, memory, init=X[:4])
    # One exchange for the columns, four rounds, and five times five rounds of two clients each.
    assert silent.exchange == 1 + 4 + 25


@pytest.mark.parametrize("memory", LAST_WORD)
def test_a_client_that_leaves_is_forgotten(scattered, memory):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)

    def leave(state, info):
        if info.round == 6:
            federation.remove("9")
            federation.remove("4")

    model = FederatedKMeans(
        4, memory=memory, init=X[:4], clients_per_round=3, tol_score=0, random_state=0
    ).fit_federation(federation, on_round=leave)
    left = X[~np.isin(clients, [4, 9])]
    assert model.stop_reason_ == "tol"
    np.testing.assert_allclose(
        pooled(left, model.cluster_centers_), model.cluster_centers_, rtol=0, atol=1e-9
    )
    expected = ((left[:, None] - model.cluster_centers_) ** 2).sum(axis=2).min(axis=1)
    assert model.score_per_sample_ == pytest.approx(expected.mean())


def test_fewer_clients_may_remain_than_are_asked_per_round(scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)

    def leave(state, info):
        if info.round < 9:
            federation.remove(str(info.round))

    model = FederatedKMeans(4, init=X[:4], clients_per_round=3, max_rounds=20, random_state=0)
    model.fit_federation(federation, on_round=leave)
    assert list(model.history_.asked.iloc[:10]) == [3, 3, 3, 3, 3, 3, 3, 3, 2, 2]


def test_an_error_says_that_all_clients_have_left(scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)

    def leave(state, info):
        for name in federation.clients:
            federation.remove(name)

    with pytest.raises(FederationError, match="All clients have left"):
        FederatedKMeans(4, init=X[:4]).fit_federation(federation, on_round=leave)
    with pytest.raises(ParameterError, match="no client 'nobody'"):
        InProcess([Site("a", X)]).remove("nobody")


@pytest.mark.filterwarnings("ignore:The total of the clients' statistics")
@pytest.mark.parametrize("lost_share", [0.0, 0.3])
def test_sites_that_restart_often_do_not_change_the_result(scattered, lost_share):
    X, clients = scattered
    rng = np.random.default_rng(3)

    def harm(exchange, inner):
        if exchange < 100 and exchange % 15 == 14:
            inner.sites[str(rng.integers(10))].forget_deltas()

    federation = Lossy(
        InProcess.from_arrays(X, clients),
        lose=lambda n: tuple(name for name in "0123456789" if rng.random() < lost_share),
        before=harm,
    )
    model = FederatedKMeans(4, memory="client", init=X[:4], clients_per_round=3, tol_score=0, random_state=0)
    model.fit_federation(federation)
    assert model.stop_reason_ == "tol"
    np.testing.assert_allclose(pooled(X, model.cluster_centers_), model.cluster_centers_, rtol=0, atol=1e-9)


@pytest.mark.parametrize("memory", LAST_WORD)
def test_the_run_does_not_wait_for_a_client_that_never_replies(scattered, memory):
    X, clients = scattered
    federation = Lossy(InProcess.from_arrays(X, clients), lose=lambda n: ("6",) if n else ())
    model = fit(federation, memory, init=X[:4], max_rounds=1000)
    assert model.stop_reason_ == "tol"
    there = X[clients != 6]
    np.testing.assert_allclose(
        pooled(there, model.cluster_centers_), model.cluster_centers_, rtol=0, atol=1e-7
    )


def test_statistics_counted_in_one_total_are_not_mistaken_for_another(blobs):
    """A site restored from an old copy must not send a delta to a total that it does not know."""
    X, _ = blobs
    site = Site("a", X)
    update = LocalUpdate(X[:3], 1, 1e-8, "dynamic", "keep")
    first = site.answer(SendDelta(update, "run", "sum", "e1", {"a": None}))
    assert (first.lost, first.difference.n_samples, first.exchange) == (0, 240, "e1")
    assert site.answer(SendDelta(update, "run", "sum", "e2", {"a": "e1"})).difference.n_samples == 0
    for other, counted in ((("other", "sum"), "e1"), (("run", "other"), "e1"), (("run", "sum"), "e0")):
        reply = site.answer(SendDelta(update, *other, "e3", {"a": counted}))
        assert (reply.lost, reply.difference.n_samples, reply.difference.weight.any()) == (1, 0, False)
    assert site.answer(SendDelta(update, "run", "sum", "e4", {"a": None})).difference.n_samples == 240


def test_repeated_statistics_are_counted_exactly(blobs):
    """The next delta includes the rounding error of the last one, until nothing is left to send."""
    X, _ = blobs
    site = Site("a", X + 1e6 / 3, np.random.default_rng(0).random(len(X)))
    here, there = (LocalUpdate(X[rows] + 1e6 / 3, 1, 1e-8, "dynamic", "keep") for rows in ([0, 1], [9, 99]))
    counted = None
    for exchange, update in enumerate([here, there, here, here, here]):
        reply = site.answer(SendDelta(update, "run", "sum", str(exchange), {"a": counted}))
        counted = str(exchange)
    assert not reply.difference.weighted_sum.any()
    (delta_states,) = site.delta_states["run"].values()
    statistics = site.answer(SendStatistics(here))
    np.testing.assert_array_equal(delta_states.counted.high.weighted_sum, statistics.weighted_sum)


def test_a_site_must_be_asked_by_its_own_name(blobs):
    X, _ = blobs
    update = LocalUpdate(X[:3], 1, 1e-8, "dynamic", "keep")
    with pytest.raises(FederationError, match=r"'a' was asked .* only of node-17\. .* own names"):
        Site("a", X).answer(SendDelta(update, "run", "sum", "e1", {"node-17": None}))


class Late(Lossy):
    """Delivers a client's reply to the previous query instead of the latest, as a bad transport might."""

    def __init__(self, inner, who, when):
        super().__init__(inner)
        self.who, self.when, self.before_last = who, when, None

    def ask(self, query, clients):
        replies = super().ask(query, clients)
        late = self.before_last if self.exchange == self.when else None
        self.before_last = replies.get(self.who)
        return {**replies, self.who: late} if late is not None else replies


def test_a_late_delta_is_not_counted(scattered):
    X, clients = scattered
    federation = Late(InProcess.from_arrays(X, clients), "3", when=5)
    with pytest.raises(FederationError, match="must drop late replies"):
        fit(federation, "client", init=X[:4], clients_per_round=None)


def test_two_servers_that_continue_from_one_state_do_not_interfere(scattered):
    """A run resumed twice by mistake: each server notices the other and starts a new total."""
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    everybody = federation.clients
    find_target = find_memory("client", LocalWork(max_local=1))
    state = State.start(X[:4])
    found = run(federation, find_target(state, everybody, everybody))
    states = [State(found.d + shift, found.d, 1, memory=deepcopy(found.memory)) for shift in (0.0, 0.3)]
    for _ in range(4):
        for index, state in enumerate(states):
            found = run(federation, find_target(state, everybody, everybody))
            assert found.memory.total.high.n_samples == 200
            counts = np.bincount(assign(X, state.centroids), minlength=4)
            np.testing.assert_array_equal(found.memory.total.high.weight, counts)
            states[index] = State(found.d, state.centroids, state.round + 1, memory=found.memory)
    assert states[0].memory.restarts > 0


class Forgetful(Lossy):
    """Its sites always reply that they lost their state."""

    def total(self, query, clients):
        replies = self.ask(query, clients)
        if isinstance(query, SendDelta):
            replies = {name: replace(reply, lost=1) for name, reply in replies.items()}
        return add_up(replies)


def test_sites_that_always_report_a_lost_state_end_the_run(scattered):
    X, clients = scattered
    with pytest.raises(FederationError, match="told that nothing is"):
        fit(Forgetful(InProcess.from_arrays(X, clients)), "client", init=X[:4])


def test_a_new_total_takes_another_exchange_and_a_new_window(scattered):
    X, clients = scattered
    inner = InProcess.from_arrays(X, clients)
    lossy = Lossy(
        inner,
        lose=lambda n: ("2",) if n in (1, 2) else (),
        before=lambda n, inner: inner.sites["7"].forget_deltas() if n == 3 else None,
    )
    find_target = find_memory("client", LocalWork(max_local=1))
    state, everybody = State.start(X[:4]), inner.clients
    windows, sent, received, exchanges = [], [], [], []
    for chosen in [everybody, everybody, everybody, ("7",), ("0", "1"), everybody]:
        before = lossy.exchange
        found = run(lossy, find_target(state, everybody, chosen))
        state = State(found.d, state.centroids, state.round + 1, memory=found.memory)
        exchanges.append(lossy.exchange - before)
        windows.append(found.window)
        sent.append(found.sent / len(chosen))
        received.append(found.received / max(1, len(found.answered)))
        if len(windows) in (3, 4):  # a new total does not change the count of missed replies
            assert found.memory.response_log.missed == {"2": 2}
    assert exchanges == [1, 1, 1, 2, 1, 1]
    assert windows == [1, 2, 3, None, None, 1]
    assert sent[3] == pytest.approx(2 * sent[2], rel=0.1)
    assert received[3] == 2 * received[2]


def test_frequent_new_totals_cause_a_warning(scattered):
    X, clients = scattered

    def harm(exchange, inner):
        inner.sites["0"].forget_deltas()

    federation = Lossy(InProcess.from_arrays(X, clients), before=harm)
    with pytest.warns(UserWarning, match=r"started again 5 times.*memory='server'"):
        fit(federation, "client", init=X[:4], clients_per_round=None, max_rounds=8, tol=0)


def test_the_run_used_last_is_kept_longest(blobs):
    X, _ = blobs
    site = Site("a", X)
    update = LocalUpdate(X[:3], 1, 1e-8, "dynamic", "keep")
    for name in "ABCDAE":
        site.answer(SendDelta(update, name, "sum", "e", {"a": None}))
    assert list(site.delta_states) == ["C", "D", "A", "E"]


def test_a_client_receives_only_its_own_part_of_a_query(scattered):
    X, clients = scattered
    seen = []

    class Curious(Site):
        def answer(self, query):
            seen.append((self.name, query))
            return super().answer(query)

    sites = [Curious(str(i), X[clients == i]) for i in range(10)]
    fit(InProcess(sites), "client", n_init=2, init="k-means++", max_rounds=6, tol=0)
    bundles = [(name, query) for name, query in seen if isinstance(query, Bundle)]
    bundles = [(name, query) for name, query in bundles if isinstance(query.queries[0], SendDelta)]
    assert bundles
    for name, bundle in bundles:
        assert all(set(part.counted) == {name} for part in bundle.queries)


def test_a_score_without_replies_does_not_end_the_run(scattered):
    X, clients = scattered
    silent = Lossy(InProcess.from_arrays(X, clients))
    # Columns, then rounds and scores alternately; the last four are attempts at the final score.
    silent.lose = lambda n: "0123456789" if n in (2, 9, 10, 11) else ()
    model = fit(silent, init=X[:4], max_rounds=4, tol=0, score_every=1)
    assert list(model.history_.score.isna()) == [True, False, False, False]
    assert model.score_per_sample_ > 0
    silent.lose = lambda n: "0123456789" if n >= 9 else ()
    silent.exchange = 0
    with pytest.raises(FederationError, match=r"None of the 10 clients .* answered the query Score"):
        fit(silent, init=X[:4], max_rounds=4, tol=0, score_every=1)


def test_restarts_continue_after_rounds_without_replies(scattered):
    X, clients = scattered
    silent = Lossy(InProcess.from_arrays(X, clients), lose=lambda n: "0123456789" if n in (4, 6) else ())
    for memory in ALL:
        silent.exchange = 0
        model = fit(silent, memory, n_init=2, max_rounds=8, tol=0)
        silence = model.history_.groupby("round").participants.sum() == 0
        assert list(silence) == [n in (4, 6) for n in range(2, 10)]


@pytest.mark.parametrize("memory", LAST_WORD)
def test_many_clients_that_never_answer_do_not_slow_the_others(scattered, memory):
    X, clients = scattered
    federation = Lossy(InProcess.from_arrays(X, clients), lose=lambda n: "23456789" if n else ())
    model = fit(federation, memory, init=X[:4], max_rounds=1000)
    alone = fit(InProcess.from_arrays(X[clients < 2], clients[clients < 2]), memory, init=X[:4])
    assert model.stop_reason_ == "tol"
    assert model.n_iter_ < 5 * 6 + 5 * alone.n_iter_  # no longer asked after the sixth turn of five rounds


def test_a_client_removed_between_query_and_reply_does_not_reply(scattered):
    X, clients = scattered
    federation = Lossy(
        InProcess.from_arrays(X, clients), before=lambda n, inner: n == 3 and inner.remove("4")
    )
    model = fit(federation, init=X[:4], clients_per_round=None, max_rounds=4, tol=0)
    assert list(model.history_.asked) == [10, 10, 10, 9]
    assert list(model.history_.participants) == [10, 10, 9, 9]


# --- stopping ----------------------------------------------------------------------------------


def test_a_round_without_movement_does_not_stop_the_run():
    """The client asked first does not move its centroids; the others have not replied yet."""
    sites = [Site("a", [[0.0], [1.0]]), Site("b", [[4.0], [20.0]]), Site("c", [[5.0], [40.0]])]
    start = np.array([[0.5], [30.0]])
    model = FederatedKMeans(2, init=start, clients_per_round=1, tol_score=0, random_state=0)
    model.fit_federation(InProcess(sites))
    assert model.history_.movement.min() == 0
    pooled_rows = np.array([[0.0], [1.0], [4.0], [20.0], [5.0], [40.0]])
    np.testing.assert_allclose(pooled(pooled_rows, start), model.cluster_centers_)
    assert (model.history_.movement.iloc[-3:] < 1e-8).all()


def left_after(estimates, window):
    """Return the predicted change when all estimates of a run are given."""
    return change_left(estimates, window, len(estimates))


def test_change_left_is_not_too_small_for_slow_convergence():
    """For a score that decreases like 1/t, the remaining change is about t times the latest change."""
    for window in (5, 8):
        estimates = tuple(10 + 1 / t for t in range(1, 30 * window + 1))
        left = np.mean(estimates[-window:]) - 10
        assert left < left_after(estimates, window) < 3 * left
    estimates = tuple(10 + 0.9**t for t in range(40))
    assert left_after(estimates, 1) == left_after(estimates, 5)  # never over fewer than five rounds
    assert left_after(estimates, 4) == left_after(estimates, 8)  # and over whole turns
    assert left_after(estimates, 20) == float("inf")  # too few estimates


def test_change_left_by_hand():
    assert left_after((3.0,) * 14, 5) == float("inf")
    assert left_after((3.0,) * 15, 5) == 0
    # Three windows: the larger change, times three, times two.
    assert left_after((*(9.0,) * 5, *(8.0,) * 5, *(6.0,) * 5), 5) == pytest.approx(12)
    assert left_after((*(9.0,) * 5, *(7.0,) * 5, *(6.0,) * 5), 5) == pytest.approx(12)
    assert left_after((7.0, *(9.0,) * 5, *(7.0,) * 5, *(6.0,) * 5), 5) == pytest.approx(2 * 16 / 5 * 2)
    for row in ((*(2.0,) * 14, float("nan")), (float("nan"), *(2.0,) * 14)):
        assert left_after(row, 5) == float("inf")
    # Alternation that depends on which clients are asked is no change.
    assert left_after((1.0, 2.0, 1.5, 2.0, 1.2) * 4, 5) == pytest.approx(0, abs=1e-12)


def test_the_run_stops_when_the_score_is_stable(scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    settings = {"init": X[:8], "max_rounds": 1000, "tol": 0}
    early = fit(federation, tol_score=0.1, **settings)
    late = fit(federation, tol_score=1e-6, **settings)
    assert early.stop_reason_ == late.stop_reason_ == "tol_score"
    assert early.n_iter_ < late.n_iter_ < 1000
    assert 0 <= early.score_per_sample_ / late.score_per_sample_ - 1 < 0.1
    assert late.history_.estimate.iloc[-1] == pytest.approx(late.score_per_sample_, rel=1e-5)


def test_with_all_clients_the_estimate_is_the_score_of_what_was_sent(scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    model = fit(federation, init=X[:4], clients_per_round=None, max_rounds=10, tol=0, score_every=1)
    # A round estimates the score of the centroids that the previous round found.
    np.testing.assert_allclose(model.history_.estimate[1:], model.history_.score[:-1])


def test_the_score_is_that_of_all_clients_not_of_those_asked(scattered):
    X, clients = scattered
    model = fit(InProcess.from_arrays(X, clients), init=X[:4], max_rounds=3, tol=0, score_every=1)
    expected = ((X[:, None] - model.cluster_centers_) ** 2).sum(axis=2).min(axis=1).mean()
    assert model.history_.score.iloc[-1] == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore:tol_score")
def test_without_memory_the_score_is_not_known(scattered):
    X, clients = scattered
    model = fit(InProcess.from_arrays(X, clients), None, tol_score=0.5, max_rounds=30, tol=0)
    assert model.history_.estimate.isna().all()
    assert model.stop_reason_ == "max_rounds"


def test_the_run_does_not_stop_before_all_clients_replied():
    """Estimates may be constant because a client is missing from them."""
    flat = State(np.zeros((1, 1)), np.zeros((1, 1)), 50, (0.0,) * 50, (1.0,) * 50, window=None)
    stopping = Stopping(patience=None, min_rounds=1, tol_score=0.1)
    assert stopping.reason(flat) is None
    assert stopping.reason(replace(flat, window=4)) == "tol"
    assert stopping.reason(replace(flat, window=4, movements=(1.0,) * 50)) == "tol_score"


def test_the_state_keeps_only_what_the_criteria_need(scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    kept = {}
    for name, changes in {
        "paper": {"memory": None, "patience": 20},
        "turns": {"memory": "server"},
        "random": {"memory": "server", "participation": "random"},
    }.items():
        seen = []
        settings = {"init": X[:4], "clients_per_round": 2, "max_rounds": 120, "tol": 0, "tol_score": 0}
        FederatedKMeans(4, random_state=0, **settings | changes).fit_federation(
            federation, on_round=lambda state, info, seen=seen: seen.append(state)
        )
        sizes = [len(state.estimates) for state in seen]
        assert sizes == [len(state.movements) for state in seen] == sorted(sizes)  # never shrinks
        kept[name] = sizes[-1]
        widest = max(state.window for state in seen if state.window)
        assert kept[name] <= max(20, 3 * (widest + 4))
    assert (kept["paper"], kept["turns"]) == (20, 15)  # three windows of five rounds
    assert kept["random"] > 30


def test_random_participation_can_stop_by_the_score_too():
    """When the window grows again, the earlier movements must still be there."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2)) + 4 * rng.integers(2, size=(600, 2))
    federation = InProcess.from_arrays(X, np.repeat(np.arange(60), 10))
    model = fit(federation, init=X[:6], clients_per_round=6, participation="random", tol_score=1e-3, tol=0,
                max_rounds=1000)  # fmt: skip
    assert model.stop_reason_ == "tol_score"


def test_patience_waits_until_all_clients_replied(scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    for patience in (2, 5):
        model = fit(federation, init=X[:8], clients_per_round=1, patience=patience, tol=0, max_rounds=100)
        assert model.n_iter_ >= 10 + patience - 1
    flat = State(np.zeros((1, 1)), np.zeros((1, 1)), 9, (3.0, 0.0, 2.0, 0.0, 1.0, 0.0), window=2)
    assert Stopping(patience=5, min_rounds=1, tol=0).reason(flat) is None  # it moves in every other round
    worse = replace(flat, movements=(1.0, 0.0, 2.0, 0.0, 3.0, 0.0))
    assert Stopping(patience=5, min_rounds=1, tol=0).reason(worse) == "patience"


def test_a_tolerance_of_the_score_without_memory_causes_a_warning(blobs):
    X, clients = blobs
    with pytest.warns(UserWarning, match=r"tol_score=0\.01 has no effect without memory"):
        FederatedKMeans.paper(3, tol_score=0.01, max_rounds=2).fit(X, clients=clients)


@pytest.mark.parametrize("n_clients", [3, 4])
def test_forgetting_can_converge_with_very_few_clients(n_clients):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2)) + 3 * np.repeat(np.arange(n_clients), 120 // n_clients)[:, None]
    federation = InProcess.from_arrays(X, np.repeat(np.arange(n_clients), 120 // n_clients))
    model = fit(federation, 0.98, clients_per_round=1, tol_score=1e-3, tol=0, max_rounds=1000)
    assert model.stop_reason_ == "tol_score"


def test_rounds_without_replies_do_not_count_as_convergence(scattered):
    X, clients = scattered
    silent = Lossy(InProcess.from_arrays(X, clients), lose=lambda n: "0123456789" if n == 9 else ())
    seen = []
    model = FederatedKMeans(
        8, init=X[:8], clients_per_round=2, tol=0, tol_score=0, max_rounds=12, random_state=0
    )
    model.fit_federation(silent, on_round=lambda state, info: seen.append(state))
    assert model.history_.movement[8] == 0  # nobody replied, and all had replied before
    assert len(seen[8].movements) == len(seen[7].movements) == 8
    assert len(seen[9].estimates) == 9


def test_patience_looks_at_its_own_number_of_movements():
    """Independent of how many are kept for other criteria."""
    state = State(np.zeros((1, 1)), np.zeros((1, 1)), 5, (0.5, 9.0, 1.0, 2.0, 3.0))
    assert Stopping(patience=3, min_rounds=1).reason(state) == "patience"


# --- participation and bytes -------------------------------------------------------------------


@pytest.mark.parametrize(("n_clients", "n"), [(10, 5), (10, 3), (7, 1), (9, 8)])
def test_in_turns_all_clients_are_asked_before_any_is_asked_again(n_clients, n):
    stream = np.concatenate([in_turns(n_clients, n, 3, t) for t in range(4 * n_clients)])
    for start in range(0, len(stream) - n_clients, n_clients):
        assert len(set(stream[start : start + n_clients])) == n_clients
    assert len({tuple(in_turns(n_clients, n, seed, 0)) for seed in range(20)}) > 1
    names = tuple(map(str, range(n_clients)))
    assert list(sample_clients(names, n, 3, 0, "turns")) == sorted(
        str(i) for i in in_turns(n_clients, n, 3, 0)
    )


@pytest.mark.parametrize("participation", PARTICIPATION)
def test_the_clients_of_a_round_do_not_depend_on_rounds_drawn_before(participation):
    names = tuple(f"c{place:02}" for place in range(20))
    for round_ in (40, 3, 17, 3, 0, 7, 8, 15, 16):
        places = PARTICIPATION[participation](20, 6, 5, round_)
        expected = tuple(names[place] for place in sorted(places))
        assert sample_clients(names, 6, 5, round_, participation) == expected


def test_the_window_is_the_number_of_rounds_in_which_all_replied():
    clients, response_log = ("a", "b", "c"), ResponseLog()
    windows = []
    for round_, answered in enumerate(["a", "b", "ac", "b", "b", *[""] * 5]):
        response_log.check_round(round_)
        response_log.record(clients, tuple(answered) or ("a",), tuple(answered))
        windows.append(response_log.window())
    # Then a did not reply five times and no longer counts; c replied in the third round.
    assert windows == [None, None, 2, 2, 3, 4, 5, 6, 7, 8]
    # Clients that leave are forgotten: first the one with the oldest reply, then all that can be reached.
    response_log.record(("a", "b"), ("a",), ())
    assert response_log.window() == 7
    response_log.record(("a",), (), ())
    with pytest.raises(FederationError, match="was asked 5 times"):
        response_log.window()


def test_the_share_counts_clients_that_are_known_or_can_be_reached():
    response_log = ResponseLog()
    for _ in range(4):
        response_log.record(("a", "b", "c", "d"), ("a", "b"), ("a",))
    assert (response_log.share({"a": 0}), response_log.missed) == (1 / 4, {"b": 4})
    response_log.record(response_log.clients, ("b",), ())
    assert response_log.share({"a": 0}) == 1 / 3  # b is given up
    assert response_log.share({"a": 0, "b": 0}) == 2 / 4  # but what it sent still counts
    response_log.record(response_log.clients, ("b",), ("b",))
    assert (response_log.share({"a": 0}), response_log.missed) == (1 / 4, {})


class Unwalked(tuple):
    """Clients that nobody may walk through once they are `closed`."""

    closed = False

    def __iter__(self):
        assert not self.closed, "a round walks through all clients"
        return super().__iter__()


@pytest.mark.parametrize("memory", ["server", "client", 0.9, None])
def test_a_round_does_not_walk_through_clients_that_are_not_asked(memory, scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    federation.clients = everybody = Unwalked(federation.clients)
    rounds = []

    def close(state, info):
        everybody.closed = info.round < 9
        rounds.append(len(info.asked))

    model = FederatedKMeans(
        3, init=X[:3], clients_per_round=2, memory=memory, tol=0, tol_score=0, max_rounds=9, random_state=0
    )
    if memory is None:
        model.set_params(tol_score=1e-3)
    model.fit_federation(federation, on_round=close)
    assert rounds == [2] * 9


def test_bytes_are_those_of_the_arrays(scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    k, m, n = 4, 2, 2
    tables = {memory: fit(federation, memory, init=X[:k], max_rounds=3).history_ for memory in [None, *ALL]}
    small = 2 * 8 + len("dynamic") + len("keep")  # max_local, tol_local and two strings
    for memory in (None, "server", 0.9):
        assert (tables[memory].bytes_sent == n * (k * m * 8 + small)).all()
    assert (tables[None].bytes_received == n * (k * m + k) * 8).all()
    for memory in ("server", 0.9):
        assert (tables[memory].bytes_received == n * (k * m + 2 * k + 2) * 8).all()
    token = 16  # names of the run, the total and an exchange
    assert (tables["client"].bytes_received == n * ((k * m + 2 * k + 3) * 8 + token)).all()
    # Each client gets the name of the exchange in which it was counted, if any.
    names = n * (3 * token + 1)
    assert list(tables["client"].bytes_sent - tables["server"].bytes_sent) == [names] * 3
    lossy = Lossy(federation, lose=lambda n: "012" if n else ())
    for memory in [None, *ALL]:
        lossy.exchange = 0
        table = fit(lossy, memory, init=X[:k], clients_per_round=None, max_rounds=1).history_
        # Sent to all that were asked, received from all that replied.
        assert table.bytes_sent[0] == tables[memory].bytes_sent[0] / n * 10
        assert table.bytes_received[0] == tables[memory].bytes_received[0] / n * 7


def test_bytes_of_restarts_are_their_own(scattered):
    X, clients = scattered
    for memory in [None, *ALL]:
        federation = InProcess.from_arrays(X, clients)
        one = fit(federation, memory, max_rounds=4, tol=0).history_
        many = fit(federation, memory, max_rounds=4, tol=0, n_init=3).history_
        for column in ("bytes_sent", "bytes_received"):
            assert (many.groupby("round")[column].sum() == 3 * one.set_index("round")[column]).all()


def test_size_of_a_query():
    update = LocalUpdate(np.zeros((2, 3)), 1, 1e-8, "dynamic", "keep")
    assert n_bytes(SendStatistics(update)) == 48 + 16 + 11
    change = SendDelta(update, "abcd", "ef", "ghi", {"site-1": "j", "site-22": None})
    assert n_bytes(change) == 48 + 27 + 4 + 2 + 3 + 6 + 1 + 7
    assert bytes_to(["site-1"], change) == 48 + 27 + 4 + 2 + 3 + 6 + 1
    assert bytes_to(["site-1", "site-22"], SendStatistics(update)) == 2 * (48 + 27)
    assert n_bytes(LocalUpdate(np.zeros((1, 1)), 1, 0.0, lambda local: local.counts, "keep")) == 8 + 16 + 4


# --- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ALL)
@pytest.mark.parametrize(
    "bad", [{"weighting": "equal"}, {"weighting": "by_size"}, {"empty_clusters": "relocate"}]
)
def test_settings_that_do_not_work_with_memory_are_refused(blobs, memory, bad):
    X, clients = blobs
    with pytest.raises(ParameterError, match=r"does not go with memory.*memory=None"):
        FederatedKMeans(3, memory=memory, **bad).fit(X, clients=clients)


@pytest.mark.parametrize("memory", ALL)
@pytest.mark.parametrize("weighting", ["dynamic", "by_compactness", "last_counts"])
def test_weightings_that_depend_only_on_points_work_with_memory(blobs, memory, weighting):
    X, clients = blobs
    model = FederatedKMeans(3, memory=memory, weighting=weighting, max_local=2, random_state=0)
    assert model.fit(X, clients=clients).score_per_sample_ < 1.2


@pytest.mark.parametrize("memory", ALL)
def test_an_own_rule_that_speaks_without_points_is_refused_by_the_site(memory):
    sites = [Site("north", [[0.0], [1.0]]), Site("south", [[9.0], [10.0]])]

    def everywhere(local):
        return np.ones(len(local.counts))

    model = FederatedKMeans(2, memory=memory, weighting=everywhere, init=np.array([[0.0], [9.0]]))
    with pytest.raises(ParameterError, match=r"Client 'north'.*has no points.*memory=None"):
        model.fit_federation(InProcess(sites))


def test_paper_returns_the_settings_of_the_paper():
    assert FederatedKMeans.paper(7, weighting="equal").get_params() == {
        "n_clusters": 7, "weighting": "equal", "clients_per_round": None, "participation": "random",
        "memory": None, "max_local": 5, "learning_rate": 0.01, "momentum": 0.8, "init": "kfed", "n_init": 1,
        "init_clients": "all", "init_rows": "all", "look_ahead": 0.0,
        "empty_clusters": "keep", "tol": 1e-8, "tol_local": 1e-8, "tol_score": 0.0, "patience": 300,
        "min_rounds": 16, "max_rounds": 10_000, "score_every": 0, "random_state": None, "n_jobs": None,
        "kernel": "auto",
    }  # fmt: skip
    assert FederatedKMeans.paper(max_rounds=5, momentum=0.0).get_params()["momentum"] == 0.0


def test_names_of_algorithms_tell_the_truth():
    assert make("last-word", memory="client").memory == "client"
    assert make("forgetting").memory == 0.98
    for name, memory, other in (
        ("last-word", 0.9, "forgetting"),
        ("forgetting", "server", "last-word"),
        ("last-word", None, "wf"),
        ("last-word", np.float32(0.5), "forgetting"),
    ):
        with pytest.raises(ParameterError, match=f"another algorithm; use '{other}'"):
            make(name, memory=memory)


def test_only_the_latest_state_of_a_run_can_go_on():
    X = np.random.default_rng(0).normal(size=(40, 3))
    federation = InProcess.from_arrays(X, np.arange(40) % 4)
    find_target = find_memory("server", LocalWork(max_local=1))
    state = State.start(X[:3])
    first = run(federation, find_target(state, federation.clients, federation.clients))
    later = replace(state, round=1, memory=first.memory)
    run(federation, find_target(later, federation.clients, federation.clients))
    with pytest.raises(FederationError, match="state of round 1 is not the latest one"):
        run(federation, find_target(later, federation.clients, federation.clients))
