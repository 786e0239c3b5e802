"""Fixtures and strategies shared by the tests."""

from __future__ import annotations

import os
from pathlib import Path

# Read when SciPy is first imported; without it, scikit-learn skips one of its estimator checks.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# The numbers of examples are fixed and runs are reproducible, so that a failure in CI can be repeated.
settings.register_profile(
    "fedkmeans", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fedkmeans")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run federations of real processes first: they take minutes and would otherwise end last."""

    def is_federation(item: pytest.Item) -> bool:
        return item.get_closest_marker("faults") is not None or item.path.match("flower/test_service_user.py")

    first = {item.path for item in items if is_federation(item)}
    items.sort(key=lambda item: item.path not in first)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data; the test is skipped with a reason if there is none."""
    folder = os.environ.get("FEDKMEANS_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs real data: set FEDKMEANS_DATA to a folder with mnist/, femnist/, …")
    return Path(folder)


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray]:
    """Three clear groups in four columns, on five clients of different sizes."""
    rng = np.random.default_rng(7)
    centres = np.array([[0.0, 0, 0, 0], [6, 6, 0, 0], [0, 6, 6, 6]])
    X = centres[rng.integers(3, size=240)] + rng.normal(scale=0.5, size=(240, 4))
    clients = np.sort(rng.choice(5, size=240, p=[0.1, 0.1, 0.2, 0.2, 0.4]))
    return X, clients
