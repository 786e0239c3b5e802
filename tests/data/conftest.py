"""Fixtures of the data tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def data_home() -> Path:
    home = os.environ.get("FEDKMEANS_DATA")
    if not home:
        pytest.skip("FEDKMEANS_DATA is not set: this test reads real data from the folder it names")
    return Path(home)


@pytest.fixture
def write(tmp_path):
    """Write a text or bytes file into the test's folder and return its path."""

    def writer(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return writer
