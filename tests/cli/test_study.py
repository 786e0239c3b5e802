"""``fedkmeans study``: help, running and status, and what is said when something cannot be."""

import re
import shutil
from pathlib import Path

import pytest

from fedkmeans.errors import StudyError
from fedkmeans.study import Store

from .conftest import write_client

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COMMANDS = ("run", "status", "export", "table", "figure", "report")
PLAN = """
title = "Two wards"
runs = 2
clients_per_round = [1, 2]

[[data]]
name = "wards"
files = ["north.csv", "south.csv"]
k = 2

[[algorithm]]
name = "k-means"

[[algorithm]]
name = "dwf"
max_rounds = 5
kernel = "numpy"
"""
STORE = "fedkmeans-studies/plan"


@pytest.fixture
def plan(clients) -> Path:
    path = Path("plan.toml")
    path.write_text(PLAN)
    return path


# --- help --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_for_80_columns(run, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    outcome = run(f"study {command} --help")
    assert outcome.code == 0
    examples = outcome.out.partition("Examples")[2].partition("╭")[0].splitlines()[1:]
    shown = [line.rstrip() for line in examples if line.strip()]
    assert shown
    assert all(line.startswith(f"   fedkmeans study {command} ") for line in shown)
    assert max(map(len, outcome.out.splitlines())) <= 80
    assert "<" not in outcome.out


@pytest.mark.parametrize(("line", "code"), [("study --help", 0), ("study", 2)])
def test_the_group_says_what_there_is(run, line, code):
    outcome = run(line)
    assert (outcome.code, outcome.err) == (code, "")
    for command in COMMANDS:
        assert re.search(rf"^│ {command} +\w", outcome.out, re.MULTILINE)
    assert "fedkmeans study run studies/quick.toml" in outcome.out


def test_words_that_are_no_command(run):
    assert run("study rum").err.startswith("Error: No such command 'rum'. Did you mean 'run'?")


# --- running -----------------------------------------------------------------------------------


def test_a_study_from_beginning_to_end(run, plan):
    outcome = run("study run plan.toml --n-jobs 1")
    assert outcome.code == 0
    assert re.fullmatch(rf"\n6 runs done in [\d.]+ s; all 6 are in '{STORE}'\.\n", outcome.out)
    first, *progress = outcome.err.splitlines()
    assert first == "Two wards: 6 runs, 0 done before"
    assert re.fullmatch(r"plan: 1 of 6 runs, about .* left; wards, k-means, run 0: \d[\d.]*", progress[0])
    assert progress[-1].startswith(
        "plan: 6 of 6 runs, about 0.0 s left; wards, own, dwf, 2 clients per round, run 1: "
    )
    assert len(Store(STORE).keys()) == 6

    outcome = run("study run plan.toml")
    assert outcome.out == f"\nNothing to do: all 6 are in '{STORE}'.\n"
    assert outcome.err == "Two wards: 6 runs, 6 done before\n"

    outcome = run("study run plan.toml --runs 3 --n-jobs 1")
    assert outcome.err.startswith("Two wards: 9 runs, 6 done before\n")
    assert "3 runs done" in outcome.out


def test_only_some_are_run(run, plan):
    assert "1 run done" in run("study run plan.toml --runs 1 --only algorithm=k-means --n-jobs 1").out
    assert "1 run done" in run("study run plan.toml --runs 1 --only algorithm=dwf --clients 2 --n-jobs 1").out
    kept = {(facts["algorithm"], facts["clients_per_round"]) for facts in Store(STORE).facts().values()}
    assert kept == {("k-means", None), ("dwf", 2)}
    line = "study run plan.toml --only algorithm=dwf --only data=wards --clients 1,2 --n-jobs 1"
    assert "3 runs done" in run(line).out


def test_quiet_says_nothing(run, plan):
    outcome = run("study run plan.toml --quiet --n-jobs 1 --store elsewhere")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert len(Store("elsewhere").keys()) == 6
    assert not Path("fedkmeans-studies").exists()


def test_status_counts(run, plan):
    def counted():
        outcome = run("study status plan.toml")
        assert (outcome.code, outcome.err) == (0, "")
        return outcome.out

    assert f"Two wards: 0 of 6 runs done, in '{STORE}'" in counted()
    assert not Path("fedkmeans-studies").exists()
    run("study run plan.toml --runs 1 --n-jobs 1")
    text = counted()
    assert "3 of 6 runs done" in text
    assert re.search(r"^wards +– +k-means +1 +2$", text, re.MULTILINE)
    assert re.search(r"^wards +own +dwf +2 +4$", text, re.MULTILINE)
    run("study run plan.toml --runs 3 --n-jobs 1")
    assert "6 of 6 runs done" in counted()  # more than the plan says do not count


