"""Memory as users meet it: settings, stopping, what is counted, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from fedkmeans import FederatedKMeans, InProcess, Site
from fedkmeans.convergence import Stopping, change_left
from fedkmeans.conversation import hold
from fedkmeans.errors import FederationError, ParameterError
from fedkmeans.estimators import PAPER
from fedkmeans.lloyd import assign, cluster_sums
from fedkmeans.memory import Contacts, find_memory, target
from fedkmeans.records import LocalUpdate, SendChange, SendWord, State, n_bytes
from fedkmeans.rounds import LocalWork, in_turns, sample_clients
from fedkmeans.words import Word
from tests.lossy import Lossy

LAST_WORD = ["server", "client"]
ALL = [*LAST_WORD, 0.9]


def fit(federation, memory="server", **changes):
    settings = {"clients_per_round": 2, "max_rounds": 60, "tol_score": 0, "random_state": 0} | changes
    k = len(settings["init"]) if isinstance(settings.get("init"), np.ndarray) else 3
    return FederatedKMeans(k, memory=memory, **settings).fit_federation(federation)


@pytest.fixture
def scattered():
    """Rows without clear groups on clients of different kinds, so that labels change for long."""
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


# --- where it leads ----------------------------------------------------------------------------


@pytest.mark.parametrize("memory", LAST_WORD)
@pytest.mark.parametrize("participation", ["turns", "random"])
def test_few_clients_a_round_end_at_a_fixed_point_of_pooled_lloyd(scattered, memory, participation):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    model = fit(federation, memory, participation=participation, init=X[:4], max_rounds=1000)
    assert model.stop_reason_ == "tol"
    np.testing.assert_allclose(pooled(X, model.cluster_centers_), model.cluster_centers_, rtol=0, atol=1e-9)


@pytest.mark.parametrize("memory", [None, *ALL])
def test_learning_rate_and_momentum_go_with_every_memory(scattered, memory):
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


def test_forgetting_is_the_formula(scattered):
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


def test_a_cluster_long_forgotten_stays_where_it_is():
    """Its total fades to nothing; what is left of it must not be taken for a place."""
    word = Word(np.full((1, 1), 1e-200), np.full(1, 3e-201), np.full(1, 1e-201), 0.0, 1.0)
    np.testing.assert_array_equal(target(word, np.array([[7.0]]), 1.0, least=1e-100), [[7.0]])


def test_unknown_clients_stand_in_with_the_centroids_as_they_are(blobs):
    X, clients = blobs
    federation = InProcess.from_arrays(X, clients)
    start = np.array([[0.0, 0, 0, 0], [6, 6, 0, 0], [0, 6, 6, 5]])
    state = State.start(start)
    found = hold(federation, find_memory("server", LocalWork(max_local=1))(state, federation.clients, ("3",)))
    rows = X[clients == 3]
    sums, counts = cluster_sums(rows, assign(rows, start), 3)
    others = 4 * len(rows) / 3  # four more clients like this one, in three clusters
    np.testing.assert_allclose(found.d, (sums + others * start) / (counts + others)[:, None])


def test_a_cluster_that_nobody_holds_any_more_stays(blobs):
    """Words with fractional weights leave rounding behind, which is no cluster."""
    X, clients = blobs
    weight = np.random.default_rng(0).random(len(X))
    federation = InProcess.from_arrays(X, clients, weight)
    far = np.array([[1e3, 1e3, 1e3, 1e3]])
    find_target = find_memory("client", LocalWork(max_local=1))
    state = State.start(np.concatenate([X[:2], far]))
    everybody = federation.clients
    found = hold(federation, find_target(State.start(X[[0, 100, 200]]), everybody, everybody))
    state = State(state.centroids, state.centroids, 1, memory=found.memory)
    found = hold(federation, find_target(state, everybody, everybody))
    assert found.memory.total.high.holders[2] == 0
    np.testing.assert_array_equal(found.d[2], far[0])


@pytest.mark.parametrize("n_init", [1, 3])
def test_restarts_remember_each_for_itself(scattered, n_init):
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
    for _ in range(5):
        fit(federation, "client", n_init=3, max_rounds=12, tol=0)
    for site in federation.sites.values():
        assert len(site.spoken) == 2
        assert all(len(totals) == 3 for totals in site.spoken.values())


# --- trouble -----------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ALL)
def test_rounds_without_any_answer_pass(scattered, memory):
    X, clients = scattered
    silent = Lossy(InProcess.from_arrays(X, clients), lose=lambda n: "0123456789" if n in (3, 7) else ())
    model = fit(silent, memory, init=X[:4], max_rounds=12, tol=0)
    assert list(model.history_.participants == 0) == [n in (3, 7) for n in range(1, 13)]
    assert (model.history_.bytes_received[model.history_.participants == 0] == 0).all()


@pytest.mark.parametrize("memory", ALL)
def test_when_everybody_was_asked_and_nobody_answered_the_run_ends(scattered, memory):
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


def test_fewer_clients_may_stay_than_are_asked_in_a_round(scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)

    def leave(state, info):
        if info.round < 9:
            federation.remove(str(info.round))

    model = FederatedKMeans(4, init=X[:4], clients_per_round=3, max_rounds=20, random_state=0)
    model.fit_federation(federation, on_round=leave)
    assert list(model.history_.asked.iloc[:10]) == [3, 3, 3, 3, 3, 3, 3, 3, 2, 2]


def test_when_all_have_left_the_run_says_so(scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)

    def leave(state, info):
        for name in federation.clients:
            federation.remove(name)

    with pytest.raises(FederationError, match="All clients have left"):
        FederatedKMeans(4, init=X[:4]).fit_federation(federation, on_round=leave)
    with pytest.raises(ParameterError, match="no client 'nobody'"):
        InProcess([Site("a", X)]).remove("nobody")


@pytest.mark.parametrize("lost_share", [0.0, 0.3])
def test_sites_that_restart_all_the_time_do_not_spoil_the_result(scattered, lost_share):
    X, clients = scattered
    rng = np.random.default_rng(3)

    def harm(exchange, inner):
        if exchange < 100 and exchange % 15 == 14:
            inner.sites[str(rng.integers(10))].spoken.clear()

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
def test_a_client_that_never_answers_is_not_waited_for(scattered, memory):
    X, clients = scattered
    federation = Lossy(InProcess.from_arrays(X, clients), lose=lambda n: ("6",) if n else ())
    model = fit(federation, memory, init=X[:4], max_rounds=1000)
    assert model.stop_reason_ == "tol"
    there = X[clients != 6]
    np.testing.assert_allclose(
        pooled(there, model.cluster_centers_), model.cluster_centers_, rtol=0, atol=1e-7
    )


def test_a_word_sent_to_one_sum_is_not_taken_for_one_sent_to_another(blobs):
    """A site brought back from an old copy must not agree with a total it does not know."""
    X, _ = blobs
    site = Site("a", X)
    update = LocalUpdate(X[:3], 1, 1e-8, "dynamic", "keep")
    first = site.answer(SendChange(update, "run", "sum", 0, 5, {}))
    assert (first.lost, first.word.n_samples) == (0, 240)
    assert site.answer(SendChange(update, "run", "sum", 0, 6, {"a": 5})).word.n_samples == 0
    for other in (("other", "sum", 0), ("run", "other", 0), ("run", "sum", 1)):
        reply = site.answer(SendChange(update, *other, 7, {"a": 5}))
        assert (reply.lost, reply.word.n_samples, reply.word.weight.any()) == (1, 0, False)
    assert site.answer(SendChange(update, "run", "sum", 1, 8, {})).word.n_samples == 240


# --- when to stop ------------------------------------------------------------------------------


def test_a_quiet_round_is_not_the_end():
    """The client asked first has settled at once; the others have not been heard."""
    sites = [Site("a", [[0.0], [1.0]]), Site("b", [[4.0], [20.0]]), Site("c", [[5.0], [40.0]])]
    start = np.array([[0.5], [30.0]])
    model = FederatedKMeans(2, init=start, clients_per_round=1, tol_score=0, random_state=0)
    model.fit_federation(InProcess(sites))
    assert model.history_.movement.min() == 0
    pooled_rows = np.array([[0.0], [1.0], [4.0], [20.0], [5.0], [40.0]])
    np.testing.assert_allclose(pooled(pooled_rows, start), model.cluster_centers_)
    assert (model.history_.movement.iloc[-3:] < 1e-8).all()


def test_change_left_foretells_a_geometric_end():
    estimates = tuple(10 + 0.8**t for t in range(40))
    now = estimates[-1] - 10
    assert change_left(estimates, 5) == pytest.approx(max(now, 0.8**-5 * now - now), rel=1e-9)
    assert change_left(estimates, 1) == change_left(estimates, 5)  # never over fewer than five rounds
    assert change_left(estimates, 20) == float("inf")  # not enough of them
    assert change_left((3.0,) * 11, 5) == 0
    assert change_left(tuple(10 - t**2 for t in range(11)), 5) == float("inf")  # growing
    assert change_left((*(2.0,) * 10, float("nan")), 5) == float("inf")


def test_the_run_stops_when_the_score_has_settled(scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    settings = {"init": X[:8], "max_rounds": 1000, "tol": 0}
    early = fit(federation, tol_score=1e-2, **settings)
    late = fit(federation, tol_score=1e-6, **settings)
    assert early.stop_reason_ == late.stop_reason_ == "tol_score"
    assert early.n_iter_ < late.n_iter_ < 1000
    assert early.score_per_sample_ / late.score_per_sample_ - 1 < 3e-2  # an estimate, on bumpy data
    assert late.history_.estimate.iloc[-1] == pytest.approx(late.score_per_sample_, rel=1e-5)


def test_with_all_clients_the_estimate_is_the_score_of_what_was_sent(scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    model = fit(federation, init=X[:4], clients_per_round=None, max_rounds=10, tol=0, score_every=1)
    # Found in a round for the centroids that the round before had arrived at.
    np.testing.assert_allclose(model.history_.estimate[1:], model.history_.score[:-1])


def test_without_memory_the_score_is_not_known(scattered):
    X, clients = scattered
    model = fit(InProcess.from_arrays(X, clients), None, tol_score=0.5, max_rounds=30, tol=0)
    assert model.history_.estimate.isna().all()
    assert model.stop_reason_ == "max_rounds"


def test_patience_looks_at_its_own_number_of_movements():
    """However many are kept for other criteria."""
    state = State(np.zeros((1, 1)), np.zeros((1, 1)), 5, (0.5, 9.0, 1.0, 2.0, 3.0))
    assert Stopping(patience=3, min_rounds=1).reason(state) == "patience"


# --- who is asked, and what it costs -----------------------------------------------------------


@pytest.mark.parametrize(("n_clients", "n"), [(10, 5), (10, 3), (7, 1), (9, 8)])
def test_in_turns_nobody_is_asked_again_before_everybody_was(n_clients, n):
    stream = np.concatenate([in_turns(n_clients, n, 3, t) for t in range(4 * n_clients)])
    for start in range(0, len(stream) - n_clients, n_clients):
        assert len(set(stream[start : start + n_clients])) == n_clients
    assert len({tuple(in_turns(n_clients, n, seed, 0)) for seed in range(20)}) > 1
    names = tuple(map(str, range(n_clients)))
    assert list(sample_clients(names, n, 3, 0, "turns")) == sorted(
        str(i) for i in in_turns(n_clients, n, 3, 0)
    )


def test_the_window_is_as_many_rounds_as_everybody_takes():
    clients, contacts = ("a", "b", "c"), Contacts()
    windows = []
    for round_, answered in enumerate(["a", "b", "ac", "b", "b", *[""] * 5]):
        contacts = contacts.after(round_, tuple(answered) or ("a",), tuple(answered))
        windows.append(contacts.window(clients, round_))
    # Then a was asked five times in vain and is not waited for; c was heard in the third round.
    assert windows == [None, None, 2, 2, 3, 4, 5, 6, 7, 8]
    assert contacts.window(("a", "b"), 9) == 6
    with pytest.raises(FederationError):
        contacts.window(("a",), 9)


def test_bytes_are_those_of_the_arrays(scattered):
    X, clients = scattered
    federation = InProcess.from_arrays(X, clients)
    k, m, n = 4, 2, 2
    tables = {memory: fit(federation, memory, init=X[:k], max_rounds=3).history_ for memory in [None, *ALL]}
    small = 2 * 8 + len("dynamic") + len("keep")  # max_local, tol_local and two names
    for memory in (None, "server", 0.9):
        assert (tables[memory].bytes_sent == n * (k * m * 8 + small)).all()
    assert (tables[None].bytes_received == n * (k * m + k) * 8).all()
    for memory in ("server", 0.9):
        assert (tables[memory].bytes_received == n * (k * m + 2 * k + 2) * 8).all()
    assert (tables["client"].bytes_received == n * (k * m + 2 * k + 3) * 8).all()
    assert (tables["client"].bytes_sent >= tables["server"].bytes_sent).all()


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
    assert n_bytes(SendWord(update)) == 48 + 16 + 11
    assert n_bytes(SendChange(update, "abcd", "ef", 0, 3, {"site-1": 2})) == 48 + 27 + 6 + 16 + 6 + 8
    assert n_bytes(LocalUpdate(np.zeros((1, 1)), 1, 0.0, lambda local: local.counts, "keep")) == 8 + 16 + 4


# --- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ALL)
@pytest.mark.parametrize(
    "bad", [{"weighting": "equal"}, {"weighting": "by_size"}, {"empty_clusters": "relocate"}]
)
def test_what_does_not_go_with_memory_is_refused(blobs, memory, bad):
    X, clients = blobs
    with pytest.raises(ParameterError, match=r"does not go with memory.*memory=None"):
        FederatedKMeans(3, memory=memory, **bad).fit(X, clients=clients)


@pytest.mark.parametrize("memory", ALL)
@pytest.mark.parametrize("weighting", ["dynamic", "by_compactness", "last_counts"])
def test_rules_that_speak_of_points_only_go_with_memory(blobs, memory, weighting):
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


def test_the_papers_settings_are_one_word_away():
    model = FederatedKMeans.paper(7, weighting="equal", max_rounds=5)
    expected = {**PAPER, "n_clusters": 7, "weighting": "equal", "max_rounds": 5}
    assert {name: value for name, value in model.get_params().items() if name in expected} == expected
    others = set(PAPER) - {"max_rounds"}
    assert all(FederatedKMeans().get_params()[name] != PAPER[name] for name in others)
