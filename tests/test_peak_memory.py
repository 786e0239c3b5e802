"""Fitting copies the data at most once and never converts all of it to double precision."""

import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fedkmeans import FKM, FederatedKMeans, KFed

N_ROWS, N_COLUMNS = 10_000, 256
# The compiled kernel may cache data about the rows; tests/kernels/test_kernels.py limits its size.
ESTIMATORS = [
    FederatedKMeans(3, max_rounds=2, kernel="numpy"),
    KFed(3, max_iter=3, kernel="numpy"),
    KFed(3, variant="published", max_iter=3, kernel="numpy"),
    FKM(3, max_rounds=2, kernel="numpy"),
]


def peak_of_fit(estimator, X, clients):
    tracemalloc.start()
    try:
        estimator.set_params(random_state=0).fit(X, clients=clients)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:Too few centroids came:UserWarning")  # k' < k and one client
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
    # In addition to the copy: labels, a few numbers per row, and blocks of a fixed size.
    allowed = copies * X.nbytes + 120 * N_ROWS + 8e6
    in_double = 8 * X.size
    assert allowed < 0.65 * in_double + copies * X.nbytes  # a copy in double precision would exceed the bound
    assert peak_of_fit(estimator, X, clients) < allowed


@pytest.mark.parametrize("make_frame", [pd.DataFrame, pl.DataFrame])
def test_a_frame_of_mixed_rows_is_copied_once(make_frame):
    """Conversion to an array and sorting by client make one copy, not two."""
    rng = np.random.default_rng(0)
    columns = {f"c{j}": rng.normal(size=50_000).astype(np.float32) for j in range(60)}
    frame = make_frame(columns)
    in_bytes = 4 * 60 * 50_000
    clients = rng.integers(20, size=50_000)
    init = np.repeat([[0.0], [1.0]], 60, axis=1)
    peak = peak_of_fit(FederatedKMeans(2, init=init, max_rounds=1, kernel="numpy"), frame, clients)
    assert in_bytes < peak < 1.75 * in_bytes
