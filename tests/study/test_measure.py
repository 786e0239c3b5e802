"""One run: the same whenever and wherever it is done, and what it says is what a fit by hand says."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import fedkmeans.study.rows as study_rows
from fedkmeans import InProcess
from fedkmeans._utils.seeding import derive_seed, generator
from fedkmeans.client.site import SitePolicy
from fedkmeans.data import load_digits, partition
from fedkmeans.errors import StudyError
from fedkmeans.metrics import external_metrics, score_per_sample
from fedkmeans.registry import make
from fedkmeans.study import Store, Task, load_plan, measure, run_study, tasks_of

pytestmark = pytest.mark.slow

PLAN = """
seed = 11
runs = 2
n_clients = 10
clients_per_round = [4, 10]

[[data]]
name = "digits"
k = 10
distributions = ["iid", "non-iid"]

[[algorithm]]
name = "k-means"

[[algorithm]]
name = "dwf"
max_rounds = 25
kernel = "numpy"

[[algorithm]]
name = "three"
algorithm = "dwf"
max_rounds = 25
n_init = 3
kernel = "numpy"

[[algorithm]]
name = "kfed"
kernel = "numpy"

[[algorithm]]
name = "fkm"
max_rounds = 3
kernel = "numpy"
"""
DWF = Task("digits", "non-iid", "dwf", 4, 1)
METRICS = {"accuracy", "v_measure", "homogeneity", "completeness", "adjusted_rand"}


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    return load_plan(tmp_path / "plan.toml")


@pytest.fixture
def cache(tmp_path):
    folder = tmp_path / "clients"
    folder.mkdir()
    return folder


@pytest.fixture
def wards(tmp_path):
    """A plan for two files, with the labels or without."""
    rng = np.random.default_rng(0)
    for name, n in (("a", 40), ("b", 25)):
        x, kind = rng.normal(size=n) + 8 * (np.arange(n) % 2), np.array(["ill", "well"])[np.arange(n) % 2]
        lines = [f"{value:.6f},{kind_}" for value, kind_ in zip(x, kind, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,kind", *lines]) + "\n")

    def load(how):
        (tmp_path / "wards.toml").write_text(
            'runs = 1\nclients_per_round = 2\n[[data]]\nname = "wards"\nfiles = ["a.csv", "b.csv"]\n'
            f'k = 2\n{how}\n[[algorithm]]\nname = "last-word"\nkernel = "numpy"\n'
        )
        return load_plan(tmp_path / "wards.toml")

    return load


def lasting(facts):
    """What does not depend on how busy the machine is."""
    return {key: value for key, value in facts.items() if key not in ("seconds", "finished")}


def fit_by_hand(name="dwf", rule="non-iid", n=4, run=1, min_cluster_size=2, watch=None, **parameters):
    """The same run without the package's study; returns the estimator."""
    data, seed = load_digits(), 11
    clients = partition(rule, data.X, data.y, 10, generator(seed, "deal", rule, run))
    model = make(
        name,
        n_clusters=10,
        clients_per_round=n,
        random_state=derive_seed(seed, "run", run),
        kernel="numpy",
        **parameters,
    )
    policy = SitePolicy(min_cluster_size=min_cluster_size)
    return model.fit_federation(InProcess.from_arrays(data.X, clients, policy=policy), watch)


# --- the same always and everywhere ------------------------------------------------------------


def test_a_run_is_a_function_of_plan_and_task(plan, cache):
    one, other = measure(plan, DWF), measure(plan, DWF, cache)
    assert one.key == other.key
    assert lasting(one.facts) == lasting(other.facts)
    assert json.loads(json.dumps(one.facts)) == one.facts  # as it will be kept
    assert lasting(measure(plan, replace(DWF, run=0)).facts) != lasting(one.facts)


