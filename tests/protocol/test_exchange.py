import numpy as np
import pytest

from fedkmeans import FKM, FederatedKMeans, InProcess, KFed
from fedkmeans.errors import FederationError
from fedkmeans.protocol.exchange import Ask, AskTotal, NewId, Total, add_up, run, run_concurrently
from fedkmeans.protocol.messages import Bundle, Describe, Score, ScoreTotals, SendDelta


class Watched:
    """A federation that counts its exchanges and loses the replies of some clients."""

    def __init__(self, inner, silent=lambda exchange: ()):
        self.inner = inner
        self.silent = silent
        self.queries = []

    @property
    def clients(self):
        return self.inner.clients

    def ask(self, query, clients):
        self.queries.append(query)
        lost = self.silent(len(self.queries))
        return self.inner.ask(query, [client for client in clients if client not in lost])

    def total(self, query, clients):
        return add_up(self.ask(query, clients))


@pytest.fixture
def federation(blobs):
    X, clients = blobs
    return InProcess.from_arrays(X, clients)


def rows(clients):
    replies = yield Ask(Describe(), clients)
    return sum(reply.n_samples for reply in replies.values())


def test_hold_returns_the_result(federation):
    assert run(federation, rows(federation.clients)) == 240


def test_conversations_held_together_share_exchanges_and_keep_their_own_answers(federation):
    watched = Watched(federation)

    def score(centroids, n):
        values = []
        for _ in range(n):
            total: Total = yield AskTotal(Score(centroids), federation.clients)
            values.append(total.record.per_sample)
        return values

    starts = [np.zeros((1, 4)), np.ones((2, 4)), np.full((3, 4), 5.0)]
    lengths = [3, 1, 2]
    results = run(watched, run_concurrently([score(c, n) for c, n in zip(starts, lengths, strict=True)]))
    assert len(watched.queries) == 3  # as many as the longest needs alone
    assert [type(query) for query in watched.queries] == [Bundle, Bundle, Score]
    alone = [run(federation, score(c, n)) for c, n in zip(starts, lengths, strict=True)]
    assert results == alone


def names(n):
    drawn = []
    for _ in range(n):
        name = yield NewId()
        drawn.append(name)
    return drawn


def test_names_are_drawn_once(federation):
    drawn = run(federation, names(50))
    assert len(set(drawn)) == 50
    assert all(len(name) == 16 and int(name, 16) >= 0 for name in drawn)


def test_conversations_held_together_draw_each_their_own_names(federation):
    one, two, three = run(federation, run_concurrently([names(2), names(3), names(2)]))
    assert len({*one, *two, *three}) == 7


def test_a_federation_may_say_which_names_are_drawn(federation):
    watched = Watched(federation)
    watched.new_id = iter("abcde").__next__
    assert run(watched, run_concurrently([names(2), names(3)])) == [["a", "c"], ["b", "d", "e"]]


def test_all_that_is_random_in_a_run_is_drawn_outside(blobs):
    """With the same names a run asks the same questions, to the letter."""
    X, clients = blobs
    asked = []
    for seed in (0, 0, 1):
        watched = Watched(InProcess.from_arrays(X, clients))
        numbers = iter(range(1000))
        watched.new_id = lambda numbers=numbers: f"name {next(numbers)}"
        model = FederatedKMeans(3, memory="client", n_init=3, max_rounds=3, tol=0, random_state=seed)
        model.fit_federation(watched)
        asked.append([repr(query) for query in watched.queries])
        # Restarts share the name of the run, and nothing else.
        changes = [part for query in watched.queries if isinstance(query, Bundle) for part in query.queries
                   if isinstance(part, SendDelta)]  # fmt: skip
        assert len(changes) == 3 * 3
        assert [len({getattr(c, what) for c in changes}) for what in ("run", "total", "exchange")] == [
            1,
            3,
            9,
        ]
    assert asked[0] == asked[1] != asked[2]


def test_together_of_questions_to_different_clients(federation):
    results = run(federation, run_concurrently([rows(federation.clients[:2]), rows(federation.clients[2:])]))
    assert sum(results) == 240


def test_restarts_share_every_exchange(blobs):
    X, clients = blobs
    counts = []
    for n_init in (1, 4):
        watched = Watched(InProcess.from_arrays(X, clients))
        FederatedKMeans(3, n_init=n_init, max_rounds=5, tol=0, random_state=1).fit_federation(watched)
        counts.append(len(watched.queries))
    assert counts[0] == counts[1]


def test_the_first_restart_is_the_run_without_restarts(blobs):
    X, clients = blobs
    one = FederatedKMeans(3, max_rounds=5, random_state=1).fit(X, clients=clients)
    many = FederatedKMeans(3, n_init=3, max_rounds=5, random_state=1).fit(X, clients=clients)
    first = many.history_.query("restart == 0").movement
    np.testing.assert_array_equal(one.history_.movement, first)
    assert many.inertia_ <= one.inertia_


def test_clients_that_do_not_answer_are_left_out(blobs):
    X, clients = blobs
    watched = Watched(
        InProcess.from_arrays(X, clients), silent=lambda exchange: ("0",) if exchange > 2 else ()
    )
    model = FederatedKMeans(3, max_rounds=4, tol=0, random_state=0, score_every=1).fit_federation(watched)
    assert (model.history_.participants == 4).all()
    assert (model.history_.asked == 5).all()
    kept = clients != 0
    expected = ((X[kept, None] - model.cluster_centers_) ** 2).sum(axis=2).min(axis=1)
    assert model.score_per_sample_ == pytest.approx(expected.mean())
    by_client = [expected[clients[kept] == i].mean() for i in range(1, 5)]
    assert model.score_per_client_ == pytest.approx(np.mean(by_client))


@pytest.mark.parametrize("estimator", [FederatedKMeans(3), FederatedKMeans.paper(3), KFed(3), FKM(3)])
def test_silence_is_an_error_that_names_the_query_and_clients(blobs, estimator):
    X, clients = blobs
    everybody = ("0", "1", "2", "3", "4")
    silent = Watched(InProcess.from_arrays(X, clients), silent=lambda n: everybody if n > 1 else ())
    with pytest.raises(FederationError, match=r"None of the 5 clients asked \(0, 1, 2, 3, 4\) answered"):
        estimator.fit_federation(silent)


def test_optional_questions_do_not_excuse_others(federation):
    def question(optional):
        return (yield AskTotal(Score(np.zeros((1, 4))), federation.clients, optional=optional))

    silent = Watched(federation, silent=lambda n: federation.clients)
    assert run(silent, run_concurrently([question(True), question(True)]))[0].record is None
    with pytest.raises(FederationError, match="None of the 5 clients asked"):
        run(silent, run_concurrently([question(True), question(False)]))


def test_a_transport_need_not_count_bytes(blobs):
    X, clients = blobs

    class Plain(Watched):
        def total(self, query, clients):
            whole = super().total(query, clients)
            return Total(whole.record, whole.answered)

    for model in (FederatedKMeans(3, memory="client", n_init=2), FederatedKMeans.paper(3, n_init=2)):
        model.set_params(max_rounds=2, random_state=0)
        history = model.fit_federation(Plain(InProcess.from_arrays(X, clients))).history_
        assert (history.bytes_received == 0).all()
        assert (history.bytes_sent > 0).all()


def test_adding_up_does_not_depend_on_the_order_of_arrival():
    parts = {name: ScoreTotals.of(0.1 * i + 1e-17, 1.0) for i, name in enumerate("abcdefgh", 1)}
    backwards = dict(reversed(list(parts.items())))
    assert add_up(parts) == add_up(backwards)
