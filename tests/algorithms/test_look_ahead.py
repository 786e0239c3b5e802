"""Look-ahead: targets are corrected for the age of statistics."""

import math

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


@given(window=st.integers(2, 30), part=st.floats(0.1, 1), speed=st.floats(-5, 5))
def test_a_target_that_moves_steadily_is_moved_ahead_by_its_age(window, part, speed):
    """After many rounds, the average lags exactly `window` movements behind."""
    look_ahead, age, direction = LookAhead(part), (window - 1) / 2, np.array([[1.0, -2.0]])
    for round_ in range(40 * window):
        d = round_ * speed * direction
        moved = look_ahead.move(d, age, window, estimate=-round_)
    expected = d + part * age * window / (window - 1) * speed * direction
    np.testing.assert_allclose(moved, expected, rtol=1e-9, atol=1e-9)


def test_a_target_at_rest_is_not_moved():
    look_ahead, d = LookAhead(1.0), np.array([[1.0, 0.1]])
    for round_ in range(5):
        np.testing.assert_array_equal(look_ahead.move(d, 2.0, 5, -round_), d)


def test_a_target_that_has_come_to_rest_is_soon_not_moved():
    look_ahead, window = LookAhead(1.0), 5
    for round_ in range(3 * window):
        d = np.array([[min(round_, 12.0)]])
        moved = look_ahead.move(d, 2.0, window, -round_)
    assert moved > 12.0
    still = [float(look_ahead.move(d, 2.0, window, -100 - round_)[0, 0]) for round_ in range(2 * window)]
    assert still[0] > 12.0
    assert set(still[window:]) == {12.0}


def test_a_round_without_replies_changes_nothing():
    look_ahead = LookAhead(1.0)
    for round_ in range(10):
        d = np.array([[float(round_)]])
        moved = look_ahead.move(d, 2.0, 5, -round_)
    np.testing.assert_array_equal(look_ahead.keep(d), moved)


@pytest.mark.parametrize("window", [None, 1])
def test_without_old_statistics_nothing_changes(window):
    look_ahead = LookAhead(1.0)
    for round_ in range(5):
        d = np.array([[float(round_)]])
        assert look_ahead.move(d, 0.0, window, -round_) is d


def test_it_ends_for_good_when_the_score_has_not_decreased_over_a_window():
    look_ahead, moved = LookAhead(1.0), []
    for round_, score in enumerate([5, 5, 4, 4, 4, 4, 1, 1, 0, 0]):
        d = np.array([[float(round_)]])
        moved.append(bool((look_ahead.move(d, 0.5, 2, score) != d).any()))
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


def test_clients_that_are_lost_do_not_lead_it_astray(digits):
    """A lost client's statistics get older and older; look-ahead must not follow their age."""
    X, clients = digits

    class Lossy(InProcess):
        def ask(self, query, asked):
            lost = () if isinstance(query, Score) else ("3", "7", "11")
            return super().ask(query, [client for client in asked if client not in lost])

    federation = Lossy.from_arrays(X, clients)
    model = FederatedKMeans(
        10, clients_per_round=4, random_state=0, tol_score=0, tol=1e-12, max_rounds=600, init=X[:10]
    ).fit_federation(federation)
    every = fitted(digits, init=X[:10], max_rounds=300)[0]
    assert model.score_per_sample_ < 1.1 * every.score_per_sample_
    assert math.isfinite(model.history_.movement.iloc[-1])
    assert model.history_.movement.iloc[-1] < 1e-6


@pytest.mark.parametrize("value", [-0.1, 1.1, "much", None, np.nan])
def test_other_values_are_refused(value):
    with pytest.raises(ParameterError, match=r"look_ahead must be a number in \[0, 1\]"):
        FederatedKMeans(3, look_ahead=value).check_parameters()