def test_it_is_the_same_in_another_process(plan):
    code = (
        "import json, sys\nfrom fedkmeans.study import *\n"
        "print(json.dumps(measure(load_plan(sys.argv[1]), Task(*json.loads(sys.argv[2]))).facts))"
    )
    task = [DWF.data, DWF.distribution, DWF.algorithm, DWF.clients_per_round, DWF.run]
    words = [sys.executable, "-c", code, str(plan.folder / "plan.toml"), json.dumps(task)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert lasting(json.loads(done.stdout)) == lasting(measure(plan, DWF).facts)


def test_it_is_the_same_on_two_cores(plan, tmp_path):
    tasks = [task for task in tasks_of(plan) if task.distribution != "iid" and task.algorithm != "fkm"]
    tasks = [task for task in tasks if task.clients_per_round != 10]
    store = Store(tmp_path / "store")
    assert run_study(plan, tasks, store, n_jobs=2) == len(tasks)
    kept = store.facts()
    assert len(kept) == len(tasks)
    for task in tasks:
        alone = measure(plan, task)
        assert lasting(kept[alone.key]) == lasting(alone.facts)
        if task.run == 0:
            np.testing.assert_array_equal(store.centroids()[alone.key], alone.centroids.astype(np.float32))


# --- what it says ------------------------------------------------------------------------------


def test_the_score_is_that_of_a_fit_by_hand(plan):
    facts = measure(plan, DWF).facts
    model, data = fit_by_hand(max_rounds=25), load_digits()
    assert facts["score"] == score_per_sample(data.X, model.cluster_centers_)
    assert facts["score"] == pytest.approx(model.score_per_sample_)
    assert (facts["rounds"], facts["stop_reason"]) == (model.n_iter_, model.stop_reason_)
    expected = external_metrics(data.y, model.predict(data.X))
    assert {name: facts[name] for name in expected} == expected


def test_a_record_says_what_was_run(plan):
    facts = measure(plan, DWF).facts
    assert [facts[name] for name in ("data", "distribution", "algorithm", "clients_per_round", "run")] == [
        "digits",
        "non-iid",
        "dwf",
        4,
        1,
    ]
    assert facts["seed"] == derive_seed(11, "run", 1)
    assert facts["parameters"] == {"max_rounds": "25", "kernel": "numpy"}
    assert facts["rows"].startswith("1797x64-")
    assert {"python", "fedkmeans", "numpy"} <= set(facts["versions"])
    assert facts["seconds"] > 0
    assert facts["finished"].endswith("+00:00")


def test_pooled_rows_are_nobodys(plan):
    record = measure(plan, Task("digits", None, "k-means", None, 0))
    model = make("k-means", n_clusters=10, random_state=derive_seed(11, "run", 0)).fit(load_digits().X)
    assert record.facts["score"] == score_per_sample(load_digits().X, model.cluster_centers_)
    assert (record.facts["distribution"], record.facts["clients_per_round"]) == (None, None)
    assert "curve" not in record.facts


def test_the_smallest_cluster_that_sites_tell_of_matters(plan):
    scores = {size: measure(replace(plan, min_cluster_size=size), DWF).facts["score"] for size in (2, 40)}
    assert scores[2] != scores[40]
    by_hand = fit_by_hand(max_rounds=25, min_cluster_size=40)
    assert scores[40] == score_per_sample(load_digits().X, by_hand.cluster_centers_)


def test_metrics_need_labels(wards):
    with_labels = measure(wards('label = "kind"'), Task("wards", "own", "last-word", 2, 0)).facts
    without = measure(wards('drop = ["kind"]'), Task("wards", "own", "last-word", 2, 0)).facts
    assert set(with_labels) >= METRICS
    assert METRICS & set(without) == set()
    assert with_labels["score"] == without["score"]
    assert with_labels["accuracy"] == 1.0
    assert with_labels["rows"] != without["rows"]  # the labels belong to them


# --- curves and centroids ----------------------------------------------------------------------


@pytest.mark.parametrize(("algorithm", "n_init", "best"), [("dwf", 1, 0), ("three", 3, 1)])
def test_a_curve_goes_from_the_start_to_the_end(plan, algorithm, n_init, best):
    starts = {}

    def watch(state, info):
        starts.setdefault(info.restart, state.previous)

    facts = measure(plan, replace(DWF, algorithm=algorithm, run=2)).facts
    model, X = fit_by_hand(run=2, max_rounds=25, n_init=n_init, watch=watch), load_digits().X
    assert (len(starts), model.best_restart_) == (n_init, best)
    curve = {int(round_): score for round_, score in facts["curve"].items()}
    assert curve[0] == score_per_sample(X, starts[best])
    assert list(curve) == sorted(curve)
    assert 15 < max(curve) <= facts["rounds"]
    assert curve[max(curve)] == pytest.approx(facts["score"], rel=0.02)
    assert abs(curve[0] - facts["score"]) > abs(curve[max(curve)] - facts["score"])
    assert set(facts["movement"]) == set(facts["curve"]) - {"0"}


def test_the_first_runs_keep_more(plan):
    first, second = (measure(plan, replace(DWF, run=run)) for run in (0, 1))
    assert first.centroids.shape == (10, 64)
    assert second.centroids is None
    kept = [
        run
        for run in (0, plan.curves - 1, plan.curves)
        if "curve" in measure(plan, replace(DWF, run=run)).facts
    ]
    assert kept == [0, plan.curves - 1]


def test_a_single_exchange_moves_from_nowhere(plan):
    facts = measure(plan, replace(DWF, algorithm="kfed")).facts
    assert facts["movement"] == {}
    assert "NaN" not in json.dumps(facts)  # which is no JSON


# --- clients -----------------------------------------------------------------------------------


@pytest.fixture
def dealt(monkeypatch):
    """Who was given which rows, each time that rows were dealt out."""
    found = []

    def deal(*arguments, **options):
        found.append(partition(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(study_rows, "partition", deal)
    return found


def test_all_algorithms_of_a_run_find_the_same_clients(plan, cache, dealt, monkeypatch):
    seen = []
    from_arrays = InProcess.from_arrays
    monkeypatch.setattr(
        InProcess,
        "from_arrays",
        lambda X, clients, **rest: seen.append(clients) or from_arrays(X, clients, **rest),
    )
    for algorithm in ("dwf", "kfed", "fkm"):
        for n in (4, 10):
            measure(plan, Task("digits", "iid", algorithm, n, 0), cache)
    assert len(dealt) == 1  # dealt out once, and kept
    assert len(seen) == 6
    for clients in seen:
        np.testing.assert_array_equal(clients, dealt[0])
    measure(plan, Task("digits", "iid", "dwf", 4, 1), cache)
    assert len(dealt) == 2
    assert not np.array_equal(dealt[0], dealt[1])
    assert len(list(cache.iterdir())) == 2


def test_a_worker_without_the_folder_deals_out_by_itself(plan, tmp_path, dealt):
    absent = tmp_path / "absent"
    assert lasting(measure(plan, DWF, absent).facts) == lasting(measure(plan, DWF).facts)
    assert len(dealt) == 2
    assert not absent.exists()


def kept_as(array):
    return lambda path: np.save(path, array)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(path.read_bytes()[:40]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("client\n1\n"),
        lambda path: np.savez(path.with_suffix(".npz"), a=[1]) or path.with_suffix(".npz").rename(path),
        kept_as(np.zeros(5, dtype=np.int32)),
        kept_as(np.full(1797, 10, dtype=np.int32)),
        kept_as(np.full(1797, -1, dtype=np.int32)),
        kept_as(np.zeros(1797)),
        kept_as(np.array([[1]])),
    ],
    ids=[
        "cut",
        "cut short",
        "empty",
        "text",
        "archive",
        "too few",
        "too many",
        "negative",
        "halves",
        "table",
    ],
)
def test_damaged_clients_are_dealt_out_again(plan, cache, dealt, damage):
    data = plan.data[0]
    rows = study_rows.load_rows(data, plan.folder)

    def clients():
        return study_rows.clients_of(plan, data, rows, data.distributions[0], 0, cache)

    before = clients()
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    damage(path)
    assert path.read_bytes() != whole
    np.testing.assert_array_equal(clients(), before)
    assert len(dealt) == 2
    assert path.read_bytes() == whole
    np.testing.assert_array_equal(clients(), before)
    assert len(dealt) == 2


def test_files_that_have_changed_are_read_again(wards, tmp_path):
    plan, task = wards('label = "kind"'), Task("wards", "own", "last-word", 2, 0)
    before = measure(plan, task).facts
    text = (tmp_path / "a.csv").read_text()
    for changed in (text.replace("ill", "well", 1), text + "100,ill\n"):
        (tmp_path / "a.csv").write_text(changed)
        assert measure(plan, task).facts["rows"] != before["rows"]
    (tmp_path / "a.csv").write_text(text)
    assert measure(plan, task).facts["rows"] == before["rows"]


# --- errors ------------------------------------------------------------------------------------


def test_errors_name_the_run(plan, wards, tmp_path):
    few = replace(plan, data=(replace(plan.data[0], k=5000),))
    with pytest.raises(StudyError, match=r"^digits, non-iid, dwf, 4 clients per round, run 1: .*5000"):
        measure(few, DWF)
    own = replace(plan.data[0], distributions=wards("").data[0].distributions)
    with pytest.raises(
        StudyError, match="run 0: digits does not come divided among clients; say distributions"
    ):
        measure(replace(plan, data=(own,)), Task("digits", "own", "dwf", 4, 0))
    (tmp_path / "b.csv").unlink()
    with pytest.raises(StudyError, match=r"^wards, own, last-word, 2 clients per round, run 0: .*b\.csv"):
        measure(wards('label = "kind"'), Task("wards", "own", "last-word", 2, 0))


def test_labels_that_are_needed(wards):
    plan = wards('drop = ["kind"]\ndistributions = [{rule = "dirichlet", alpha = 1}]')
    plan = replace(plan, n_clients=3)
    with pytest.raises(StudyError, match=r"run 0: partitioner 'dirichlet' deals rows out by their labels"):
        measure(plan, Task("wards", "dirichlet (alpha = 1)", "last-word", 2, 0))


def test_mistakes_in_a_rule_keep_their_kind_and_name_the_run(plan, tmp_path):
    (tmp_path / "rules.py").write_text("def broken(local):\n    return 1 / 0\n")
    (tmp_path / "own.toml").write_text(
        'n_clients = 4\n[[data]]\nname = "digits"\nk = 3\ndistributions = ["iid"]\n'
        '[[algorithm]]\nname = "mine"\nalgorithm = "wf"\nweighting = "rules.py:broken"\n'
    )
    with pytest.raises(ZeroDivisionError) as caught:
        measure(load_plan(tmp_path / "own.toml"), Task("digits", "iid", "mine", 4, 2))
    assert caught.value.__notes__ == ["This was in the run digits, iid, mine, 4 clients per round, run 2."]
