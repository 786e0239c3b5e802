"""On a Dask cluster a study finds the very same records as in one process."""

import logging
import subprocess
import sys

import joblib
import numpy as np
import pytest

from fedkmeans.cli.study import _check_workers, _cluster
from fedkmeans.errors import StudyError
from fedkmeans.study import Store, load_plan, run_study, tasks_of

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")

PLAN = """
runs = 2
n_clients = 5
clients_per_round = [2]

[[data]]
name = "wards"
files = ["a.csv", "b.csv"]
distributions = ["iid"]
k = 2

[[algorithm]]
name = "k-means"

[[algorithm]]
name = "mine"
algorithm = "wf"
weighting = "rules.py:mine"
max_rounds = 10
kernel = "numpy"
"""
RULE = """
from pathlib import Path


def mine(local):
    exec(Path(__file__).with_name("what.txt").read_text())
    return local.counts
"""


@pytest.fixture(scope="module")
def cluster():
    # One lost worker is enough, so that the test of it is short.
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def on_dask(cluster):
    with distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        yield


@pytest.fixture
def plan(tmp_path):
    for seed, name in enumerate(("a.csv", "b.csv")):
        X = np.random.default_rng(seed).normal(size=(40, 2)) + 8 * (np.arange(40) % 2)[:, None]
        np.savetxt(tmp_path / name, X, delimiter=",", header="x,y", comments="")
    (tmp_path / "rules.py").write_text(RULE)
    (tmp_path / "what.txt").write_text("")
    (tmp_path / "plan.toml").write_text(PLAN)
    return load_plan(tmp_path / "plan.toml")


@pytest.fixture
def alone(plan, tmp_path):
    """The records of the study in this process."""
    run_study(plan, tasks_of(plan), Store(tmp_path / "alone"))
    return lasting(Store(tmp_path / "alone"))


def lasting(store):
    return {
        key: {name: value for name, value in facts.items() if name not in ("seconds", "finished")}
        for key, facts in store.facts().items()
    }


def test_the_records_are_those_of_one_process(plan, alone, tmp_path, on_dask):
    store, told = Store(tmp_path / "store"), []
    assert run_study(plan, tasks_of(plan)[:1], store) == 1
    assert run_study(plan, tasks_of(plan), store, report=told.append) == 3
    assert [(progress.done, progress.of) for progress in told] == [(2, 4), (3, 4), (4, 4)]
    assert lasting(store) == alone
    assert set(store.centroids()) == set(Store(tmp_path / "alone").centroids())
    assert len(list((tmp_path / "store" / "clients").iterdir())) == 2  # dealt out once a run


def test_the_command_does_the_same(plan, alone, tmp_path, cluster):
    """From a folder that is not the workers'."""
    words = [sys.executable, "-m", "fedkmeans", "study", "run", "plan.toml", "--store", "store"]
    words += ["--scheduler", cluster.scheduler_address]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "4 runs done" in done.stdout
    assert lasting(Store(tmp_path / "store")) == alone


def test_an_error_on_a_worker_names_the_run(plan, tmp_path, on_dask):
    store = Store(tmp_path / "store")
    (tmp_path / "what.txt").write_text("raise ZeroDivisionError('oops')")
    with pytest.raises(ZeroDivisionError, match="oops") as caught:
        run_study(plan, tasks_of(plan), store)
    assert "in the run wards, iid, mine, 2 clients per round, run " in caught.value.__notes__[0]
    (tmp_path / "what.txt").write_text("")
    run_study(plan, tasks_of(plan), store)
    assert len(store.keys()) == 4


def test_a_worker_that_is_lost_is_told(plan, tmp_path, on_dask):
    """Through joblib's own backend the study would wait for ever."""
    (tmp_path / "what.txt").write_text("import os; os._exit(3)")
    with pytest.raises(
        StudyError, match=r"mine, 2 clients per round, run \d: worker processes died, .* memory"
    ):
        run_study(plan, tasks_of(plan), Store(tmp_path / "store"))


# --- the way there -----------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("fedkmeans.cli.study._CLUSTER_S", 0.5)


def refusal(address: str) -> str:
    with pytest.raises(StudyError) as caught, _cluster(address):
        pass
    return str(caught.value)


@pytest.mark.parametrize(
    ("address", "words"), [("tcp://127.0.0.1:1", "Timed out"), ("foo://x:1", "unknown address scheme 'foo'")]
)
def test_a_scheduler_that_does_not_answer(impatient, address, words):
    message = refusal(address)
    assert message.startswith(f"no Dask scheduler answers at '{address}': {words}")
    assert message.endswith("; check the address")


def test_a_scheduler_without_workers(impatient):
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with distributed.LocalCluster(n_workers=0, **quiet) as cluster:
        assert "has no workers; start some: dask worker tcp://" in refusal(cluster.scheduler_address)


def test_dask_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert refusal("tcp://127.0.0.1:1") == "--scheduler needs Dask: pip install 'fedkmeans[dask]'"


class Versions:
    """A client whose only worker has other packages."""

    def __init__(self, **others):
        self.others = others

    def get_versions(self, packages):
        here = dict.fromkeys(["python", *packages], "1.0")
        return {"client": {"packages": here}, "workers": {"tcp://node7:1": {"packages": here | self.others}}}


def test_workers_need_the_same_versions():
    _check_workers(Versions(dask="2.0"))
    with pytest.raises(StudyError, match=r"worker tcp://node7:1 has fedkmeans not at all, and here is 1.0"):
        _check_workers(Versions(fedkmeans=None))
    with pytest.raises(StudyError, match=r"numpy 2\.0, and here is 1.0; install the same versions"):
        _check_workers(Versions(numpy="2.0"))
