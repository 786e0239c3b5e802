"""The command line as a user meets it: in an empty folder, with small files."""

import inspect
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedkmeans.cli import app

NAMES = ("age", "weight")
# Older runners mix the two streams unless told not to; newer ones never do and know no such option.
APART = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture
def run(here):
    """Run a command line; an exception that is no exit is raised again."""

    def run_(line: str | list[str]) -> Outcome:
        result = CliRunner(**APART).invoke(app, line.split() if isinstance(line, str) else line)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run_


@pytest.fixture
def refused(run, here):
    """Run a command line that must fail: exit code 2, one line, and nothing written. Returns the line."""

    def refused_(line: str | list[str]) -> str:
        before = sorted(here.rglob("*"))
        outcome = run(line)
        assert outcome.code == 2, outcome
        assert outcome.out == ""
        errors = [text for text in outcome.err.splitlines() if not text.startswith("Note: ")]
        assert len(errors) == 1, outcome.err
        assert errors[0].startswith("Error: ")
        assert sorted(here.rglob("*")) == before
        return errors[0]

    return refused_


def write_client(name: str, seed: int, n: int = 30, names=NAMES, **columns) -> Path:
    """Write a client's rows, two groups far apart, as CSV; `columns` replaces or adds columns."""
    rng = np.random.default_rng(seed)
    values = {key: rng.normal(size=n) + 10 * (np.arange(n) % 2) for key in names}
    values = {key: [f"{x:.6f}" for x in column] for key, column in values.items()} | columns
    rows = zip(*values.values(), strict=True)
    lines = [",".join(values), *(",".join(str(x) for x in row) for row in rows)]
    path = Path(name)
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def clients(here) -> None:
    """Two files of the same columns: north.csv and south.csv."""
    write_client("north.csv", 0)
    write_client("south.csv", 1)


@pytest.fixture
def model(run, clients) -> str:
    """A model of the two clients; its path."""
    outcome = run("fit north.csv south.csv -k 2 --seed 0 --max-rounds 50 --quiet")
    assert outcome.code == 0, outcome.err
    return "model"
