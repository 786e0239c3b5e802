"""Errors of the package as options, counts, names with commas and progress lines."""

import inspect
import pickle
from pathlib import Path

import pytest

from fedkmeans._utils.checks import PARAMETERS, check_integer
from fedkmeans.cli.console import count, exchanged, why_stopped
from fedkmeans.cli.files import names
from fedkmeans.cli.fit import WEIGHTING_NAMES
from fedkmeans.cli.options import OPTIONS, TUNING, Option
from fedkmeans.cli.progress import watch_rounds
from fedkmeans.errors import DataError, FedKMeansWarning, ParameterError, Setting, as_typed, option_of
from fedkmeans.kernels.weighting import WEIGHTINGS
from fedkmeans.registry import ALGORITHMS


@pytest.mark.parametrize(
    ("error", "in_python", "typed"),
    [
        (
            ParameterError("must be at least 1, got 0.", parameter="max_rounds"),
            "max_rounds must be at least 1, got 0.",
            "--max-rounds must be at least 1, got 0.",
        ),
        (ParameterError("must be 3", parameter="n_clusters"), "n_clusters must be 3", "-k must be 3"),
        (ParameterError("must be", parameter="random_state"), "random_state must be", "--seed must be"),
        (ParameterError("must be", parameter="--seed"), "--seed must be", "--seed must be"),
        (
            FedKMeansWarning("gives it, so ", Setting("n_init", 3), " repeats", parameter="init"),
            "init gives it, so n_init=3 repeats",
            "--init gives it, so --n-init 3 repeats",
        ),
        (
            ParameterError("no.", remedy=("Use ", Setting("memory", None, typed="--algorithm wf"), ".")),
            "no. Use memory=None.",
            "no. Use --algorithm wf.",
        ),
        (ParameterError(Setting("memory", None), " no"), "memory=None no", "--memory none no"),
        (
            DataError("no rows", remedy="export it again"),
            "no rows; export it again",
            "no rows; export it again",
        ),
        (
            DataError(DataError("text", remedy=Setting("drop=['a']", typed="--drop a")), "; and more"),
            "text; drop=['a']; and more",
            "text; --drop a; and more",
        ),
        (
            DataError("column 'n_clusters' is text"),
            "column 'n_clusters' is text",
            "column 'n_clusters' is text",
        ),
    ],
)
def test_errors_name_parameters_in_python_and_options_in_the_shell(error, in_python, typed):
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert (str(copy), as_typed(copy)) == (in_python, typed)


def test_errors_keep_the_parameter_and_the_remedy():
    with pytest.raises(ParameterError) as caught:
        check_integer("n_init", 0)
    assert (caught.value.parameter, caught.value.remedy) == ("n_init", ())
    assert DataError("no", remedy="do").remedy == ("do",)


def test_the_table_has_every_parameter_that_can_be_set():
    for algorithm in ALGORITHMS.values():
        # these two have options of their own
        assert algorithm.parameters() - {"n_clusters", "random_state"} <= set(TUNING)
    assert set(TUNING) == {*PARAMETERS, "n_jobs", "kernel"}
    assert set(WEIGHTING_NAMES) <= set(WEIGHTINGS)


def test_errors_name_the_options_of_the_table():
    for name, option in OPTIONS.items():
        parameter = {"k": "n_clusters", "seed": "random_state", "client_column": "client"}.get(name, name)
        assert not option.flags or option_of(parameter) in option.flags


@pytest.mark.parametrize(
    ("usage", "name", "type_", "default"),
    [
        ("--quiet -q", "quiet", bool, False),
        ("-k --n-clusters K = required", "k", int, inspect.Parameter.empty),
        ("--learning-rate X", "learning_rate", float, None),
        ("--out -o PATH = model", "out", Path, Path("model")),
        ("--only KEY=NAMES...", "only", list[str], None),
        ("--clients N,N", "clients", str, None),
        ("MODEL", "model", Path, inspect.Parameter.empty),
        ("DATA... = none", "data", list[Path], None),
        ("DIR", "folder", Path, inspect.Parameter.empty),
    ],
)
def test_options_are_declared_as_they_are_typed(usage, name, type_, default):
    option = Option.of(usage, "Help.")
    assert (option.name, option.type, option.default) == (name, type_, default)
    assert option.flags == tuple(word for word in usage.split() if word.startswith("-"))


def test_counts():
    assert [count(n, "client") for n in (0, 1, 1200)] == ["0 clients", "1 client", "1,200 clients"]
    assert why_stopped("interrupted") == "it was interrupted"
    assert "--max-iter" in why_stopped("max_rounds", pooled=True)
    assert why_stopped("tol_score") == "the score has settled (--tol-score)"


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (54_600, "54.6 kB"),
        (1_260_000, "1.3 MB"),
        (3_000_000_000, "3.0 GB"),
        (12_000_000_000_000, "12.0 TB"),
    ],
)
def test_sizes(n_bytes, text):
    assert exchanged({"bytes_sent": [n_bytes, 0], "bytes_received": [1]}) == (
        f"{text} to the clients, 1 byte back"
    )


def test_what_was_exchanged_is_told_where_it_is_known():
    assert exchanged({"bytes_sent": [500, 600], "bytes_received": [1, 2]}) == (
        "1.1 kB to the clients, 3 bytes back"
    )
    assert exchanged({}) == exchanged({"round": [1], "movement": [0.5]}) == ""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["a,b"], ("a", "b")),
        (["a, b", "c"], ("a", "b", "c")),
        (["x,y"], ("x,y",)),
        (['"x,y",a'], ("x,y", "a")),
        (["x,y", "b"], ("x,y", "b")),
        ([" a "], ("a",)),
        (['5" pipe'], ('5" pipe',)),
        ([""], ()),
    ],
)
def test_names_with_commas(given, expected):
    assert names(given, ("x,y", "a", "b", '5" pipe')) == expected


def test_progress_lines_become_seldom(monkeypatch, capsys):
    class Round:
        def __init__(self, number):
            self.round, self.movement, self.estimate = number, 0.5, float("nan")

    now = 100.0
    monkeypatch.setattr("fedkmeans.cli.progress.time.monotonic", lambda: now)
    with watch_rounds("DWF", 10_000, quiet=False) as observe:
        for number in range(1, 2001):  # 20 s in all
            now += 0.01
            observe(None, Round(number))
    lines = capsys.readouterr().err.splitlines()
    rounds = [int(line.split()[2].replace(",", "")) for line in lines]
    assert rounds == [1, 101, 301, 701, 1501, 2000]
    assert lines[1] == "DWF: round 101 of at most 10,000, movement 5.00e-01, at most 1 min 39 s left"
    assert "left" in lines[-2]
    assert "left" not in lines[-1]
