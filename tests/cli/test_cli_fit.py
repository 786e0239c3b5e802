import numpy as np
import pytest

from fedkmeans import InProcess
from fedkmeans.model import Model
from fedkmeans.registry import make

from .conftest import write_client

ALGORITHMS = ("last-word", "forgetting", "dwf", "ewf", "wf", "kfed", "kfed-published", "fkm", "k-means")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_fits_and_saves(run, clients, algorithm):
    outcome = run(f"fit north.csv south.csv -k 2 --seed 1 --algorithm {algorithm}")
    assert outcome.code == 0, outcome.err
    model = Model.load("model")
    assert model.card["algorithm"] == algorithm
    assert model.card["seed"] == 1
    assert model.feature_names == ("age", "weight")
    assert model.card["data"]["clients"] == [
        {"name": "north", "n_samples": 30},
        {"name": "south", "n_samples": 30},
    ]
    for fact in ("clients", "rows", "stopped because", "score per sample", "cluster sizes", "'model'"):
        assert fact in outcome.out
    assert "30, 30" in outcome.out
    assert ("pools" in outcome.err) == (algorithm == "k-means")
    assert ("to the clients, " in outcome.out) == (algorithm != "k-means")


def test_the_same_seed_gives_the_same_bits(run, clients):
    for out in ("a", "b"):
        run(f"fit north.csv south.csv -k 3 --seed 7 --init client_random --max-rounds 40 --out {out}")
    assert Model.load("a").centroids.tobytes() == Model.load("b").centroids.tobytes()
    run("fit north.csv south.csv -k 3 --seed 8 --init client_random --max-rounds 40 --out c")
    assert Model.load("a").centroids.tobytes() != Model.load("c").centroids.tobytes()


def test_without_a_seed_the_seed_that_was_drawn_is_told(run, clients):
    outcome = run("fit north.csv south.csv -k 2 --max-rounds 20")
    seed = Model.load("model").card["seed"]
    assert f"seed              {seed}" in outcome.out


def test_all_options_reach_the_estimator(run, clients):
    outcome = run(
        "fit north.csv south.csv -k 2 --algorithm wf --weighting by_size --clients-per-round 1 --max-local 3 "
        "--learning-rate 0.5 --momentum 0.1 --init k-means++ --n-init 2 --empty-clusters relocate --tol 1e-5 "
        "--tol-local 1e-6 --patience none --min-rounds 3 --max-rounds 9 --score-every 2 --n-jobs 2 --seed 4 "
        "--participation turns --kernel numpy --init-clients 1 --init-rows ALL"
    )
    assert outcome.code == 0, outcome.err
    assert Model.load("model").card["result"]["kernel"] == "numpy"
    assert Model.load("model").card["parameters"] == {
        "n_clusters": 2,
        "weighting": "by_size",
        "clients_per_round": 1,
        "participation": "turns",
        "max_local": 3,
        "learning_rate": 0.5,
        "momentum": 0.1,
        "memory": None,
        "look_ahead": 0.0,
        "init": "k-means++",
        "init_clients": 1,
        "init_rows": "all",
        "n_init": 2,
        "empty_clusters": "relocate",
        "tol": 1e-5,
        "tol_local": 1e-6,
        "tol_score": 0.0,
        "patience": None,
        "min_rounds": 3,
        "max_rounds": 9,
        "score_every": 2,
        "random_state": 4,
        "n_jobs": 2,
        "kernel": "numpy",
    }


@pytest.mark.parametrize("algorithm", ["last-word", "forgetting", "dwf", "ewf"])
def test_without_options_it_is_the_algorithm_of_the_catalogue(run, clients, algorithm):
    name = "" if algorithm == "last-word" else f"--algorithm {algorithm}"  # the default
    assert run(f"fit north.csv south.csv -k 2 --seed 0 -q {name}").code == 0
    model = Model.load("model")
    assert model.card["algorithm"] == algorithm
    assert model.card["parameters"] == make(algorithm, n_clusters=2, random_state=0).get_params()


@pytest.mark.parametrize(
    ("given", "meant"),
    [("--memory Server", "server"), ("--memory client", "client"), ("-a forgetting --memory 0.9", 0.9)],
)
def test_memory_and_its_options(run, clients, given, meant):
    options = "--participation random --clients-per-round 1 --tol-score 0.01"
    outcome = run(f"fit north.csv south.csv -k 2 --seed 0 {given} {options}")
    assert outcome.code == 0, outcome.err
    card = Model.load("model").card
    parameters = card["parameters"]
    assert (parameters["memory"], parameters["participation"]) == (meant, "random")
    assert parameters["tol_score"] == 0.01
    assert "score " in outcome.err  # the server's own estimate, round by round


