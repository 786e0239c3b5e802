"""Tables that several sites share."""

from functools import partial

import numpy as np
import pytest

from fedkmeans import FederatedKMeans, InProcess
from fedkmeans.kernels.numba.jit import bounds, clients, follow
from fedkmeans.protocol.exchange import add_up
from fedkmeans.protocol.messages import LocalUpdate, Score, SendStatistics

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("module", "where"),
    [(bounds, "follow_labels"), (follow, "follow_step"), (follow, "follow_steps"), (clients, "add_up")],
)
@pytest.mark.parametrize(
    "make",
    [
        FederatedKMeans,
        FederatedKMeans.paper,
        partial(FederatedKMeans, memory="client"),
        partial(FederatedKMeans, memory=0.9),
    ],
)
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


@pytest.mark.parametrize("wanted", [slice(None), slice(3), slice(0, None, 2)])
def test_sums_of_clusters_without_changes_are_reused_without_a_trace(wanted, monkeypatch):
    rng = np.random.default_rng(1)
    X, names = rng.normal(size=(400, 30)) + 3 * rng.integers(0, 5, size=(400, 1)), np.repeat(np.arange(8), 50)
    federation, C, summed = InProcess.from_arrays(X, names, kernel="numba"), X[:6].copy(), []
    original = clients.add_up
    monkeypatch.setattr(clients, "add_up", lambda *args: (summed.append(len(args[5])), original(*args)))
    for round_ in range(30):
        # Now and then other clients, a score or other weights come in between.
        some = federation.clients[wanted if round_ % 7 == 5 else slice(None)]
        weighting = "last_counts" if round_ % 11 else (lambda local: np.floor(local.counts / 2))
        query = SendStatistics(LocalUpdate(C, 1, 0.0, weighting, "keep"))
        if round_ % 5 == 4:
            federation.total(Score(C + 0.1), some)
        found = federation.total(query, some).record
        alone = add_up(InProcess.from_arrays(X, names, kernel="numba").ask(query, some)).record
        for ours, theirs in zip(found.parts()[:3], alone.parts()[:3], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        C = C + 0.3 * (found.weighted_sum / np.maximum(found.weight, 1)[:, None] - C)
    assert min(summed) < 6  # some were reused
