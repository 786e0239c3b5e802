"""Running a study: only what is missing, kept as it comes, and stopped without loss."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import joblib
import numpy as np
import pytest

import fedkmeans.study.run as workers
from fedkmeans.errors import StudyError
from fedkmeans.study import Record, Store, Task, key_of, load_plan, run_study, tasks_of, wanted
from fedkmeans.study.results import load_results
from fedkmeans.study.run import Clock

pytestmark = pytest.mark.slow

PROGRAM = (sys.executable, "-m", "fedkmeans", "study", "run")
PLAN = """
seed = 2
runs = 2
clients_per_round = [1, 2]

[[data]]
name = "wards"
files = ["a.csv", "b.csv"]
label = "kind"
k = 2

[[algorithm]]
name = "k-means"

[[algorithm]]
name = "dwf"
max_rounds = 5
kernel = "numpy"
"""


def write_rows(path, seed, n=40):
    rng = np.random.default_rng(seed)
    lines = [f"{rng.normal() + 8 * (i % 2):.6f},{rng.normal():.6f},{i % 2}" for i in range(n)]
    path.write_text("\n".join(["x,y,kind", *lines]) + "\n")


@pytest.fixture
def plan(tmp_path):
    write_rows(tmp_path / "a.csv", 0)
    write_rows(tmp_path / "b.csv", 1, n=30)
    return reread(tmp_path)


def reread(folder, *replaced):
    text = PLAN
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    (folder / "plan.toml").write_text(text)
    return load_plan(folder / "plan.toml")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def measured(monkeypatch):
    """The tasks that are carried out, as they are."""
    found, measure = [], workers.measure

    def watched(plan, task, cache):
        found.append(task)
        return measure(plan, task, cache)

    monkeypatch.setattr(workers, "measure", watched)
    return found


def lasting(store):
    return {
        key: {name: value for name, value in facts.items() if name not in ("seconds", "finished")}
        for key, facts in store.facts().items()
    }


# --- only what is missing ----------------------------------------------------------------------


def test_all_runs_of_a_plan_are_kept(plan, store, measured):
    tasks = tasks_of(plan)
    assert run_study(plan, tasks, store) == len(tasks) == 6
    assert measured == tasks
    assert store.keys() == {key_of(plan, task) for task in tasks}


def test_what_is_done_is_not_done_again(plan, store, measured):
    tasks = tasks_of(plan)
    run_study(plan, tasks[1:3], store)
    assert run_study(plan, tasks, store) == 4
    assert measured == [tasks[1], tasks[2], tasks[0], *tasks[3:]]
    before = store.path.read_bytes()
    assert run_study(plan, tasks, store) == 0
    assert len(measured) == 6
    assert store.path.read_bytes() == before


def test_a_study_can_be_extended(plan, store, measured, tmp_path):
    run_study(plan, tasks_of(plan), store)
    del measured[:]
    assert run_study(plan, wanted(plan, runs=3), store) == 3
    assert {task.run for task in measured} == {2}
    longer = reread(tmp_path, ("runs = 2", "runs = 3"), ("max_rounds = 5", 'max_rounds = 5\ntitle = "D"'))
    assert run_study(longer, tasks_of(longer), store) == 0
    assert len(load_results(plan, store)) == 9  # also those beyond the plan


def test_a_change_that_matters_is_run_anew_beside_the_old(plan, store, tmp_path):
    run_study(plan, tasks_of(plan), store)
    other = reread(tmp_path, ("max_rounds = 5", "max_rounds = 6"))
    assert run_study(other, tasks_of(other), store) == 4  # pooled runs stay
    assert len(store.keys()) == 10
    assert len(load_results(plan, store)) == len(load_results(other, store)) == 6
    assert set(load_results(plan, store)["key"]) != set(load_results(other, store)["key"])


def test_new_names_for_old_things(plan, store, tmp_path):
    run_study(plan, tasks_of(plan), store)
    renamed = reread(
        tmp_path,
        ('name = "dwf"', 'name = "dynamic"\nalgorithm = "dwf"'),
        ('name = "wards"', 'name = "hospital"\ndistribution = "by ward"'),
    )
    assert run_study(renamed, tasks_of(renamed), store) == 0
    frame = load_results(renamed, store)
    assert len(frame) == 6
    assert set(frame["algorithm"]) == {"k-means", "dynamic"}
    assert set(frame["data"]) == {"hospital"}
    assert set(frame["distribution"].dropna()) == {"by ward"}
    old = load_results(plan, store)
    assert list(frame["score"]) == list(old["score"])


def test_two_stores_know_nothing_of_each_other(plan, store, tmp_path, measured):
    other = Store(tmp_path / "other")
    run_study(plan, tasks_of(plan), store)
    run_study(plan, tasks_of(plan)[:2], other)
    assert (len(store.keys()), len(other.keys()), len(measured)) == (6, 2, 8)
    assert lasting(other).items() <= lasting(store).items()


def test_a_task_given_twice_is_run_once(plan, store, measured):
    told = []
    assert run_study(plan, tasks_of(plan)[:2] * 2, store, report=told.append) == 2
    assert len(measured) == 2
    assert [(progress.done, progress.of) for progress in told] == [(1, 2), (2, 2)]


def test_nothing_to_do_makes_nothing(plan, store):
    assert run_study(plan, [], store) == 0
    assert not store.folder.exists()


# --- what must hold ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("kind\n", "kind\n99.5,0.25,1\n"),
        lambda text: text.replace("-", "", 1),
        lambda text: text.replace(",1\n", ",0\n", 1),
    ],
    ids=["a row more", "another number", "another label"],
)
def test_rows_that_have_changed_are_refused(plan, store, tmp_path, measured, change):
    run_study(plan, tasks_of(plan)[:1], store)
    text = (tmp_path / "a.csv").read_text()
    (tmp_path / "a.csv").write_text(change(text))
    assert (tmp_path / "a.csv").read_text() != text
    with pytest.raises(
        StudyError, match=r"rows of wards are not those .* bring the old rows back, or .*--store"
    ):
        run_study(plan, tasks_of(plan), store)
    assert run_study(plan, tasks_of(plan)[:1], store) == 0  # what is done is done
    run_study(plan, tasks_of(plan)[:1], Store(tmp_path / "other"))
    (tmp_path / "a.csv").write_text(text)
    assert run_study(plan, tasks_of(plan), store) == 5
    assert len(measured) == 7


def test_rows_that_have_moved_to_another_client_are_refused(plan, store, tmp_path):
    """The rows are the same and in the same order, but whose they are is not."""
    run_study(plan, tasks_of(plan)[:1], store)
    a, b = ((tmp_path / name).read_text().splitlines() for name in ("a.csv", "b.csv"))
    (tmp_path / "a.csv").write_text("\n".join(a[:-1]) + "\n")
    (tmp_path / "b.csv").write_text("\n".join([b[0], a[-1], *b[1:]]) + "\n")
    with pytest.raises(StudyError, match="the rows of wards are not those"):
        run_study(plan, tasks_of(plan), store)


def test_other_rows_by_another_plan_are_no_matter(plan, store, tmp_path):
    """Of the same name, but with other columns: other keys, so that nothing is mixed up."""
    run_study(plan, tasks_of(plan), store)
    other = reread(tmp_path, ('label = "kind"', 'label = "kind"\ncolumns = ["x"]'))
    assert run_study(other, tasks_of(other), store) == 6


def test_more_clients_than_there_are_is_told_before_anything_is_run(plan, store, tmp_path, measured):
    many = reread(tmp_path, ("[1, 2]", "[1, 3]"))
    with pytest.raises(
        StudyError,
        match=r"wards comes with 2 clients, but 3 are .* clients_per_round in the plan to 2 at most",
    ):
        run_study(many, tasks_of(many), store)
    assert measured == []
    assert not store.folder.exists()


def test_a_record_of_other_rows_is_not_kept(plan, store, monkeypatch):
    """As from a worker on another machine, whose files are others."""
    measure = workers.measure

    def elsewhere(plan, task, cache):
        record = measure(plan, task, cache)
        return record if task.run == 0 else replace(record, facts={**record.facts, "rows": "1x1-00000000"})

    monkeypatch.setattr(workers, "measure", elsewhere)
    with pytest.raises(StudyError, match=r"run 1: the rows that it had .*1x1-00000000 there.* the same data"):
        run_study(plan, tasks_of(plan), store)
    assert len(store.keys()) == 3


def test_a_rule_that_is_changed_meanwhile_is_noticed(plan, store, tmp_path):
    rule = tmp_path / "rules.py"
    rule.write_text("def mine(local):\n    return local.counts\n")
    mine = reread(tmp_path, ('name = "dwf"', 'name = "mine"\nalgorithm = "wf"\nweighting = "rules.py:mine"'))

    def change(progress):
        if progress.task.algorithm == "mine":
            rule.write_text("def mine(local):\n    return local.counts * 2.0\n")

    with pytest.raises(StudyError, match="its weighting rule was changed while the study ran; run it again"):
        run_study(mine, tasks_of(mine), store, report=change)
    assert len(store.keys()) == 2
    assert run_study(mine, tasks_of(mine), store) == 5  # all with the rule as it is now


def test_a_store_that_cannot_be(plan, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match=r"cannot make folder .*file.clients': .* --store"):
        run_study(plan, tasks_of(plan), Store(tmp_path / "file"))


# --- errors in a run ---------------------------------------------------------------------------


@pytest.fixture
def failing(plan, tmp_path):
    """A plan whose run 1 of the algorithm "mine" fails, as a file says that it shall."""
    (tmp_path / "rules.py").write_text(
        "from pathlib import Path\n\n\ndef mine(local):\n"
        "    exec(Path(__file__).with_name('what.txt').read_text())\n    return local.counts\n"
    )
    replaced = ('name = "dwf"', 'name = "mine"\nalgorithm = "wf"\nweighting = "rules.py:mine"')
    return reread(tmp_path, replaced)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_leaves_what_is_done_and_names_the_run(failing, store, tmp_path, n_jobs):
    what = tmp_path / "what.txt"
    what.write_text("")
    tasks = tasks_of(failing)
    assert run_study(failing, tasks[:3], store, n_jobs=n_jobs) == 3
    what.write_text("raise ZeroDivisionError('oops')")
    with pytest.raises(ZeroDivisionError, match="oops") as caught:
        run_study(failing, tasks, store, n_jobs=n_jobs)
    assert any("in the run wards, own, mine, " in note for note in caught.value.__notes__)
    assert store.keys() >= {key_of(failing, task) for task in tasks[:3]}
    what.write_text("")
    run_study(failing, tasks, store)
    assert store.keys() == {key_of(failing, task) for task in tasks}


def test_what_was_finished_before_the_error_is_kept(plan, store, monkeypatch):
    measure, tasks = workers.measure, tasks_of(plan)

    def fail_late(plan, task, cache):
        if task == tasks[4]:
            raise StudyError(f"{task}: nothing works")
        return measure(plan, task, cache)

    monkeypatch.setattr(workers, "measure", fail_late)
    with pytest.raises(StudyError, match="wards, own, dwf, 1 clients per round, run 1: nothing works"):
        run_study(plan, tasks, store)
    assert store.keys() == {key_of(plan, task) for task in tasks[:4]}


def test_workers_that_die_are_told(failing, store, tmp_path):
    (tmp_path / "what.txt").write_text("import os; os._exit(3)")
    with pytest.raises(StudyError, match=r"worker processes died, .* memory; finished runs are kept"):
        run_study(failing, tasks_of(failing), store, n_jobs=2)
    (tmp_path / "what.txt").write_text("")
    run_study(failing, tasks_of(failing), store)
    assert len(store.keys()) == 6


# --- what is told ------------------------------------------------------------------------------


def test_progress_is_told_after_each_run(plan, store):
    run_study(plan, tasks_of(plan)[:2], store)
    told = []
    run_study(plan, tasks_of(plan), store, report=lambda p: told.append((p, len(store.keys()))))
    assert [(p.done, p.of) for p, _ in told] == [(3, 6), (4, 6), (5, 6), (6, 6)]
    assert [n for _, n in told] == [3, 4, 5, 6]  # it is kept when it is told
    assert [p.task for p, _ in told] == tasks_of(plan)[2:]
    for progress, _ in told:
        assert store.facts()[progress.record.key] == progress.record.facts
    assert told[0][0].seconds_left > 0
    assert told[-1][0].seconds_left == 0


def test_seconds_left_are_those_of_runs_that_are_alike(plan, store, monkeypatch):
    seconds = {"k-means": 10.0, "dwf": 100.0}

    def at_once(plan, task, cache):
        facts = {"run": task.run, "rows": rows, "seconds": seconds[task.algorithm]}
        return Record(key_of(plan, task), facts)

    run_study(plan, tasks_of(plan)[:1], Store(store.folder / "x"))
    ((rows,),) = ({facts["rows"]} for facts in Store(store.folder / "x").facts().values())
    monkeypatch.setattr(workers, "measure", at_once)
    told = []
    run_study(plan, tasks_of(plan), store, report=lambda p: told.append(p.seconds_left))
    # Of DWF nothing is known after the first run, so that it is taken for what is known.
    assert told == [5 * 10, 10 + 3 * 100, 10 + 2 * 100, 2 * 100, 100, 0]


def test_the_clock_takes_what_is_most_alike():
    clock = Clock()
    dwf, ewf = Task("a", "iid", "dwf", 5, 0), Task("a", "iid", "ewf", 5, 0)
    assert clock.left([dwf], 1) == 0  # nothing is known
    clock.add(dwf, 10)
    assert clock.left([ewf], 1) == 10  # of the same data
    assert clock.left([Task("b", "iid", "dwf", 5, 0)], 1) == 10  # of anything
    clock.add(ewf, 2)
    clock.add(replace(dwf, run=1), 20)
    assert clock.left([replace(dwf, run=2)], 1) == 15
    assert clock.left([replace(ewf, run=2)], 1) == 2
    assert clock.left([replace(ewf, clients_per_round=50)], 1) == 2  # of the same algorithm
    assert clock.left([replace(ewf, distribution="non-iid")], 1) == 2
    assert clock.left([Task("a", None, "k-means", None, 0)], 1) == pytest.approx(32 / 3)
    assert clock.left([dwf, dwf, dwf, ewf], 2) == 47 / 2
    assert clock.left([dwf], 8) == 15  # one run is done by one worker
    assert clock.left([], 2) == 0


# --- other backends of joblib ------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["sequential", "threading", "multiprocessing"])
def test_any_backend_of_joblib_will_do(plan, store, tmp_path, backend):
    """Multiprocessing, as Ray, cannot tell of results one by one."""
    if backend == "multiprocessing" and sys.platform != "linux":
        pytest.skip("its workers are made by fork")
    told, tasks = [], wanted(plan, ["algorithm=dwf"])  # scikit-learn's threads do not survive a fork
    with joblib.parallel_config(backend=backend, n_jobs=2):
        assert run_study(plan, tasks, store, report=told.append) == 4
    assert [progress.done for progress in told] == [1, 2, 3, 4]
    alone = Store(tmp_path / "alone")
    run_study(plan, tasks, alone)
    assert lasting(store) == lasting(alone)


# --- Ctrl-C ------------------------------------------------------------------------------------

LONG = """
runs = 200
n_clients = 10
clients_per_round = [5]