def test_the_size_of_the_start_is_a_number_or_a_name(run, clients):
    line = "fit north.csv south.csv -k 2 --seed 0 -q"
    assert run(f"{line} --init-rows 20 --init-clients auto --look-ahead 0.5").code == 0
    parameters = Model.load("model").card["parameters"]
    assert [parameters[name] for name in ("init_rows", "init_clients", "look_ahead")] == [20, "auto", 0.5]
    refused = run(f"{line} --init-rows some -o other")
    assert refused.code == 2
    assert "--init-rows must be a whole number of at least 1, 'auto' or 'all'; got 'some'" in refused.err
    assert "--init-clients cannot be set for 'kfed'" in run(f"{line} -a kfed --init-clients 2 -o other").err


@pytest.mark.parametrize(("given", "n_threads"), [("", -1), ("--n-jobs 1", 1)])
def test_all_cores_are_used_unless_told_otherwise(run, clients, monkeypatch, given, n_threads):
    made = []
    federation = InProcess.__init__
    monkeypatch.setattr(InProcess, "__init__", lambda *args: made.append(args[2]) or federation(*args))
    assert run(f"fit north.csv south.csv -k 2 --seed 0 -q {given}").code == 0
    assert made == [n_threads]


def test_memory_at_the_server_and_at_the_clients_give_the_same_model(run, clients):
    for memory in ("server", "client"):
        line = f"fit north.csv south.csv -k 3 --seed 0 --clients-per-round 1 --memory {memory} -o {memory} -q"
        assert run(line).code == 0
    np.testing.assert_allclose(Model.load("server").centroids, Model.load("client").centroids, rtol=1e-12)


def test_a_run_whose_score_has_settled_says_so_and_what_was_sent(run, clients):
    outcome = run("fit north.csv south.csv -k 2 --seed 0 --tol 0")
    assert "stopped because   the score has settled (--tol-score)" in outcome.out
    history = Model.load("model").card["history"]
    sent, received = (sum(history[name]) for name in ("bytes_sent", "bytes_received"))
    assert 1000 < sent < received < 1e6
    said = f"sent in rounds    {sent / 1000:.1f} kB to the clients, {received / 1000:.1f} kB back"
    assert said in outcome.out
    assert said in run("inspect model").out


def test_options_of_k_fed(run, clients):
    line = "fit north.csv south.csv -k 3 -a kfed --n-local-clusters 3 --n-init-local 2 --max-iter 7"
    assert run(line).code == 0
    parameters = Model.load("model").card["parameters"]
    assert [parameters[key] for key in ("n_local_clusters", "n_init_local", "max_iter")] == [3, 2, 7]


def test_options_of_fkm(run, clients):
    line = "fit north.csv south.csv -k 3 -a fkm --server-init k-means++ --tol 0 --max-rounds 4 --seed 0"
    assert run(line).code == 0
    card = Model.load("model").card
    assert (card["parameters"]["server_init"], card["result"]["n_rounds"]) == ("k-means++", 4)
    refused = run("fit north.csv -k 3 -a kfed --server-init previous -o other")
    assert "--server-init cannot be set for 'kfed'" in refused.err


def test_a_folder_a_client_column_and_one_file_for_the_model(run, here):
    (here / "data").mkdir()
    owner = ["ann", "bob", "eve"] * 10
    write_client("data/all.csv", 0, hospital=owner, sick=["yes", "no"] * 15)
    line = "fit data -k 2 --client-column hospital --label sick --max-rounds 20 -o m.safetensors"
    assert run(line).code == 0
    model = Model.load("m.safetensors")
    assert [client["name"] for client in model.card["data"]["clients"]] == ["ann", "bob", "eve"]
    assert model.feature_names == ("age", "weight")


def test_columns_are_chosen_and_dropped(run, here):
    for i, name in enumerate(("a.csv", "b.csv")):
        write_client(name, i, names=("p", "q", "r", "s"))
    assert run("fit a.csv b.csv -k 2 --columns s,q --max-rounds 5 -o one").code == 0
    assert run("fit a.csv b.csv -k 2 --drop p --drop r --max-rounds 5 -o two").code == 0
    assert Model.load("one").feature_names == ("s", "q")
    assert Model.load("two").feature_names == ("q", "s")


def test_rows_with_missing_values_are_left_out_with_a_note(run, here):
    write_client("a.csv", 0, age=["?", *range(29)])
    outcome = run("fit a.csv -k 2 --missing drop-rows --max-rounds 5")
    assert outcome.code == 0
    assert "Note: 1 of 30 rows has a missing value and is left out." in outcome.err
    assert Model.load("model").card["data"]["n_samples"] == 29


