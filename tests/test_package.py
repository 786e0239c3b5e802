"""What the package exports, and what it imports."""

import os
import subprocess
import sys
from importlib.metadata import requires, version

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import fedkmeans
from fedkmeans import Site
from fedkmeans.flower.deploy import site_folder


def test_all_exported_names_exist():
    for name in fedkmeans.__all__:
        assert getattr(fedkmeans, name) is not None
        assert name in dir(fedkmeans)
    for name in ("Flower", "WaitPolicy"):  # need the extra flower, so they are not in __all__
        assert getattr(fedkmeans, name) is not None
    assert {*fedkmeans._MODULES, *vars(fedkmeans)} >= set(fedkmeans.__all__)
    assert set(fedkmeans._MODULES) - set(fedkmeans.__all__) == {"Flower", "WaitPolicy"}
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        fedkmeans.Nothing  # noqa: B018


def loaded_after(code, modules):
    """Which of `modules` are loaded in a new process that ran `code`."""
    report = f"import sys; {code}; print([m for m in {modules!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return result.stdout.strip().splitlines()[-1]


def test_help_does_not_load_large_libraries():
    heavy = ["numba", "sklearn", "scipy", "pandas", "pyarrow", "matplotlib"]
    assert loaded_after("import fedkmeans.cli", heavy) == "[]"


def test_estimators_do_not_load_the_engines():
    others = ["flwr", "torch", "matplotlib", "typer", "rich", "pyarrow.csv"]
    assert loaded_after("from fedkmeans import FederatedKMeans", others) == "[]"


def test_a_site_answers_a_message_without_large_libraries(tmp_path):
    # Flower starts a process for every message, so every import takes time in every round.
    site_folder.prepare(tmp_path, Site("a", np.arange(400.0).reshape(20, 20)))
    code = (
        "import fedkmeans.flower.client_app, numpy as np; from pathlib import Path; "
        "from fedkmeans.flower.deploy.site_folder import open_site; "
        "from fedkmeans.protocol.messages import LocalUpdate, SendStatistics; "
        f"open_site(Path({str(tmp_path)!r})).answer("
        "SendStatistics(LocalUpdate(np.eye(3, 20), 2, 0.0, 'dynamic', 'keep')))"
    )
    assert loaded_after(code, ["scipy", "numba", "narwhals", "sklearn", "pandas", "pyarrow"]) == "[]"


@pytest.mark.skipif(not os.environ.get("FEDKMEANS_LOWEST"), reason="for environments of make test-lowest")
def test_the_lowest_allowed_versions_are_installed():
    needed = [Requirement(text) for text in requires("fedkmeans")]
    floors = {
        need.name: next(clause.version for clause in need.specifier if clause.operator == ">=")
        for need in needed
        if need.marker is None or any(need.marker.evaluate({"extra": name}) for name in ("flower", "dask"))
    }
    assert {name: Version(version(name)) for name in floors} == {
        name: Version(floor) for name, floor in floors.items()
    }
