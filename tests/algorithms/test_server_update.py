from dataclasses import replace

import numpy as np
import pytest

from fedkmeans.algorithms.server_update import advance, target
from fedkmeans.algorithms.state import State, Target
from fedkmeans.algorithms.stopping import Stopping
from fedkmeans.errors import ParameterError
from fedkmeans.estimators import PAPER
from fedkmeans.protocol.exchange import add_up
from fedkmeans.protocol.messages import LocalModel


def test_target_is_the_weighted_mean_and_falls_back_to_the_plain_one():
    models = {
        "a": LocalModel(np.array([[0.0], [1.0]]), np.array([3.0, 0.0])),
        "b": LocalModel(np.array([[4.0], [2.0]]), np.array([1.0, 0.0])),
    }
    np.testing.assert_array_equal(target(add_up(models).record), [[1.0], [1.5]])


def test_fallback_need_not_be_the_old_centroid():
    """A cluster that is empty at first can get points in a later local step, and these count."""
    models = {
        "a": LocalModel(np.array([[7.0]]), np.zeros(1)),
        "b": LocalModel(np.array([[5.0]]), np.zeros(1)),
    }
    np.testing.assert_array_equal(target(add_up(models).record), [[6.0]])


def test_learning_rate_and_momentum_follow_the_papers_equation():
    state = State.start(np.array([[1.0]]))
    first = advance(state, Target(np.array([[3.0]]), ("a",), 0, 0), learning_rate=0.5, momentum=0.8)
    assert first.centroids[0, 0] == 2.0  # no momentum yet: C(-1) = C(0)
    second = advance(first, Target(np.array([[3.0]]), ("a",), 0, 0), learning_rate=0.5, momentum=0.8)
    assert second.centroids[0, 0] == pytest.approx(2.0 + 0.5 * (3.0 - 2.0) + 0.8 * (2.0 - 1.0))
    assert second.round == 2
    assert second.movements == pytest.approx((1.0, 1.3))


def state_with(*movements):
    return State(np.zeros((1, 1)), np.zeros((1, 1)), len(movements), movements)


@pytest.mark.parametrize(
    ("movements", "stopping", "reason"),
    [
        ((1.0, 1e-9), Stopping(min_rounds=1), "tol"),
        ((1.0, 1e-9), Stopping(min_rounds=3), None),
        ((1.0, 2.0, 1.5), Stopping(patience=3, min_rounds=0), "patience"),
        ((1.0, 2.0, 0.5), Stopping(patience=3, min_rounds=0), None),
        ((1.0, 2.0), Stopping(patience=3, min_rounds=0), None),
        ((1.0, 2.0, 1.5), Stopping(patience=3, min_rounds=1), None),  # the first round does not count
        ((9.0, 1.0, 2.0, 1.5), Stopping(patience=3, min_rounds=1), "patience"),
        ((1.0, 2.0, 3.0), Stopping(patience=None, min_rounds=1), None),
        ((1.0, 2.0), Stopping(max_rounds=2), "max_rounds"),
        ((), Stopping(min_rounds=0), None),
    ],
)
def test_stopping(movements, stopping, reason):
    assert stopping.reason(state_with(*movements)) == reason


def test_patience_of_the_paper_begins_after_round_16():
    """The queue of the authors' program holds the movements of rounds 17 to 316 at the earliest stop."""
    stopping = Stopping(patience=PAPER["patience"], min_rounds=PAPER["min_rounds"])
    rising = [float(movement) for movement in range(1, 317)]  # momentum: each is larger than the last
    assert stopping.reason(state_with(*rising[:315])) is None
    assert stopping.reason(state_with(*rising)) == "patience"
    assert stopping.reason(state_with(*rising[:-1], 16.5)) is None  # smaller than that of round 17
    first_counts = replace(stopping, min_rounds=0)
    assert first_counts.reason(state_with(*rising[:300])) == "patience"


@pytest.mark.parametrize(
    "bad", [{"tol": -1.0}, {"tol": float("nan")}, {"patience": 1}, {"min_rounds": -1}, {"max_rounds": 0}]
)
def test_stopping_refuses_nonsense_by_name(bad):
    with pytest.raises(ParameterError, match=next(iter(bad))):
        Stopping(**bad)