def test_names_cannot_steer_the_terminal(run, plan):
    plan.write_text(
        PLAN.replace("Two wards", "\\u001b[31mred").replace('name = "wards"', 'name = "\\u009bx"')
    )
    for line in ("run plan.toml --n-jobs 1", "status plan.toml"):
        outcome = run(f"study {line}")
        assert outcome.code == 0
        assert all(letter.isprintable() or letter == "\n" for letter in outcome.out + outcome.err)


# --- what cannot be ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--only dwf", "only 'dwf': say one of data, distribution, algorithm, as algorithm=dwf,ewf"),
        ("--only algorithm=ewf", "the plan has no algorithm 'ewf'; it has k-means, dwf"),
        ("--only data=", "the plan has no data ''; it has wards"),
        ("--clients 3", "3 clients per round are not in the plan; it has 1, 2"),
        ("--clients 1,many", "--clients must be numbers, as 5,10,100; got '1,many'"),
        ("--runs 0", "runs must be a whole number of at least 1, got 0"),
        ("--runs x", "Invalid value for '--runs'"),
        ("--n-jobs 0", "--n-jobs must be at least 1, or -1 for one a core; got 0"),
    ],
)
def test_options_that_cannot_be(refused, plan, options, words):
    assert words in refused(f"study run plan.toml {options}")


@pytest.mark.parametrize("command", COMMANDS)
def test_plans_that_cannot_be(refused, here, command):
    line = f"study {command} plan.toml" + (" --out runs.csv" if command == "export" else "")
    assert refused(line) == "Error: cannot read plan 'plan.toml': No such file or directory; check the path"
    Path("plan.toml").write_text("runs = ")
    assert "'plan.toml' is not TOML" in refused(line)
    Path("plan.toml").write_text(PLAN.replace("runs = 2", "n_clients = 0"))
    # As it stands in the plan: it is no option.
    assert "plan 'plan.toml': n_clients must be a whole number of at least 1, got 0." in refused(line)
    Path("plan.toml").write_text(PLAN.replace("max_rounds = 5", "learning_rate = 2"))
    assert "plan.toml': [[algorithm]] number 2: learning_rate must be a number in (0, 1]" in refused(line)


@pytest.mark.parametrize("command", ["table", "figure", "report", "export --out runs.csv"])
def test_nothing_has_been_run(refused, plan, command):
    assert refused(f"study {command} plan.toml") == (
        f"Error: there are no finished runs of 'plan' in '{STORE}'; run the study first"
    )


def test_files_that_are_missing(refused, plan):
    Path("south.csv").unlink()
    line = refused("study run plan.toml --quiet")
    assert "south.csv" in line
    assert "does not exist; check the path" in line


def test_more_clusters_than_rows(refused, plan):
    plan.write_text(PLAN.replace("k = 2", "k = 61"))
    assert "wards has 60 rows, too few for k = 61 clusters; lower k" in refused("study run plan.toml --quiet")


def test_more_clients_than_files(refused, plan):
    plan.write_text(PLAN.replace("[1, 2]", "[1, 3]"))
    assert "wards comes with 2 clients, but 3 are to be asked" in refused("study run plan.toml --quiet")


def test_rows_that_have_changed(run, refused, plan):
    run("study run plan.toml --runs 1 --n-jobs 1")
    write_client("south.csv", 7)
    line = refused("study run plan.toml --quiet")
    assert "the rows of wards are not those that the finished runs had" in line
    assert "--store" in line
    assert "6 runs done" in run("study run plan.toml --store new --n-jobs 1").out


def test_a_store_that_is_none(refused, plan):
    Path("store").mkdir()
    Path("store/runs.sqlite").write_text("hello, hello, hello")
    for command in ("run", "status", "table"):
        assert "file is not a database; see whether it is" in refused(
            f"study {command} plan.toml --store store"
        )


