"""What is said besides the result: notes on columns, headers and clusters; and inspect before a fit."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedkmeans.model import Model

from .conftest import write_client


def notes(outcome):
    assert outcome.code == 0, outcome.err
    return [line for line in outcome.err.splitlines() if line.startswith("Note: ")]


@pytest.mark.parametrize("line", ["fit a.csv b.csv -k 2 --max-rounds 3 -q", "inspect ."])
def test_constant_columns(run, here, line):
    for i, name in enumerate(("a.csv", "b.csv")):
        write_client(
            name, i, p=[0.1] * 30, q=[7] * 30, own=[i] * 30
        )  # constant here and there is not constant
    assert notes(run(line)) == ["Note: columns 'p', 'q' are constant and say nothing about clusters."]


def test_one_constant_column(run, here):
    write_client("a.csv", 0, p=[0.1] * 30)
    assert notes(run("inspect a.csv")) == ["Note: column 'p' is constant and says nothing about clusters."]


def test_empty_clusters(run, here):
    Path("a.csv").write_text("x,y\n" + "1,2\n3,4\n" * 10)
    (note,) = [n for n in notes(run("fit a.csv -k 4 --init random --seed 0 -q")) if "no rows" in n]
    assert note.endswith(
        "of 4 clusters have no rows; fewer clusters, another --seed or --init k-means++ may do better."
    )
    (note,) = [n for n in notes(run("fit a.csv -k 3 -a k-means --seed 0 -q -o pooled")) if "no rows" in n]
    assert note == "Note: 1 of 3 clusters has no rows; fewer clusters or another --seed may do better."


# --- headers -----------------------------------------------------------------------------------


@pytest.fixture
def bare(here):
    """Files without a header; in years.csv the first line might be one."""
    for name in ("a", "b", "c", "d"):
        write_client(f"{name}.csv", ord(name))
        Path(f"{name}.csv").write_text(Path(f"{name}.csv").read_text().partition("\n")[2])
    Path("years.csv").write_text("2019,2020\n" + "1,2\n3,5\n" * 10)


def test_files_without_a_header_are_noted_once(run, bare):
    found = notes(run("fit a.csv -k 2 --max-rounds 3 -q -o one"))
    assert found == ["Note: 'a.csv' has no header line; its columns are called x0, x1, …"]
    (found,) = notes(run("fit a.csv b.csv c.csv d.csv -k 2 --max-rounds 3 -q -o two"))
    assert found == (
        "Note: 'a.csv', 'b.csv', 'c.csv' and 1 more have no header line; their columns are called x0, x1, …"
    )
    assert notes(run("inspect a.csv")) == [
        "Note: 'a.csv' has no header line; its columns are called x0, x1, …"
    ]
    assert notes(run("fit a.csv -k 2 --max-rounds 3 -q -o three --header no")) == []
    assert Model.load("three").feature_names == ("x0", "x1")


@pytest.mark.parametrize(("header", "n_rows", "name"), [("yes", 20, "2019"), ("no", 21, "x0")])
def test_whether_there_is_a_header_can_be_said(run, refused, bare, header, n_rows, name):
    assert "--header yes or --header no" in refused("fit years.csv -k 2")
    assert run(f"fit years.csv -k 2 --max-rounds 3 -q --header {header}").code == 0
    model = Model.load("model")
    assert (model.card["data"]["n_samples"], model.feature_names[0]) == (n_rows, name)
    found = json.loads(run(f"evaluate model years.csv --json --header {header}").out)
    assert found["n_samples"] == n_rows
    assert run(f"predict model years.csv --out labels.csv --header {header}").code == 0
    assert len(Path("labels.csv").read_text().splitlines()) == n_rows + 1
    found = json.loads(run(f"inspect years.csv --json --header {header}").out)
    assert (found["files"][0]["n_rows"], found["columns"][0]["name"]) == (n_rows, name)
    line = f"partition years.csv --how iid --n-clients 2 --out parts --header {header}"
    assert run(line).code == 0
    assert Path("parts/client-0.csv").read_text().splitlines()[0].strip('"').startswith(name)


# --- columns -----------------------------------------------------------------------------------


def test_columns_whose_names_have_commas(run, refused, here):
    pq.write_table(pa.table({"x,y": [0.0, 1, 5, 6], "b": [0.0, 1, 5, 6], "c": [1.0, 2, 3, 4]}), "a.parquet")
    line = ["fit", "a.parquet", "-k", "2", "--max-rounds", "3", "-q", "--force", "--columns"]
    for typed, names in (
        (["x,y"], ("x,y",)),
        (['"x,y",b'], ("x,y", "b")),
        (["x,y", "--columns", "c"], ("x,y", "c")),
        (["b,c"], ("b", "c")),
    ):
        assert run([*line, *typed]).code == 0
        assert Model.load("model").feature_names == names
    assert "no column 'x'" in refused([*line, "x,b"])
    assert run([*line[:-1], "--drop", "x,y"]).code == 0
    assert run("predict model a.parquet --out labels.parquet").code == 0


def test_columns_that_a_model_does_not_use(run, model):
    write_client("few.csv", 5, **{f"c{i}": [i] * 30 for i in range(5)})
    write_client("many.csv", 5, **{f"c{i}": [i] * 30 for i in range(6)})
    (note,) = notes(run(f"predict {model} few.csv --out few-labels.csv"))
    assert note == "Note: columns that the model does not use are ignored: 'c0', 'c1', 'c2', 'c3', 'c4'."
    (note,) = notes(run(f"predict {model} many.csv --out many-labels.csv"))
    assert note == "Note: 6 columns that the model does not use are ignored."
    (note,) = notes(run(f"evaluate {model} few.csv --label c0 --client-column c1"))
    assert "'c0'" not in note
    assert "'c1'" not in note


@pytest.mark.parametrize("command", ["predict model bad.csv --out labels.csv", "evaluate model bad.csv"])
def test_remedies_are_options_of_the_command(refused, model, command):
    write_client("bad.csv", 1, age=["?", *range(29)])
    first = refused(command)
    assert "--missing drop-rows" in first
    write_client("bad.csv", 1, age=["old"] * 30)
    for message in (first, refused(command)):
        assert "--drop " not in message
        assert "--columns" not in message
        assert "Python" not in message


# --- inspect -----------------------------------------------------------------------------------


def test_inspect_says_what_fit_will_be_told(run, refused, model):
    write_client("a.csv", 0, age=["?", *range(29)], city=["Ulm", "Bonn"] * 15, ward=["x", "y", "z"] * 10)
    outcome = run("inspect a.csv")
    assert outcome.code == 0
    assert "fit would refuse it: " in outcome.out
    options = "--label city --client-column ward --missing drop-rows --drop weight"
    outcome = run(f"inspect a.csv {options}")
    assert "fit can use it: 3 clients, 29 rows, 1 column to cluster" in outcome.out
    assert notes(outcome) == ["Note: 1 of 30 rows has a missing value and is left out."]
    assert "is a model, and the options are for data" in refused(f"inspect {model} --label age")


def test_inspect_tells_of_all_clients_that_are_refused(run, here):
    Path("d").mkdir()
    write_client("d/a.csv", 0, age=["?", *range(29)])
    write_client("d/b.csv", 1)
    write_client("d/c.csv", 2, weight=["heavy"] * 30)
    outcome = run("inspect d")
    assert outcome.code == 0
    told = [line for line in outcome.out.splitlines() if line.startswith("fit would refuse it: ")]
    assert [("'a'" in line, "'c'" in line) for line in told] == [(True, False), (False, True)]
    assert "Python" not in outcome.out
    found = json.loads(run("inspect d --json").out)["fit"]
    assert (found["works"], len(found["messages"])) == (False, 2)


def test_numbers_and_counts_are_written_alike(run, here):
    Path("a.csv").write_text("x,y\n" + "".join(f"{i},{i * 1000.5}\n" for i in range(1500)))
    text = run("inspect a.csv").out
    for word in ("1,500", "1 client, 1,500 rows, 2 columns", "749,875"):
        assert word in text
    outcome = run("fit a.csv -k 1 --max-rounds 3 --algorithm dwf")
    assert "DWF k-means, 1 cluster\n" in outcome.out
    assert "1 cluster, 1 client\n" in run("evaluate model a.csv").out
    assert "stopped after     3 rounds: no more rounds allowed (--max-rounds)" in run("inspect model").out
    assert "1,500 rows labelled" in run("predict model a.csv --out b.csv").out


def test_the_score_per_client_is_explained(run, model):
    assert "(mean of the scores below)" in run(f"evaluate {model} north.csv south.csv").out
    assert "Per client: the mean of the" in run("evaluate --help").out


def test_names_cannot_steer_the_terminal(run, here):
    write_client("a.csv", 0, ward=["\x1b[31mred", "b\x9b"] * 15)
    run("fit a.csv -k 2 --client-column ward --max-rounds 3 -q")
    for line in (
        "evaluate model a.csv --client-column ward",
        "evaluate model a.csv --client-column ward --json",
        "inspect model --json",
        "evaluate model a.csv --client-column \x1b[31m",
    ):
        outcome = run(line)
        text = outcome.out + outcome.err
        assert all(letter.isprintable() or letter == "\n" for letter in text), line
    assert "\\x1b[31mred" in run("evaluate model a.csv --client-column ward").out


# --- places ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["fit", "north.csv", "-k", "2", "--out", "x.csv"], "a model is a folder or NAME.safetensors"),
        (["fit", "north.csv", "-k", "2", "--out", ""], "--out needs a name"),
        (["fit", "north.csv", "-k", "2", "--out", "model/inner"], "is inside the model 'model'"),
        (["predict", "model", "north.csv", "--out", "model/x.csv"], "is inside the model 'model'"),
        (["predict", "model", "north.csv", "south.csv", "--out", "x.csv"], "name a folder"),
        (["partition", "north.csv", "--how", "iid", "--n-clients", "2", "--out", ""], "--out needs a name"),
        (["predict", "north.csv", "north.csv", "--out", "x.csv"], "'north.csv' is no model"),
    ],
)
def test_places_that_make_no_sense(refused, model, line, words):
    assert words in refused(line)


def test_a_model_without_its_card_is_told(refused, model):
    Path(model, "card.json").unlink()
    assert "card.json is missing" in refused(f"inspect {model}")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_full_disk_is_told_once(refused, model, monkeypatch, suffix):
    import errno

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")

    monkeypatch.setattr("fedkmeans.cli.partition._table", full)
    line = refused(f"partition north.csv --how iid --n-clients 2 --out parts --format {suffix}")
    assert line.startswith("Error: 'parts' cannot be written: No space left on device; ")
