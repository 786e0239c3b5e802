"""The examples in docstrings do what they show."""

import doctest
import importlib
import pkgutil

import pytest

import fedkmeans

pytestmark = pytest.mark.slow

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(fedkmeans.__path__, "fedkmeans.")
    if not module.name.endswith("__main__")
)
FINDER = doctest.DocTestFinder(exclude_empty=True)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    results = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0


def test_there_are_examples():
    counts = [len(test.examples) for name in MODULES for test in FINDER.find(importlib.import_module(name))]
    assert sum(counts) > 15
