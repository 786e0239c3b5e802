"""Files outside the package: citation, pre-commit hooks and workflows."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import fedkmeans

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def load(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def classified_pythons():
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    return re.findall(r":: (3\.\d+)$", "\n".join(classifiers), re.MULTILINE)


def make_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def commands(workflow):
    return [step["run"] for job in load(workflow)["jobs"].values() for step in job["steps"] if "run" in step]


def targets(command):
    """Targets in a call of make, without variables."""
    return [word for word in command.split()[1:] if "=" not in word]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_make_targets_that_exist(workflow):
    found = commands(workflow)
    assert found
    for command in found:
        assert command.startswith("make "), command
        assert targets(command)
        assert set(targets(command)) <= make_targets(), command


def test_the_workflows_call_what_every_change_must_pass():
    found = [command for workflow in WORKFLOWS for command in commands(workflow)]
    called = {target for command in found for target in targets(command)}
    assert called >= {"lint", "test", "test-pythons", "test-lowest", "docs"}


def test_the_workflow_tests_all_supported_pythons():
    jobs = load(".github/workflows/ci.yml")["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == classified_pythons()


def test_hooks_are_local_and_use_what_make_installs():
    repositories = load(".pre-commit-config.yaml")["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for hook in repositories[0]["hooks"]:
        folder, tool = hook["entry"].split()[0].rsplit("/", 1)
        assert folder == ".venv/bin"
        assert f"$(BIN)/{tool}" in makefile


def test_the_citation_is_of_this_version():
    citation = load("CITATION.cff")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["version"] == fedkmeans.__version__
    assert citation["license"] == project["license"]
    assert citation["authors"] == project["authors"]
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Holzer", "Jacob", "Kavane"]
