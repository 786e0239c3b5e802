"""Errors of the package in terms of what can be typed, and other words."""

import pytest

from fedkmeans.cli.options import TUNING
from fedkmeans.cli.progress import _Lines
from fedkmeans.cli.source import names
from fedkmeans.cli.words import WEIGHTING_NAMES, as_typed, count, exchanged, option, size, why_stopped
from fedkmeans.kernels.weighting import WEIGHTINGS as KNOWN
from fedkmeans.registry import ALGORITHMS


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        (
            "learning_rate must be a number in (0, 1], got 2.",
            "--learning-rate must be a number in (0, 1], got 2.",
        ),
        ("n_clusters must be 3", "-k must be 3"),
        ("random_state must be", "--seed must be"),
        ("tol must be in [0, inf), got -1.", "--tol must be in [0, inf), got -1."),
        (
            "weighting 'equal' does not go with memory: it gives. Use 'dynamic', or memory=None.",
            "--weighting 'equal' does not go with memory: it gives. Use 'dynamic', or --algorithm wf.",
        ),
        (
            "empty_clusters='relocate' does not go with memory: a. Use 'keep'.",
            "--empty-clusters 'relocate' does not go with memory: a. Use 'keep'.",
        ),
        ("memory must be None (each", "--memory must be None (each"),
        ("the memory of the weighting is gone", "the memory of the weighting is gone"),
        ("init holds missing or infinite values.", "--init holds missing or infinite values."),
        ("they sent 3 centroids for n_clusters=4; ask", "they sent 3 centroids for -k 4; ask"),
        (
            "n_samples=20 over all clients should be >= n_clusters=50.",
            "20 rows over all clients should be >= -k 50.",
        ),
        ("have n_samples=1 row(s) in all", "have 1 row in all"),
        ("The 'tol' parameter of KMeans must be a float", "--tol must be a float"),
        (
            "column 'n_clusters' and \"max_iter\"; lower max_iter",
            "column 'n_clusters' and \"max_iter\"; lower --max-iter",
        ),
        ("the client's n_init and the server's n_init", "the client's --n-init and the server's --n-init"),
        ("with --drop a (in Python: drop=['a (b)']), or not", "with --drop a, or not"),
        ("Correct columns=[...] (--columns).", "Correct --columns."),
        ("the momentum is gone, seed after seed", "the momentum is gone, seed after seed"),
        ("'x': [Errno 28] No space left on device: '/tmp/.x.tmp'; go", "'x': No space left on device; go"),
        (
            "'x': [Errno 27] Error writing bytes to file. Detail: [errno 27] File too large; go",
            "'x': File too large; go",
        ),
    ],
)
def test_errors_name_options(said, typed):
    assert as_typed(said) == typed


def test_every_parameter_that_can_be_set_has_an_option():
    for algorithm in ALGORITHMS.values():
        # these two have options of their own
        assert algorithm.parameters() - {"n_clusters", "random_state"} <= set(TUNING)
    assert option("n_local_clusters") == "--n-local-clusters"
    assert set(WEIGHTING_NAMES) <= set(KNOWN)


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
        (3e9, "3.0 GB"),
        (12e15, "12,000.0 TB"),
    ],
)
def test_sizes(n_bytes, text):
    assert size(n_bytes) == text


def test_what_was_exchanged_is_told_where_it_is_known():
    assert exchanged({"bytes_sent": [500, 600], "bytes_received": [1, 2]}) == (
        "1.1 kB to the clients, 3 bytes back"
    )
    assert exchanged({}) is exchanged({"round": [1], "movement": [0.5]}) is None


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


def test_progress_lines_become_seldom(monkeypatch):
    class Round:
        def __init__(self, number):
            self.round, self.movement, self.estimate = number, 0.5, float("nan")

    class Console:
        def __init__(self):
            self.lines = []

        def print(self, line, **_):
            self.lines.append(line)

    now, console = 100.0, Console()
    monkeypatch.setattr("fedkmeans.cli.progress.time.monotonic", lambda: now)
    lines = _Lines(console, "DWF", 10_000)
    for number in range(1, 2001):  # 20 s in all
        now += 0.01
        lines(None, Round(number))
    lines.end()
    rounds = [int(line.split()[2].replace(",", "")) for line in console.lines]
    assert rounds == [1, 101, 301, 701, 1501, 2000]
    assert "left" in console.lines[-2]
    assert "left" not in console.lines[-1]