def test_a_built_in_data_set_is_dealt_out(run):
    outcome = run("fit --dataset synthetic --distribution half-iid --n-clients 7 -k 5 --max-rounds 5")
    assert outcome.code == 0, outcome.err
    assert len(Model.load("model").card["data"]["clients"]) == 7
    assert run("fit --dataset synthetic -k 5 -a kfed --force").code == 0
    assert len(Model.load("model").card["data"]["clients"]) == 10


@pytest.mark.parametrize("way", ["start.npy", "start.csv", "earlier"])
def test_a_start_from_given_centroids(run, clients, way):
    start = np.array([[0.5, 1.0], [9.0, 8.0]])
    np.save("start.npy", start)
    with open("start.csv", "w") as file:  # noqa: PTH123
        file.write("weight,age\n1.0,0.5\n8.0,9.0\n")  # another order, told by the names
    run("fit north.csv south.csv -k 2 --init start.npy --max-rounds 1 --learning-rate 1e-12 -o earlier -q")
    line = f"fit north.csv south.csv -k 2 --init {way} --max-rounds 1 --learning-rate 1e-12"
    assert run(line).code == 0
    assert np.allclose(Model.load("model").centroids, start)


def test_quiet_writes_nothing(run, clients):
    outcome = run("fit north.csv south.csv -k 2 --max-rounds 5 --quiet")
    assert (outcome.out, outcome.err) == ("", "")


def test_progress_is_plain_lines_outside_a_terminal(run, clients):
    line = "fit north.csv south.csv -k 2 --tol 0 --tol-score 0 --max-rounds 100 --seed 0"
    outcome = run(line)
    lines = [text for text in outcome.err.splitlines() if "round" in text]
    assert "round 1 of at most 100, score " in lines[0]
    assert ", movement " in lines[0]
    assert len(lines) == 2  # the first round and the last, as all of them take less than a second
    assert "round 100 of at most 100" in lines[-1]
    assert "\x1b" not in outcome.err + outcome.out
    assert "\r" not in outcome.err + outcome.out


def test_very_different_scales_are_noted_once(run, here):
    rng = np.random.default_rng(0)
    for name in ("a.csv", "b.csv"):
        write_client(name, len(name), income=(rng.normal(size=30) * 1e5).tolist())
        rng.normal()
    outcome = run("fit a.csv b.csv -k 2 --max-rounds 5")
    assert outcome.code == 0
    assert outcome.err.count("Note: columns differ much in scale (standard deviation of 'income'") == 1


def test_constant_columns_and_small_clients_work(run, here):
    write_client("a.csv", 0, constant=[3] * 30)
    write_client("tiny.csv", 1, n=2, constant=[3] * 2)
    outcome = run("fit a.csv tiny.csv -k 4 --max-rounds 10")
    assert outcome.code == 0, outcome.err
    assert np.allclose(Model.load("model").centroids[:, 2], 3)
    assert "scale" not in outcome.err


@pytest.mark.parametrize("out", ["model", "model.safetensors"])
def test_an_older_model_is_replaced_only_when_forced(run, refused, clients, out):
    assert run(f"fit north.csv south.csv -k 2 --max-rounds 5 --out {out}").code == 0
    line = f"fit north.csv south.csv -k 3 --max-rounds 5 --out {out}"
    assert f"'{out}' holds a model; choose another --out, or replace it with --force" in refused(line)
    assert len(Model.load(out).centroids) == 2
    assert run(f"{line} --force").code == 0
    assert len(Model.load(out).centroids) == 3


def test_python_warnings_become_notes(run, clients, monkeypatch):
    import warnings

    from fedkmeans.errors import FedKMeansWarning, Setting
    from fedkmeans.estimators import KFed

    def fit(self, federation, on_round=None):
        for _ in range(3):
            # as if the package said so
            warnings.warn(FedKMeansWarning("mind the gap: ", Setting("n_clusters", 3)), stacklevel=2)
            warnings.warn("old ways", DeprecationWarning, stacklevel=2)
            warnings.warn("overflow encountered", RuntimeWarning, stacklevel=2)
            warnings.warn("not ours", stacklevel=1)
        raise KeyboardInterrupt

    monkeypatch.setattr(KFed, "fit_federation", fit)
    outcome = run("fit north.csv south.csv -k 2 -a kfed")
    assert outcome.err.count("Note: mind the gap: -k 3\n") == 1
    assert outcome.err.count("Note") == 1