def test_an_error_in_a_run_is_one_line(run, plan):
    plan.write_text(
        PLAN.replace("k = 2", 'k = 2\ndistributions = ["iid"]').replace("runs = 2", "n_clients = 99")
    )
    outcome = run("study run plan.toml --n-jobs 1")
    assert outcome.code == 2
    assert outcome.out == ""
    errors = [line for line in outcome.err.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert errors[0].startswith(
        "Error: wards, iid, dwf, 1 clients per round, run 0: n_clients must lie between 1"
    )
    assert len(Store(STORE).keys()) == 1  # the pooled one, which needs no clients


def test_notes_of_runs_are_told_once(run, plan):
    plan.write_text(PLAN.replace("k = 2", "k = 50"))
    outcome = run("study run plan.toml --quiet --n-jobs 1")
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err.startswith("Note: 4 runs gave a warning, the first: Too few centroids came ")
    assert outcome.err.count("\n") == 1
    notes = [facts.get("notes", []) for facts in Store(STORE).facts().values()]
    assert [len(note) for note in notes].count(1) == 4


def test_ctrl_c_says_what_is_kept(run, plan, monkeypatch):
    import fedkmeans.study.run as workers

    measure, started = workers.measure, []

    def interrupted(*arguments):
        started.append(arguments)
        if len(started) == 3:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(workers, "measure", interrupted)
    outcome = run("study run plan.toml --quiet --n-jobs 1")
    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err == ("Interrupted: 2 of 6 runs are done and kept; the same command continues them.\n")
    assert len(Store(STORE).keys()) == 2


def test_debug_raises_instead(run, here):
    with pytest.raises(StudyError):
        run("--debug study run absent.toml")


# --- what comes of it --------------------------------------------------------------------------


def test_all_that_can_be_shown(run, plan):
    pytest.importorskip("plotly")
    assert run("study run plan.toml --quiet --n-jobs 1").code == 0
    text = run("study table plan.toml").out
    assert re.search(r"k-means +2 +\d", text)
    assert "DWF k-means" in text
    assert (
        run("study table plan.toml --format csv --out table.csv").out.strip()
        == "The table is in 'table.csv'."
    )
    assert run("study export plan.toml --out runs.csv").out.strip() == "6 runs written to 'runs.csv'."
    assert len(Path("runs.csv").read_text().splitlines()) == 7
    assert run("study figure plan.toml --metric score --out figure.png").code == 0
    assert Path("figure.png").read_bytes().startswith(b"\x89PNG")
    outcome = run("study report plan.toml")
    assert outcome.out.strip() == f"The page is '{STORE}/report.html'; open it in a browser."
    assert "Two wards" in Path(STORE, "report.html").read_text(encoding="utf-8")


def blocks_of_the_documentation(language):
    text = (ROOT / "docs" / "how-to" / "studies.md").read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [block for kind, block in found if kind == language]


def test_the_example_gives_the_table_of_the_documentation(run, here):
    shutil.copytree(ROOT / "examples" / "own-study", here / "own-study")
    assert run("study run own-study/own.toml --quiet --n-jobs 1").code == 0
    (table,) = [block for block in blocks_of_the_documentation("") if "this study" in block]
    found = run("study table own-study/own.toml").out

    def words_and_numbers(text):
        parts = re.split(r"(\d+\.\d+)", text.strip())
        return "".join(parts[::2]), [float(part) for part in parts[1::2]]

    words, numbers = words_and_numbers(table)
    assert words_and_numbers(found)[0] == words
    assert words_and_numbers(found)[1] == pytest.approx(numbers, abs=2e-3)


def test_the_three_lines_of_the_documentation_read_the_records(run, plan):
    run("study run plan.toml --quiet --n-jobs 1")
    (code,) = [block for block in blocks_of_the_documentation("python") if "sqlite" in block]
    names: dict[str, object] = {}
    exec(code.replace("fedkmeans-studies/own", STORE), names)
    frame = names["runs"]
    assert sorted(frame["run"]) == [0, 0, 0, 1, 1, 1]
    assert sorted(frame["score"]) == sorted(facts["score"] for facts in Store(STORE).facts().values())


def test_the_commands_of_the_documentation_are_there(run, here):
    """Those on the example are typed as they stand, those on clusters are not."""
    shutil.copytree(ROOT / "examples" / "own-study", here, dirs_exist_ok=True)
    lines = [line for block in blocks_of_the_documentation("") for line in block.splitlines()]
    typed = [line for line in lines if line.startswith("fedkmeans study") and " own.toml" in line]
    assert len(typed) >= 8
    for line in typed:
        if "--scheduler" not in line and "report" not in line:
            runs = " --runs 1 --n-jobs 1" if " run " in line else ""
            outcome = run(line.removeprefix("fedkmeans ") + runs)
            assert outcome.code == 0, (line, outcome.err)
    assert Path("own.tex").exists()
    assert Path("own.pdf").exists()


def test_the_python_of_the_documentation(here, monkeypatch):
    (code,) = [block for block in blocks_of_the_documentation("python") if "parallel_config" in block]
    shutil.copytree(ROOT / "examples", here / "examples")
    exec(code.replace("n_jobs=2", "n_jobs=1"), {})
    assert len(Store("fedkmeans-studies/own").keys()) == 10
