"""Tables that several sites share."""

import numpy as np
import pytest

from fedkmeans import FederatedKMeans, InProcess
from fedkmeans.kernels.numba.jit import bounds, clients, follow

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("module", "where"),
    [(bounds, "follow_labels"), (follow, "follow_step"), (follow, "follow_steps"), (clients, "add_up")],
)
@pytest.mark.parametrize("make", [FederatedKMeans, FederatedKMeans.paper])
def test_an_interrupted_round_leaves_no_partial_state(module, where, make, monkeypatch):
    """After Ctrl-C the same federation can be used again and must have no state of half a round."""
    rng = np.random.default_rng(0)
    X, clients = rng.normal(size=(400, 30)), np.repeat(np.arange(8), 50)
    model = make(5, init=X[:5], max_rounds=12, min_rounds=12, tol=0, random_state=0)
    expected = model.fit_federation(InProcess.from_arrays(X, clients, kernel="numba")).cluster_centers_
    federation = InProcess.from_arrays(X, clients, kernel="numba")
    calls = []
    original = getattr(module, where)

    def interrupt(*arguments):
        calls.append(1)
        result = original(*arguments)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(module, where, interrupt)
    try:
        model.fit_federation(federation)
    except KeyboardInterrupt:
        assert model.stop_reason_ == "interrupted"
    else:
        assert not calls  # this path does not call it
    again = model.fit_federation(federation).cluster_centers_
    np.testing.assert_array_equal(again, expected)
