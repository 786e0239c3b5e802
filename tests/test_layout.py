"""The package stays readable: few modules in the root, few layers, short files and functions."""

import ast
import statistics
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/fedkmeans"
FILES = sorted(PACKAGE.rglob("*.py"))
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def n_lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def functions(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, FUNCTION)]


def name_of(path):
    return str(path.relative_to(PACKAGE))


def test_the_root_has_few_files_and_folders():
    assert len([path for path in PACKAGE.iterdir() if path.is_file()]) <= 10
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert len(folders - {"_utils"}) <= 8


def test_there_are_few_layers():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (one for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    assert len(contract["layers"]) <= 10


def test_files_are_short():
    sizes = {name_of(path): n_lines(path) for path in FILES}
    assert {name: size for name, size in sizes.items() if size > 400} == {}
    assert statistics.median(sizes.values()) < 150


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_functions_are_short(path):
    found = {one.name: one.end_lineno - one.lineno + 1 for one in functions(path)}
    assert {name: size for name, size in found.items() if size > 60} == {}


@pytest.mark.parametrize("path", sorted((PACKAGE / "kernels").rglob("*.py")), ids=name_of)
def test_functions_of_kernels_have_few_arguments(path):
    found = {}
    for one in functions(path):
        names = [argument.arg for argument in (*one.args.args, *one.args.kwonlyargs)]
        found[one.name] = len(names) - (names[:1] == ["self"])
    assert {name: n for name, n in found.items() if n > 10} == {}


def test_the_default_algorithm_is_read_in_one_file():
    assert n_lines(PACKAGE / "algorithms/last_word.py") <= 200
