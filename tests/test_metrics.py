import numpy as np
import pytest

from fedkmeans.errors import DataError
from fedkmeans.metrics import accuracy, external_metrics, score_per_sample


def test_score_per_sample():
    X = np.array([[0.0], [2.0], [10.0]])
    assert score_per_sample(X, np.array([[1.0], [10.0]])) == pytest.approx(2 / 3)


def test_accuracy_maps_each_cluster_to_its_majority():
    assert accuracy(["a", "a", "b", "b"], [0, 0, 0, 1]) == 0.75
    assert accuracy([1, 1, 1], [0, 1, 2]) == 1.0  # several clusters may have one label
    with pytest.raises(DataError, match="2 predicted labels for 3 true ones"):
        accuracy([1, 2, 3], [1, 2])
    with pytest.raises(DataError, match="at least one"):
        accuracy([], [])


def test_external_metrics_of_a_perfect_and_a_useless_clustering():
    perfect = external_metrics([0, 0, 1, 1], [5, 5, 3, 3])
    assert all(value == pytest.approx(1.0) for value in perfect.values())
    useless = external_metrics([0, 1, 0, 1], [0, 0, 0, 0])
    assert useless["accuracy"] == 0.5
    assert useless["v_measure"] == pytest.approx(0.0)
    assert useless["adjusted_rand"] == pytest.approx(0.0)
