"""The program as a process: its help, its exit codes, and Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedkmeans
from fedkmeans.cli.options import TUNING
from fedkmeans.model import Model

from .conftest import write_client

pytestmark = pytest.mark.slow

COMMANDS = (
    *("demo", "fit", "predict", "evaluate", "partition", "inspect", "report"),
    *(f"federation {name}" for name in ("new", "serve", "run", "status", "add", "remove", "renew")),
    *("federation", "site", "site join"),
)
PROGRAM = (sys.executable, "-c", "from fedkmeans.cli import main; main()")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(run, command):
    outcome = run(f"{command} --help")
    assert outcome.code == 0
    assert "Examples" in outcome.out
    assert f"fedkmeans {command} " in outcome.out


def test_version_and_bare_call(run):
    assert run("--version").out.strip() == f"fedkmeans {fedkmeans.__version__}"
    assert "Examples" in run("--help").out
    assert run("fitt").err.startswith("Error: No such command 'fitt'. Did you mean 'fit'? See ")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_laid_out_for_80_columns(run, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = run(f"{command} --help").out
    examples = text.partition("Examples")[2].partition("╭")[0].splitlines()[1:]
    shown = [line.rstrip() for line in examples if line.strip()]
    assert shown
    for before, line in zip(["", *shown], shown, strict=False):
        assert line.startswith("   fedkmeans") or before.endswith("\\"), line
    assert "<" not in text  # no types of Python


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "latin-1"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
@pytest.mark.parametrize("line", ["fit --help", "inspect new.csv", "inspect new.csv --json"])
def test_streams_that_know_few_characters(here, environment, line):
    write_client("new.csv", 0, names=("größe", "weite", "高さ"))
    done = subprocess.run([*PROGRAM, *line.split()], capture_output=True, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    if "--json" in line:  # programs get the very names
        assert json.loads(done.stdout)["columns"][2]["name"] == "高さ"


@pytest.mark.skipif(os.name == "nt", reason="needs a limit on the size of files")
def test_an_output_that_takes_no_more_is_told_in_one_line(here):
    import resource

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # as on a full disk

    write_client("a.csv", 0)
    with Path("out.txt").open("w") as out:
        done = subprocess.run(
            [*PROGRAM, "inspect", "a.csv"], stdout=out, stderr=subprocess.PIPE, text=True, preexec_fn=limit
        )
    assert done.returncode == 2
    assert done.stderr.startswith("Error: the output: File too large; ")
    assert done.stderr.count("\n") == 1


def said_default(text, algorithm):
    """What a help text says that an algorithm takes: '1; for dwf and ewf 16; for fkm 300'."""
    usual, *others = text.split("; for ")
    for other in others:
        *names, value = other.replace(",", " ").replace(" and ", " ").split()
        if algorithm in names:
            return value
    return usual


def test_the_defaults_in_the_help_are_those_of_the_estimators(run, monkeypatch):
    """Options left out are not passed on, so the help must say what the estimators then do."""
    from fedkmeans.registry import ALGORITHMS, make

    monkeypatch.setenv("COLUMNS", "400")
    text = run("fit --help").out
    lines = {
        line.split()[1].strip("*"): line for line in text.splitlines() if "--" in line and "Default:" in line
    }
    said = {option: line.rsplit("Default: ", 1)[1].strip(" │.") for option, line in lines.items()}
    in_words = {
        "n_local_clusters": "as -k",
        "clients_per_round": "all",
        "n_jobs": "-1",
        "score_every": "0, none",
    }
    for name in TUNING:
        algorithms = [key for key, algorithm in ALGORITHMS.items() if name in algorithm.parameters()]
        assert algorithms
        for algorithm in algorithms:
            told = said_default(said[f"--{name.replace('_', '-')}"], algorithm)
            default = make(algorithm).get_params()[name]
            if name in in_words:
                assert told == in_words[name]
                assert not default
            elif isinstance(default, float):
                assert float(told) == default, (algorithm, name)
            else:
                assert told == str(default).lower(), (algorithm, name)


def test_commands_import_nothing_heavy():
    """What the help needs must not load scikit-learn and pandas, beyond what the package itself does."""
    code = (
        "import sys, fedkmeans; before = set(sys.modules); import fedkmeans.cli; "
        "print(sorted(m for m in set(sys.modules) - before if m.split('.')[0] in "
        "{'numpy', 'sklearn', 'pandas', 'pyarrow', 'matplotlib', 'scipy', 'joblib'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_error_in_a_real_process(here):
    done = subprocess.run([*PROGRAM, "fit", "absent.csv", "-k", "2"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "Error: client 'absent' (file 'absent.csv') does not exist; check the path\n"


def test_a_closed_pipe_is_no_crash(here):
    write_client("a.csv", 0, names=tuple(f"column_{i}" for i in range(30)))
    line = f"{sys.executable} -c 'from fedkmeans.cli import main; main()' inspect a.csv | head -1"
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise on Windows")
@pytest.mark.parametrize(
    ("out", "signals"),
    [
        ("model", ["SIGINT"]),
        ("model.safetensors", ["SIGINT"]),
        ("model", ["SIGTERM"]),
        ("model", ["SIGHUP"]),
        ("model", ["SIGTERM", "SIGTERM", "SIGINT"]),
    ],
)
def test_signals_keep_what_is_finished(here, out, signals):
    def heed_signals():
        # Tests that run in the background may have been told to ignore them, and children inherit that.
        for name in ("SIGINT", "SIGHUP", "SIGTERM"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)

    write_client("a.csv", 0, n=200)
    write_client("b.csv", 1, n=200)
    options = ["-k", "2", "--tol", "0", "--tol-score", "0", "--max-rounds", "10000000", "--out"]
    process = subprocess.Popen(
        [*PROGRAM, "fit", "a.csv", "b.csv", *options, out],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_signals,
    )
    assert "round 1 " in process.stderr.readline()
    for name in signals:
        process.send_signal(getattr(signal, name))
        time.sleep(0.02)
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + getattr(signal, signals[0]), errors
    assert output == ""
    assert "Traceback" not in errors
    assert f"the model so far is saved in '{out}'" in errors
    model = Model.load(out)
    assert model.card["result"]["interrupted"] is True
    assert model.card["result"]["n_rounds"] >= 1
    assert len(model.card["history"]["round"]) == model.card["result"]["n_rounds"]
    assert sorted(path.name for path in here.iterdir()) == ["a.csv", "b.csv", out]


def test_ctrl_c_before_the_first_round_writes_nothing(run, clients, here, monkeypatch):
    from fedkmeans import InProcess

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(InProcess, "ask", interrupt)
    outcome = run("fit north.csv south.csv -k 2")
    assert outcome.code == 130
    assert "Interrupted: there is no result yet, so nothing is written." in outcome.err
    assert not Path("model").exists()


def test_ctrl_c_elsewhere(run, model, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedkmeans.cli.files.read_clients", interrupt)
    outcome = run(f"evaluate {model} north.csv")
    assert (outcome.code, outcome.err) == (130, "Interrupted: the command was not finished.\n")


def test_demo_shows_table_and_pictures(run, here, monkeypatch):
    import fedkmeans.study.demo as command
    from fedkmeans.study import Progress, Record, Task

    def run_demo(out, *, seed, n_jobs, report, max_rounds):
        assert (seed, max_rounds) == (3, 100)
        task, record = Task("synthetic", "iid", "dwf", 100, 0), Record("key", {"score": 0.07431})
        report(Progress(task, record, 1, 1, 0.0))
        return type("Result", (), {"files": [out / "a.png", out / "demo.csv"]})()

    monkeypatch.setattr(command, "run_demo", run_demo)
    monkeypatch.setattr(command, "render_table", lambda result: "the table")
    monkeypatch.setattr(command, "explain", lambda result: ("look here",))
    outcome = run("demo --quick --seed 3")
    assert outcome.code == 0
    line = "demo: 1 of 1 runs, about 0.0 s left; synthetic, iid, dwf, 100 clients per round, run 0: 0.07431\n"
    assert outcome.err == line
    assert "the table" in outcome.out
    assert "look here" in outcome.out
    assert "'fedkmeans-demo'" in outcome.out
    assert "--n-jobs must be" in run("demo --n-jobs 0").err


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo terminal")
@pytest.mark.parametrize(
    ("endless", "told"),
    [(["--tol-score", "0"], "score "), (["-a", "dwf", "--patience", "none"], "movement ")],
)
def test_a_terminal_shows_a_bar_and_is_left_tidy(here, endless, told):
    import pty

    write_client("a.csv", 0, n=200)
    ours, theirs = pty.openpty()
    options = ["-k", "2", "--tol", "0", "--max-rounds", "2000", *endless]
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80"}
    process = subprocess.Popen(
        [*PROGRAM, "fit", "a.csv", *options],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # how Linux says that the other end was closed
        pass
    finally:
        os.close(ours)
    output, _ = process.communicate(timeout=20)
    text = shown.decode()
    assert process.returncode == 0, text
    assert "of ≤ 2,000" in text
    assert told in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is shown again
    assert b"score per sample" in output
    assert b"\x1b" not in output
