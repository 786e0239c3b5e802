"""The versions of Python for `make test-pythons`."""

import re
import sys
import tomllib

from tests import matrix


def test_the_lowest_python_is_the_one_that_is_required():
    project = tomllib.loads((matrix.ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={matrix.supported()[0]}"
    assert [int(version.split(".")[1]) for version in matrix.supported()] == sorted(
        int(version.split(".")[1]) for version in matrix.supported()
    )


def test_the_readme_lists_all_versions():
    readme = (matrix.ROOT / "README.md").read_text(encoding="utf-8")
    named = re.search(r"with Python ([^`]*) and `make`", readme)[1]
    assert re.findall(r"3\.\d+", named) == matrix.supported()


def test_this_python_is_found():
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert matrix.version_of(matrix.find(version)) == version


def test_an_absent_python_is_not_found():
    assert matrix.find("3.99") is None


def test_a_python_that_does_not_work_is_skipped(tmp_path, monkeypatch):
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\necho 'pyenv: python3.99: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert matrix.find("3.99") is None
    patches = ["3.99.9", "3.99.10"]
    for patch in patches:
        python = tmp_path / "pyenv/versions" / patch / "bin/python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\necho 3.99\n")
        python.chmod(0o755)
    assert matrix.find("3.99").parts[-3] == "3.99.10"
