"""What comes after a fit: predict, evaluate and inspect; and partition before it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from fedkmeans.data import read_clients, read_table
from fedkmeans.model import Model
from fedkmeans.registry import make

from .conftest import write_client


def rows_of(path):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


# --- predict -----------------------------------------------------------------------------------


def test_labels_stand_beside_the_rows(run, model):
    assert run(f"predict {model} north.csv --out labels.csv").code == 0
    rows = rows_of("labels.csv")
    expected = Model.load(model).predict(read_table("north.csv").X)
    assert [int(row["cluster"]) for row in rows] == expected.tolist()
    assert [row["age"] for row in rows] == [row["age"] for row in rows_of("north.csv")]


def test_several_files_make_a_folder(run, model):
    assert run(f"predict {model} north.csv south.csv --out labelled --column group").code == 0
    assert sorted(p.name for p in Path("labelled").iterdir()) == ["north.csv", "south.csv"]
    assert "group" in rows_of("labelled/south.csv")[0]
    Path("one").mkdir()
    write_client("one/new.txt", 3)
    assert run(f"predict {model} one --out labelled2").code == 0
    assert [p.name for p in Path("labelled2").iterdir()] == ["new.csv"]


def test_columns_are_found_by_name(run, model):
    write_client("new.csv", 5, n=4, names=("x", "weight", "age"), city=["Ulm"] * 4)
    outcome = run(f"predict {model} new.csv --out labels.parquet")
    assert outcome.code == 0
    assert "Note: columns that the model does not use are ignored: 'x', 'city'." in outcome.err
    X = read_table("new.csv", columns=("age", "weight")).X
    found = read_table("labels.parquet", columns=("cluster",)).X[:, 0]
    assert (found == Model.load(model).predict(X)).all()


def test_a_file_without_names_is_taken_by_position(run, model):
    X = np.array([[0.0, 0.0], [10.0, 10.0]])
    np.save("new.npy", X)
    assert run(f"predict {model} new.npy --out labels.npy").code == 0
    assert (np.load("labels.npy") == Model.load(model).predict(X)).all()


def test_a_model_without_names_finds_the_columns_of_files_without_names(run, here):
    X = np.random.default_rng(0).normal(size=(20, 2))
    estimator = make("kfed", n_clusters=2, random_state=0).fit(X)
    clients = [{"name": "all", "n_samples": 20}]
    Model.from_estimator(estimator, algorithm="kfed", clients=clients).save("model")
    write_client("new.csv", 0, names=("x1", "label", "x0"))
    assert run("predict model new.csv --out labels.csv").code == 0
    found = [int(row["cluster"]) for row in rows_of("labels.csv")]
    assert found == estimator.predict(read_table("new.csv", columns=("x0", "x1")).X).tolist()


def test_rows_with_missing_values_get_no_label(run, refused, model):
    write_client("new.csv", 5, n=4, age=[1, "?", 3, 4])
    line = f"predict {model} new.csv --out labels.csv"
    assert "'age' (1)" in refused(line)
    assert run(f"{line} --missing drop-rows").code == 0
    assert [row["cluster"] == "" for row in rows_of("labels.csv")] == [False, True, False, False]


def test_predict_refuses(run, refused, model):
    write_client("new.csv", 5, names=("age", "mass"))
    message = refused(f"predict {model} new.csv --out labels.csv")
    assert "'new.csv' lacks column(s) 'weight'" in message
    assert "'mass'" in message
    assert "exists" in refused(f"predict {model} north.csv --out south.csv")
    assert "--force" in refused(f"predict {model} north.csv --out south.csv")
    assert "is the input" in refused(f"predict {model} north.csv --out north.csv --force")
    assert "not an existing folder" in refused(f"predict {model} north.csv --out absent/x.csv")
    assert "not an existing folder" in refused(f"predict {model} north.csv --out north.csv/x.csv")
    assert "not empty" in refused(f"predict {model} north.csv south.csv --out {model}")
    assert ".parquet" in refused(f"predict {model} north.csv --out labels.xyz")
    assert "already has a column 'age'" in refused(f"predict {model} north.csv --out x.csv --column age")
    assert "does not exist" in refused("predict nowhere north.csv --out x.csv")
    np.save("new.npy", np.zeros((3, 5)))
    assert "lacks column(s)" in refused(f"predict {model} new.npy --out x.csv")
    assert run(f"predict {model} north.csv --out south.csv --force").code == 0


# --- evaluate ----------------------------------------------------------------------------------


def test_evaluate(run, model):
    outcome = run(f"evaluate {model} north.csv south.csv --json")
    found = json.loads(outcome.out)
    card = Model.load(model).card
    assert found["score_per_sample"] == pytest.approx(card["result"]["score_per_sample"])
    assert found["score_per_client"] == pytest.approx(card["result"]["score_per_client"])
    assert [client["name"] for client in found["clients"]] == ["north", "south"]
    assert found["cluster_sizes"] == [30, 30]
    assert "metrics" not in found
    text = run(f"evaluate {model} north.csv south.csv").out
    for word in ("score per sample", "score per client", "north", "south", "30, 30"):
        assert word in text


@pytest.mark.parametrize("labels", [["even", "odd"] * 10, [0, 1] * 10, [0.5, 1.5] * 10])
def test_evaluate_with_labels(run, model, labels):
    write_client("new.csv", 5, n=20, truth=labels)
    outcome = run(f"evaluate {model} new.csv --label truth --json")
    assert outcome.err == ""
    assert set(json.loads(outcome.out)["metrics"].values()) == {1.0}
    text = run(f"evaluate {model} new.csv --label truth").out
    for word in ("accuracy", "v-measure", "homogeneity", "completeness", "adjusted Rand index"):
        assert word in text


def test_evaluate_by_client_column(run, refused, model):
    write_client("new.csv", 5, n=20, ward=["a", "b"] * 10)
    found = json.loads(run(f"evaluate {model} new.csv --client-column ward --json").out)
    assert [client["n_samples"] for client in found["clients"]] == [10, 10]
    assert "'wrad'" in refused(f"evaluate {model} new.csv --client-column wrad")
    assert "'truth'" in refused(f"evaluate {model} new.csv --label truth")


# --- partition ---------------------------------------------------------------------------------

WAYS = ("iid", "half_iid", "clustered", "non-iid", "label_mix --p 0.5", "dirichlet --alpha 0.5")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_partition_and_fit(run, here, way, suffix):
    write_client("all.csv", 0, n=40, truth=["even", "odd"] * 20)
    line = f"partition all.csv --how {way} --n-clients 4 --label truth --out parts --format {suffix}"
    outcome = run(line)
    assert outcome.code == 0, outcome.err
    assert sorted(p.name for p in Path("parts").iterdir()) == [f"client-{i}.{suffix}" for i in range(4)]
    tables = read_clients("parts", label="y" if suffix == "npz" else "truth")
    together = np.concatenate([table.X for table in tables])
    original = read_table("all.csv", label="truth").X
    assert sorted(map(tuple, together)) == sorted(map(tuple, original))
    assert sum((table.labels == "odd").sum() for table in tables) == 20


def test_partition_by_column_makes_safe_file_names(run, here):
    write_client("all.csv", 0, n=6, ward=["a/b", "a/b", "../up", "..", "ü ber", "x"])
    assert run("partition all.csv --how by-column --column ward --out parts").code == 0
    assert sorted(p.name for p in Path("parts").iterdir()) == [
        "_.csv",
        "_up.csv",
        "a_b.csv",
        "x.csv",
        "ü_ber.csv",
    ]
    assert "ward" not in rows_of("parts/x.csv")[0]


def test_partition_is_a_function_of_its_seed(run):
    for out, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(f"partition --dataset digits --how iid --n-clients 3 --seed {seed} --out {out}")
    first, same, other = (Path(out, "client-0.csv").read_bytes() for out in "abc")
    assert first == same != other


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--how nonsense --n-clients 2", "--how must be one of"),
        ("--how iid", "--n-clients N"),
        ("--how iid --n-clients 0", "--n-clients must"),
        ("--how iid --n-clients 100", "--n-clients must"),
        ("--how iid --n-clients 2 --p 0.5", "--how iid takes no --p; leave it out"),
        ("--how iid --n-clients 2 --column age", "by-column"),
        ("--how iid --n-clients 2 --seed -1", "seed must"),
        ("--how iid --n-clients 2 --format xlsx", "--format must be one of"),
        ("--how label-mix --n-clients 2 --p 0.5", "--label"),
        ("--how by-column", "--column NAME"),
        ("--how by-column --column ward", "'ward'"),
        ("--how by-column --column age --n-clients 2", "leave out --n-clients"),
        ("--how iid --n-clients 2 --dataset digits", "either a data file or a built-in"),
    ],
)
def test_partition_refuses(refused, clients, options, words):
    assert words in refused(f"partition north.csv --out parts {options}")


def test_partition_spares_what_is_there(refused, clients):
    Path("parts").mkdir()
    Path("parts/mine.txt").write_text("")
    assert "not empty" in refused("partition north.csv --how iid --n-clients 2 --out parts")
    assert "a folder is needed" in refused("partition north.csv --how iid --n-clients 2 --out south.csv")


# --- inspect -----------------------------------------------------------------------------------


def test_inspect_a_model(run, model):
    text = run(f"inspect {model}").out
    for word in ("last-word", "2 × 2", "age", "seed", "centroid 1", "movement", "to the clients"):
        assert word in text
    found = json.loads(run(f"inspect {model} --json").out)
    assert found["centroids"] == Model.load(model).centroids.tolist()
    assert len(found["history"]["round"]) == found["result"]["n_rounds"]


def test_inspect_a_model_from_before_bytes_were_counted(run, model):
    rounds = Path(model, "history.csv")
    names = ("restart", "round", "movement", "participants", "asked", "score", "score_per_client")
    lines = [",".join(names), *(",".join(row[name] for name in names) for row in rows_of(rounds))]
    rounds.write_text("\n".join(lines) + "\n")
    outcome = run(f"inspect {model}")
    assert outcome.code == 0, outcome.err
    assert "movement" in outcome.out
    assert "sent in rounds" not in outcome.out
    assert run("fit north.csv -k 2 --init model -q -o next").code == 0


def test_inspect_data(run, clients):
    write_client("odd.csv", 2, city=["Ulm"] * 30, age=["?", *range(29)])
    outcome = run("inspect odd.csv")
    assert outcome.code == 0
    for word in ("age", "weight", "city", "string", "fit would refuse it", "--drop city"):
        assert word in outcome.out
    found = json.loads(run("inspect odd.csv --json").out)
    age = next(column for column in found["columns"] if column["name"] == "age")
    assert (age["n_missing"], age["minimum"], age["mean"], age["maximum"]) == (1, 0, 14, 28)
    assert found["fit"]["works"] is False
    Path("odd.csv").unlink()
    found = json.loads(run("inspect . --json").out)
    assert [file["n_rows"] for file in found["files"]] == [30, 30]
    assert found["columns"][0]["n_rows"] == 60
    assert found["fit"]["works"] is True
    assert "fit can use it: 2 clients, 60 rows, 2 columns" in run("inspect .").out


def test_inspect_writes_valid_json_whatever_the_values(run, here):
    np.save("odd.npy", np.array([[np.inf, 1.0], [0.0, np.nan]]))
    found = json.loads(run("inspect odd.npy --json").out, parse_constant=pytest.fail)
    assert found["columns"][0]["maximum"] is None


def test_inspect_wide_data_shows_only_so_much(run, here):
    np.save("wide.npy", np.zeros((3, 200)))
    assert "… and 170 more" in run("inspect wide.npy").out


def test_inspect_refuses(refused, here):
    Path("x.safetensors").write_bytes(b"rubbish")
    assert "x.safetensors" in refused("inspect x.safetensors")
    assert "does not exist" in refused("inspect absent")
    Path("empty").mkdir()
    assert "no data file" in refused("inspect empty")
