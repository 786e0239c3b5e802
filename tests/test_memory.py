"""Fitting copies the data at most once and never turns it into double precision as a whole."""

import tracemalloc

import numpy as np
import pytest

from fedkmeans import FKM, FederatedKMeans, KFed

N_ROWS, N_COLUMNS = 10_000, 256
ESTIMATORS = [FederatedKMeans(3, max_rounds=2), KFed(3, max_iter=3), FKM(3, max_rounds=2)]


def peak_of_fit(estimator, X, clients):
    tracemalloc.start()
    try:
        estimator.set_params(random_state=0).fit(X, clients=clients)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("layout", ["one client", "rows lie together", "rows are mixed"])
def test_peak_memory(estimator, dtype, layout):
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 200, size=(3, N_COLUMNS))  # clear groups, so that few steps are needed
    X = (groups[rng.integers(3, size=N_ROWS)] + rng.integers(0, 20, size=N_COLUMNS)).astype(dtype)
    clients = {
        "one client": None,
        "rows lie together": np.repeat(np.arange(20), N_ROWS // 20),
        "rows are mixed": rng.permutation(np.repeat(np.arange(20), N_ROWS // 20)),
    }[layout]
    copies = 1 if layout == "rows are mixed" else 0
    # Beside the copy: labels, a few numbers per row, and blocks of a fixed size.
    allowed = copies * X.nbytes + 120 * N_ROWS + 8e6
    in_double = 8 * X.size
    assert allowed < 0.65 * in_double + copies * X.nbytes  # the bound is sharp enough to mean something
    assert peak_of_fit(estimator, X, clients) < allowed