[[data]]
name = "digits"
k = 10
distributions = ["iid"]

[[algorithm]]
name = "dwf"
max_rounds = 40
kernel = "numpy"
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise on Windows")
@pytest.mark.parametrize(
    ("name", "to_all", "n_jobs"), [("SIGINT", True, 2), ("SIGINT", False, 1), ("SIGTERM", False, 1)]
)
def test_ctrl_c_keeps_what_is_done(tmp_path, name, to_all, n_jobs):
    def heed_signals():
        # Tests that run in the background may have been told to ignore them, and children inherit that.
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_DFL)

    (tmp_path / "plan.toml").write_text(LONG)
    store = Store(tmp_path / "store")
    process = subprocess.Popen(
        [*PROGRAM, "plan.toml", "--store", "store", "--n-jobs", str(n_jobs)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_signals,
    )
    try:
        while len(store.keys()) < 2:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        if to_all:  # as a terminal does
            os.killpg(process.pid, getattr(signal, name))
        else:
            process.send_signal(getattr(signal, name))
        output, errors = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 128 + getattr(signal, name), errors
    assert output == ""
    assert "Traceback" not in errors
    n_kept = len(store.keys())
    last = errors.splitlines()[-1]
    assert last == f"Interrupted: {n_kept} of 200 runs are done and kept; the same command continues them."
    assert errors.count("Interrupted") == 1
    plan = load_plan(tmp_path / "plan.toml")
    assert store.keys() <= {key_of(plan, task) for task in tasks_of(plan)}
    assert 2 <= n_kept < 200
