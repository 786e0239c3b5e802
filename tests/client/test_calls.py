"""From a question to the arithmetic it takes few calls: `docs/architecture.md` names them."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import fedkmeans
from fedkmeans import FederatedKMeans, Site
from fedkmeans.kernels.numba.jit import bounds
from fedkmeans.protocol.messages import LocalUpdate, SendStatistics

PACKAGE = str(Path(fedkmeans.__file__).parent)
MOST_CALLS = 7


@pytest.fixture
def calls(monkeypatch):
    """Names of the functions on the way to a compiled function, outermost first, for each call of it."""
    seen = []
    compiled = bounds.follow_labels

    def watched(*arguments):
        frames = [frame.function for frame in inspect.stack(0)[1:] if frame.filename.startswith(PACKAGE)]
        seen.append(frames[::-1])
        return compiled(*arguments)

    monkeypatch.setattr(bounds, "follow_labels", watched)
    return seen


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"memory": "client"},
        {"memory": 0.98},
        {"memory": None, "max_local": 5},
    ],
    ids=["server memory", "client memory", "forgetting", "the paper"],
)
def test_a_fit_in_process(calls, settings):
    X = np.random.default_rng(0).normal(size=(800, 64))
    model = FederatedKMeans(20, max_rounds=4, tol_score=0, kernel="numba", random_state=0, **settings)
    model.fit(X, clients=np.arange(800) % 8)
    ways = [names[names.index("run") + 1 :] for names in calls if "run" in names]
    rounds = [way for way in ways if "inertia_each" not in way]  # the final score is another question
    assert len(rounds) >= 4
    assert max(map(len, rounds)) <= MOST_CALLS, max(rounds, key=len)


@pytest.mark.parametrize("message", [lambda update: update, SendStatistics], ids=["model", "statistics"])
def test_a_site(calls, message):
    X = np.random.default_rng(0).normal(size=(800, 64))
    Site("north", X, kernel="numba").answer(message(LocalUpdate(X[:20], 1, 1e-8, "dynamic", "keep")))
    (names,) = calls
    assert names[0] == "answer"
    assert len(names) <= MOST_CALLS, names
