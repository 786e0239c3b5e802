"""Look-ahead: targets are corrected for the age of statistics."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkmeans import FederatedKMeans, InProcess
from fedkmeans.algorithms.look_ahead import LookAhead
from fedkmeans.algorithms.response_log import ResponseLog
from fedkmeans.data import load_digits, partition
from fedkmeans.errors import ParameterError
from fedkmeans.protocol.messages import Score

ALL = np.array([True])


@given(window=st.integers(2, 30), part=st.floats(0.1, 1), speed=st.floats(-5, 5))
def test_a_target_that_moves_steadily_is_moved_ahead_by_its_age(window, part, speed):
    """After many rounds, the average lags exactly `window` movements behind."""
    look_ahead, age, direction = LookAhead(part), (window - 1) / 2, np.array([[1.0, -2.0]])
    for round_ in range(40 * window):
        d = round_ * speed * direction
        moved = look_ahead.move(d, ALL, age, window, estimate=-round_)
    expected = d + part * age * window / (window - 1) * speed * direction
    np.testing.assert_allclose(moved, expected, rtol=1e-9, atol=1e-9)


def test_a_target_at_rest_is_not_moved():
    look_ahead, d = LookAhead(1.0), np.array([[1.0, 0.1]])
    for round_ in range(5):
        np.testing.assert_array_equal(look_ahead.move(d, ALL, 2.0, 5, -round_), d)


def test_a_target_that_has_come_to_rest_is_soon_not_moved():
    look_ahead, window = LookAhead(1.0), 5
    for round_ in range(3 * window):
        d = np.array([[min(round_, 12.0)]])
        moved = look_ahead.move(d, ALL, 2.0, window, -round_)
    assert moved > 12.0
    still = [float(look_ahead.move(d, ALL, 2.0, window, -100 - round_)[0, 0]) for round_ in range(2 * window)]
    assert still[0] > 12.0
    assert set(still[window:]) == {12.0}


def test_a_round_without_replies_changes_nothing():
    look_ahead = LookAhead(1.0)
    for round_ in range(10):
        d = np.array([[float(round_)]])
        moved = look_ahead.move(d, ALL, 2.0, 5, -round_)
    np.testing.assert_array_equal(look_ahead.keep(d), moved)


@pytest.mark.parametrize("window", [None, 1])
def test_without_old_statistics_nothing_changes(window):
    look_ahead = LookAhead(1.0)
    for round_ in range(5):
        d = np.array([[float(round_)]])
        assert look_ahead.move(d, ALL, 0.0, window, -round_) is d


def test_it_ends_for_good_when_the_score_has_not_decreased_over_a_window():
    look_ahead, moved = LookAhead(1.0), []
    for round_, score in enumerate([5, 5, 4, 4, 4, 4, 1, 1, 0, 0]):
        d = np.array([[float(round_)]])
        moved.append(bool((look_ahead.move(d, ALL, 0.5, 2, score) != d).any()))
    # The third window, rounds 4 and 5, is not lower than the second one.
    assert moved == [False, True, True, True, True, False, False, False, False, False]


def test_the_age_is_the_mean_over_clients_that_can_be_reached():
    log = ResponseLog()
    everybody = ("a", "b", "c", "d")
    for asked in ("a", "b", "c", "d"):
        log.record(everybody, (asked,), (asked,))
    assert log.mean_age() == (3 + 2 + 1 + 0) / 4
    log.record(everybody, ("a",), ("a",))
    assert log.mean_age() == (0 + 3 + 2 + 1) / 4
    for _ in range(5):
        log.record(everybody, ("b",), ())
    assert log.mean_age() == (5 + 7 + 6) / 3  # without b
    log.record(("a", "c"), (), ())
    assert log.mean_age() == (6 + 8) / 2
    log.forget_replies()
    assert log.mean_age() == 0.0


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=30))
def test_the_age_agrees_with_the_log(rounds):
    log, everybody = ResponseLog(), ("a", "b", "c", "d")
    for replies in rounds:
        answered = tuple(client for client, reply in zip(everybody, replies, strict=True) if reply)
        log.record(everybody, answered, answered)
        if log.heard:
            assert log.mean_age() == pytest.approx(
                len(rounds[: log._round]) - 1 - np.mean([*log.heard.values()])
            )


def factor_per_turn(rho, part, n_rounds=20):
    """By how much an error shrinks in a turn, if Lloyd's method multiplies it by rho in a step.

    The state is the last errors of the centroids, the latest first, and the error of the average target.
    """
    target = np.append(np.full(n_rounds, rho / n_rounds), 0.0)
    average = np.append(np.zeros(n_rounds), 1.0)
    step = np.eye(n_rounds + 1, k=-1)
    step[0] = target + part * (n_rounds - 1) / 2 / (n_rounds - 1) * (target - average)
    step[-1] = average + (target - average) / n_rounds
    return np.abs(np.linalg.eigvals(step)).max() ** n_rounds


@pytest.mark.parametrize("rho", [0.99, 0.9, 0.5])
def test_the_default_is_stable_and_the_page_says_the_truth(rho):
    assert factor_per_turn(rho, 0.75) < 1
    page = (Path(__file__).parents[2] / "docs/memory.md").read_text(encoding="utf-8")
    factors = [f"{factor_per_turn(rho, part):.3f}" for part in (0.0, 0.7, 1.0, 1.3)]
    assert f"| {rho} | {' | '.join(factors)} |" in page


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    return data.X, partition("clustered", data.X, data.y, 20, np.random.default_rng(0))


def fitted(digits, **settings):
    X, clients = digits
    federation = InProcess.from_arrays(X, clients)
    settings = {"n_clusters": 10, "random_state": 0, "tol_score": 0.0, "max_rounds": 40, **settings}
    return FederatedKMeans(**settings).fit_federation(federation), federation


def test_with_all_clients_it_has_no_effect(digits):
    np.testing.assert_array_equal(
        fitted(digits)[0].cluster_centers_, fitted(digits, look_ahead=0.0)[0].cluster_centers_
    )


def test_it_gets_to_the_score_of_pooled_kmeans_sooner(digits):
    """Mean excess over pooled k-means from the same start after three turns of all clients."""
    excess = {0.0: [], 0.75: []}
    for seed in range(6):
        settings = {"random_state": seed, "init": "client_random"}
        pooled = fitted(digits, max_rounds=300, **settings)[0].score_per_sample_
        for look_ahead, found in excess.items():
            settings |= {"look_ahead": look_ahead, "clients_per_round": 2, "max_rounds": 30}
            found.append(fitted(digits, **settings)[0].score_per_sample_ / pooled - 1)
    assert np.mean(excess[0.75]) < 0.9 * np.mean(excess[0.0])


@pytest.mark.parametrize("look_ahead", [0.75, 1.0])
def test_it_ends_at_a_fixed_point_of_pooled_kmeans(digits, look_ahead):
    model, federation = fitted(digits, look_ahead=look_ahead, clients_per_round=4, max_rounds=1000, tol=1e-12)
    assert model.stop_reason_ == "tol"
    again = FederatedKMeans(10, init=model.cluster_centers_, max_rounds=1).fit_federation(federation)
    np.testing.assert_allclose(again.cluster_centers_, model.cluster_centers_, rtol=0, atol=1e-9)


def test_memory_at_the_server_and_at_the_clients_agree(digits):
    settings = {"clients_per_round": 3}
    one, other = (fitted(digits, memory=memory, **settings)[0] for memory in ("server", "client"))
    np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, rtol=1e-10)


def test_a_lost_client_does_not_make_the_steps_longer_and_longer(digits):
    """Its statistics get older and older; look-ahead must not follow their age."""
    X, clients = digits

    class Lossy(InProcess):
        def ask(self, query, asked):
            gone = () if isinstance(query, Score) or self.exchanges < 12 else ("3", "7", "11")
            self.exchanges += 1
            return super().ask(query, [client for client in asked if client not in gone])

    federation = Lossy.from_arrays(X, clients)
    federation.exchanges, ages = 0, []
    model = FederatedKMeans(
        10, clients_per_round=4, random_state=0, tol_score=0, tol=0, max_rounds=200, init=X[:10]
    )
    model.fit_federation(
        federation, on_round=lambda state, info: ages.append(state.memory.response_log.mean_age())
    )
    assert max(ages) < 6
    assert model.history_.movement.iloc[-1] < 1e-6


@pytest.mark.parametrize("when", [44, 52, 66])
def test_clusters_that_lose_their_only_client_do_not_run_away(when):
    rng = np.random.default_rng(0)
    near, far = rng.uniform(size=(4000, 4)), 100 + 30 * rng.uniform(size=(200, 4))
    clients = np.concatenate([rng.integers(1, 21, size=4000), np.zeros(200, dtype=int)])
    federation = InProcess.from_arrays(np.concatenate([near, far]), clients)

    def leave(state, info):
        if info.round == when:
            federation.remove("0")

    start = np.concatenate([near[:20], far[:3]])
    model = FederatedKMeans(
        23, init=start, clients_per_round=1, random_state=3, tol_score=0, max_rounds=200, kernel="numpy"
    ).fit_federation(federation, on_round=leave)
    assert np.abs(model.cluster_centers_).max() < 130


def test_clusters_without_rows_are_not_moved():
    """Their target is the centroid itself: it would move by its own look-ahead, further in each round."""
    look_ahead, held = LookAhead(1.0), np.array([True, False])
    d = np.zeros((2, 1))
    for round_ in range(20):
        d = np.array([[float(round_)], [d[1, 0] + (round_ < 3)]])
        moved = look_ahead.move(d, held, 2.0, 5, -round_)
        assert moved[1, 0] == d[1, 0]
        d = moved
    assert moved[0, 0] > round_


@pytest.mark.parametrize("memory", ["server", "client"])
def test_centroids_rest_while_nobody_answers_after_a_client_left(memory, digits):
    X, clients = digits

    class Silent(InProcess):
        silent = False

        def total(self, query, asked):
            return super().total(query, () if self.silent else asked)

        def ask(self, query, asked):
            return super().ask(query, () if self.silent else asked)

    federation, seen = Silent.from_arrays(X, clients), []

    def watch(state, info):
        seen.append(state.centroids)
        if info.round == 24:
            federation.remove("5")
        federation.silent = 24 <= info.round < 27

    model = FederatedKMeans(
        10, clients_per_round=4, memory=memory, random_state=0, tol_score=0, max_rounds=30
    )
    model.fit_federation(federation, on_round=watch)
    np.testing.assert_array_equal(seen[25], seen[26])


def test_a_client_that_leaves_does_not_end_it(digits):
    """Without a client the score is that of other rows; it may be higher."""
    X, clients = digits
    federation = InProcess.from_arrays(X, clients)
    means = {client: site.X.var() for client, site in federation.sites.items()}

    def leave(state, info):
        if info.round == 12:
            federation.remove(min(means, key=means.get))  # the one with the lowest score

    seen = []
    FederatedKMeans(
        10, clients_per_round=4, random_state=0, tol_score=0, max_rounds=25, init="k-means++"
    ).fit_federation(
        federation,
        on_round=lambda state, info: (leave(state, info), seen.append(state.memory.look_ahead._part)),
    )
    assert seen[24] == 0.75


def test_momentum_turns_it_off(digits):
    settings = {"clients_per_round": 4, "momentum": 0.5}
    np.testing.assert_array_equal(
        fitted(digits, **settings)[0].cluster_centers_,
        fitted(digits, look_ahead=0.0, **settings)[0].cluster_centers_,
    )


@pytest.mark.parametrize("memory", [0.9, None])
def test_without_the_latest_statistics_it_has_no_effect_and_says_so(memory, digits):
    with pytest.warns(UserWarning, match=r"look_ahead=0\.5 has no effect.*memory='server'"):
        fitted(digits, memory=memory, look_ahead=0.5, max_rounds=2, tol_score=1e-3)


@pytest.mark.parametrize("value", [-0.1, 1.1, "much", None, np.nan])
def test_other_values_are_refused(value):
    with pytest.raises(ParameterError, match=r"look_ahead must be a number in \[0, 1\]"):
        FederatedKMeans(3, look_ahead=value).check_parameters()
