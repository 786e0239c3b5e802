"""Small fits of every algorithm, and a comparison of two fits."""

import numpy as np
import pandas as pd

from fedkmeans.registry import ALGORITHMS, make


def outcome(model):
    """All results of a fit."""
    return model.cluster_centers_, model.n_iter_, model.inertia_, model.best_restart_, model.history_


def assert_same(one, two):
    """Compare two fits bit by bit."""
    np.testing.assert_array_equal(one[0], two[0])
    assert one[1:4] == two[1:4]
    pd.testing.assert_frame_equal(one[4], two[4], check_exact=True)


def small(name, **settings):
    """An algorithm with at most four rounds."""
    if "max_rounds" in ALGORITHMS[name].parameters():
        settings = {"max_rounds": 4, "tol": 0, **settings}
    return make(name, n_clusters=3, random_state=1, **settings)
