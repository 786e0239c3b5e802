import numpy as np
import pytest

from fedkmeans import FederatedKMeans
from fedkmeans.errors import ParameterError
from fedkmeans.kernels.base import LocalSummary
from fedkmeans.kernels.weighting import WEIGHTINGS, weights_for


@pytest.fixture
def summary():
    return LocalSummary(
        centroids=np.zeros((3, 2)),
        counts=np.array([4.0, 0.0, 2.0]),
        last_counts=np.array([3.0, 1.0, 2.0]),
        inertia=np.array([6.0, 0.0, 2.0]),
        n_samples=6.0,
    )


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("dynamic", [4, 0, 2]),
        ("equal", [1, 1, 1]),
        ("by_size", [6, 6, 6]),
        ("last_counts", [3, 1, 2]),
        # typical spread 8/6; own spreads 2, 0 and 1
        ("by_compactness", [4 * (8 / 6) / (8 / 6 + 2), 0, 2 * (8 / 6) / (8 / 6 + 1)]),
    ],
)
def test_named_rules(summary, rule, expected):
    np.testing.assert_allclose(weights_for(rule, summary), expected)


def test_compactness_of_a_client_whose_points_are_all_alike_is_its_counts(summary):
    flat = LocalSummary(summary.centroids, summary.counts, summary.last_counts, np.zeros(3), 6.0)
    np.testing.assert_array_equal(weights_for("by_compactness", flat), summary.counts)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda local: np.ones(2), "one weight per cluster"),
        (lambda local: -local.counts, "negative or infinite"),
        (lambda local: local.counts * np.nan, "negative or infinite"),
        ("dynamc", "dynamic, equal, by_size"),
    ],
)
def test_bad_rules_are_named(summary, rule, message):
    with pytest.raises(ParameterError, match=message):
        weights_for(rule, summary)


def test_a_users_own_rule_is_a_plain_function(blobs):
    X, clients = blobs

    def square_root(local):
        return np.sqrt(local.counts)

    start = X[:3]
    own = FederatedKMeans(3, weighting=square_root, init=start, max_rounds=5).fit(X, clients=clients)
    dynamic = FederatedKMeans(3, init=start, max_rounds=5).fit(X, clients=clients)
    assert not np.array_equal(own.cluster_centers_, dynamic.cluster_centers_)


@pytest.mark.parametrize("rule", sorted(WEIGHTINGS))
def test_every_named_rule_fits(blobs, rule):
    X, clients = blobs
    model = FederatedKMeans.paper(3, weighting=rule, random_state=0).fit(X, clients=clients)
    assert model.score_per_sample_ < 1.2  # three blobs of variance 0.25 in four columns
