"""Which runs a plan has, which are wanted, and what they are kept under."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fedkmeans.errors import ParameterError, StudyError
from fedkmeans.study import Task, key_of, load_plan, tasks_of, wanted
from fedkmeans.study.grid import find_kept

STUDIES = Path(__file__).parents[2] / "studies"
PLAN = """
seed = 5
runs = 3
n_clients = 20
clients_per_round = [5, 20]

[[data]]
name = "digits"
k = 10
distributions = ["iid", {rule = "dirichlet", alpha = 0.5}]

[[data]]
name = "wards"
files = ["a.csv", "b.csv"]
label = "kind"
k = 4

[[algorithm]]
name = "k-means"

[[algorithm]]
name = "dwf"
max_rounds = 50

[[algorithm]]
name = "mine"
algorithm = "wf"
weighting = "rules.py:capped"
"""
DEALT = Task("digits", "dirichlet (alpha = 0.5)", "dwf", 5, 1)
OWN = Task("wards", "own", "dwf", 5, 1)
POOLED = Task("digits", None, "k-means", None, 1)
MINE = Task("digits", "iid", "mine", 5, 1)


@pytest.fixture
def read(tmp_path):
    """Load the plan, with some of its text replaced."""
    (tmp_path / "rules.py").write_text("def capped(local):\n    return local.counts\n")

    def read_(*replaced):
        text = PLAN
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "plan.toml").write_text(text)
        return load_plan(tmp_path / "plan.toml")

    return read_


@pytest.fixture
def plan(read):
    return read()


# --- the runs ----------------------------------------------------------------------------------


def test_there_is_one_run_for_each_cell(plan):
    tasks = tasks_of(plan)
    pooled, federated, places, participations = 1, 2, 3, 2
    assert len(tasks) == plan.runs * (2 * pooled + federated * places * participations) == 42
    assert len(set(tasks)) == len(tasks)
    assert len(tasks_of(load_plan(STUDIES / "paper-mnist.toml"))) == 100 * (1 + 4 * 3 * 5)


def test_pooled_rows_are_clustered_once_a_run(plan):
    pooled = [task for task in tasks_of(plan) if task.algorithm == "k-means"]
    assert Counter((task.data, task.run) for task in pooled) == {
        (data, run): 1 for data in ("digits", "wards") for run in range(3)
    }
    assert {(task.distribution, task.clients_per_round) for task in pooled} == {(None, None)}


def test_the_first_run_of_everything_comes_first(plan):
    runs = [task.run for task in tasks_of(plan)]
    assert runs == sorted(runs)
    assert Counter(runs) == {0: 14, 1: 14, 2: 14}


def test_tasks_in_words(plan):
    assert str(DEALT) == "digits, dirichlet (alpha = 0.5), dwf, 5 clients per round, run 1"
    assert str(POOLED) == "digits, k-means, run 1"


# --- those that are wanted ---------------------------------------------------------------------


def test_only_some(plan):
    assert wanted(plan) == tasks_of(plan)
    assert {task.algorithm for task in wanted(plan, ["algorithm=dwf,mine"])} == {"dwf", "mine"}
    assert {task.data for task in wanted(plan, ["data=wards"])} == {"wards"}
    both = wanted(plan, ["data=wards", "algorithm=dwf"])
    assert [(task.run, task.clients_per_round) for task in both] == [
        (run, n) for run in range(3) for n in (5, 20)
    ]
    assert wanted(plan, ["algorithm=dwf", "algorithm=mine"]) == wanted(plan, ["algorithm=dwf,mine"])


def test_of_a_distribution_the_pooled_runs_belong_to_it(plan):
    found = wanted(plan, ["distribution=iid"])
    assert {task.distribution for task in found} == {None, "iid"}
    assert {task.distribution for task in wanted(plan, ["distribution=dirichlet (alpha = 0.5)"])} == {
        None,
        "dirichlet (alpha = 0.5)",
    }


def test_names_with_commas_can_be_chosen(read):
    plan = read(('name = "dwf"', 'name = "dwf, short"\nalgorithm = "dwf"'))
    assert {task.algorithm for task in wanted(plan, ["algorithm=dwf, short"])} == {"dwf, short"}


def test_more_and_fewer_runs(plan):
    assert wanted(plan, runs=1) == tasks_of(plan)[:14]
    assert wanted(plan, runs=5)[:42] == tasks_of(plan)
    assert len(wanted(plan, runs=5)) == 70


def test_some_clients_per_round(plan):
    found = wanted(plan, clients=[20])
    assert {task.clients_per_round for task in found} == {20, None}
    assert len(found) == 3 * (2 + 2 * 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"only": ["dwf"]}, "only 'dwf': say one of data, distribution, algorithm, as algorithm=dwf,ewf"),
        ({"only": ["run=3"]}, "say one of data, distribution, algorithm"),
        ({"only": ["algorithm="]}, "no algorithm ''; it has k-means, dwf, mine"),
        ({"only": ["algorithm=dwf,ewf"]}, "the plan has no algorithm 'ewf'; it has k-means, dwf, mine"),
        ({"only": ["data=mnist"]}, "no data 'mnist'; it has digits, wards"),
        ({"only": ["distribution=non-iid"]}, "no distribution 'non-iid'; it has iid, dirichlet"),
        ({"clients": [7]}, "7 clients per round are not in the plan; it has 5, 20"),
    ],
)
def test_what_is_not_in_the_plan_is_refused(plan, options, words):
    with pytest.raises(StudyError, match=re.escape(words)):
        wanted(plan, **options)


@pytest.mark.parametrize("runs", [0, -1, True, 1.5])
def test_numbers_of_runs_that_cannot_be(plan, runs):
    with pytest.raises(ParameterError, match="runs must be a whole number"):
        wanted(plan, runs=runs)


# --- keys --------------------------------------------------------------------------------------


def test_the_keys_of_the_papers_study_stay_as_they_are():
    """Days of computing are kept under these keys: whoever changes them throws the records away."""
    plan = load_plan(STUDIES / "paper-mnist.toml")
    assert key_of(plan, Task("mnist", "iid", "dwf", 100, 0)) == "c7c1561be370b215812d68516c2272fe"
    assert key_of(plan, Task("mnist", None, "k-means", None, 3)) == "388ea07923ff9a64c567bd9cf55c6360"


@pytest.mark.parametrize("name", ["quick", "paper-femnist", "paper-mnist-10-clients"])
def test_keys_are_unique(name):
    plan = load_plan(STUDIES / f"{name}.toml")
    tasks = wanted(plan, runs=3)
    assert len({key_of(plan, task) for task in tasks}) == len(tasks)


def test_keys_are_the_same_in_another_process(plan):
    code = (
        "import sys; from fedkmeans.study import *; plan = load_plan(sys.argv[1])\n"
        "print([key_of(plan, task) for task in tasks_of(plan)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, plan.folder / "plan.toml"],
        cwd="/",
        env=os.environ | {"PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str([key_of(plan, task) for task in tasks_of(plan)])


@pytest.mark.parametrize(
    "replaced",
    [
        ("seed = 5", 'seed = 5\ntitle = "Another"\nname = "another"'),
        ("runs = 3", "runs = 300"),
        ("clients_per_round = [5, 20]", "clients_per_round = [20, 1, 5]"),
        ('distributions = ["iid", ', 'distributions = ["half-iid", "iid", '),
        ('name = "digits"', 'name = "digits"\ntitle = "Digits"'),
        ('[[algorithm]]\nname = "k-means"', '[[algorithm]]\nname = "ewf"\n\n[[algorithm]]\nname = "k-means"'),
        ("max_rounds = 50", 'max_rounds = 50\ntitle = "DWF"'),
    ],
    ids=[
        "title",
        "runs",
        "other clients per round",
        "other distributions",
        "data title",
        "algorithms",
        "DWF",
    ],
)
def test_what_else_is_in_the_plan_changes_no_key(plan, read, replaced):
    tasks = [DEALT, OWN, POOLED, MINE]
    before = [key_of(plan, task) for task in tasks]
    assert [key_of(read(replaced), task) for task in tasks] == before


@pytest.mark.parametrize(
    ("replaced", "changed"),
    [
        (("seed = 5", "seed = 6"), {DEALT, OWN, POOLED, MINE}),
        (("k = 10", "k = 11"), {DEALT, POOLED, MINE}),
        (("k = 4", "k = 5"), {OWN}),
        (("n_clients = 20", "n_clients = 21"), {DEALT, MINE}),
        (("n_clients = 20", "n_clients = 20\nmin_cluster_size = 1"), {DEALT, OWN, MINE}),
        (("max_rounds = 50", "max_rounds = 51"), {DEALT, OWN}),
        (("max_rounds = 50", "max_rounds = 50\ntol = 0.0"), {DEALT, OWN}),
        (('name = "dwf"', 'name = "dwf"\nalgorithm = "ewf"'), {DEALT, OWN}),
        (('name = "digits"', 'name = "digits"\nload = "synthetic"'), {DEALT, POOLED, MINE}),
        (('"a.csv", ', ""), {OWN}),
        (('label = "kind"', 'label = "other"'), {OWN}),
        (('label = "kind"', 'label = "kind"\ndrop = ["id"]'), {OWN}),
        (("alpha = 0.5", 'alpha = 0.6, name = "dirichlet (alpha = 0.5)"'), {DEALT}),
        (('"iid"', '{rule = "non-iid", name = "iid"}'), {MINE}),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_all_that_the_outcome_follows_from_changes_the_key(plan, read, replaced, changed):
    tasks = [DEALT, OWN, POOLED, MINE]
    before = {task: key_of(plan, task) for task in tasks}
    after = read(replaced)
    assert {task for task in tasks if key_of(after, task) != before[task]} == changed


def test_a_runs_place_changes_the_key(plan):
    run_1 = [DEALT, OWN, POOLED, MINE]
    others = [Task(t.data, t.distribution, t.algorithm, t.clients_per_round, 2) for t in run_1]
    others += [Task(t.data, t.distribution, t.algorithm, 20, 1) for t in run_1 if t is not POOLED]
    keys = {key_of(plan, task) for task in run_1 + others}
    assert len(keys) == len(run_1) + len(others)


def test_another_rule_changes_the_key(plan, read, tmp_path):
    before = {task: key_of(plan, task) for task in (DEALT, MINE)}
    (tmp_path / "rules.py").write_text("def capped(local):\n    return local.counts * 1.0\n")
    assert {task for task in before if key_of(plan, task) != before[task]} == {MINE}
    (tmp_path / "rules.py").write_bytes(
        b"# coding: latin-1\n# gr\xf6\xdfe\ndef capped(local):\n    return 1\n"
    )
    assert len({key_of(read(), MINE), *before.values()}) == 3


def test_records_are_found_under_whatever_name(plan, read):
    kept = {key_of(plan, task): {"run": task.run} for task in tasks_of(plan)}
    kept["of another plan"] = {"run": 4}
    assert list(find_kept(plan, kept)) == tasks_of(plan)
    renamed = read(('name = "dwf"', 'name = "dynamic"\nalgorithm = "dwf"'))
    assert list(find_kept(renamed, kept)) == tasks_of(renamed)
    fewer = read(("runs = 3", "runs = 1"))
    assert list(find_kept(fewer, kept)) == tasks_of(plan)
    other = read(("seed = 5", "seed = 6"))
    assert find_kept(other, kept) == {}
