"""Scores beside those of a reference: in per cent above it, rounds until near it, after so many rounds."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedkmeans.errors import StudyError
from fedkmeans.study import Record, Store, Task, key_of, load_plan, parse_plan, run_study, tasks_of
from fedkmeans.study.figures import draw_curves
from fedkmeans.study.results import after_rounds, load_results, mean_curves
from fedkmeans.study.tables import render

ROOT = Path(__file__).parents[2]
TABLE = {
    "runs": 2,
    "n_clients": 10,
    "clients_per_round": [2, 10],
    "reference": "last-word",
    "within": 10,
    "data": [{"name": "digits", "k": 3, "distributions": ["iid", "non-iid"]}],
    "algorithm": [{"name": "k-means"}, {"name": "last-word", "tol_score": 0.0}, {"name": "dwf"}],
}


def make_plan(**changes):
    return parse_plan(TABLE | changes, "plan", Path())


def keep(plan, store, task, score, curve=None, rounds=40, stop_reason="tol"):
    facts = {"run": task.run, "score": score, "rounds": rounds, "stop_reason": stop_reason, "rows": "x"}
    store.add(Record(key_of(plan, task), facts | ({} if curve is None else {"curve": curve, "movement": {}})))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


@pytest.fixture
def plan():
    return make_plan()


def row(frame, task):
    here = (frame["algorithm"] == task.algorithm) & (frame["run"] == task.run)
    if task.distribution is not None:
        here &= frame["distribution"] == task.distribution
        here &= (frame["clients_per_round"] == task.clients_per_round).fillna(False)
    (found,) = frame[here].to_dict("records")
    return found


DWF = Task("digits", "iid", "dwf", 2, 0)
REFERENCE = Task("digits", "iid", "last-word", 10, 0)


def test_the_reference_is_the_same_run_with_the_most_clients(plan, store):
    for task, score in [
        (REFERENCE, 2.0),
        (replace(REFERENCE, clients_per_round=2), 3.0),
        (replace(REFERENCE, run=1), 4.0),
        (replace(REFERENCE, distribution="non-iid"), 5.0),
        (DWF, 2.5),
        (replace(DWF, distribution="non-iid"), 2.5),
        (replace(DWF, run=1), 5.0),
        (Task("digits", None, "k-means", None, 0), 2.0),
    ]:
        keep(plan, store, task, score)
    frame = load_results(plan, store)
    assert row(frame, DWF)["excess"] == pytest.approx(25)
    assert row(frame, replace(DWF, run=1))["excess"] == pytest.approx(25)
    assert row(frame, replace(DWF, distribution="non-iid"))["excess"] == pytest.approx(-50)
    assert row(frame, REFERENCE)["excess"] == 0
    assert row(frame, replace(REFERENCE, clients_per_round=2))["excess"] == pytest.approx(50)
    # Pooled runs have no distribution to compare in.
    assert math.isnan(row(frame, Task("digits", None, "k-means", None, 0))["excess"])


def test_a_pooled_reference_belongs_to_every_distribution(store):
    plan = make_plan(reference="k-means")
    keep(plan, store, Task("digits", None, "k-means", None, 0), 2.0)
    keep(plan, store, DWF, 3.0)
    keep(plan, store, replace(DWF, distribution="non-iid"), 4.0)
    frame = load_results(plan, store)
    assert frame.query("algorithm == 'dwf'")["excess"].tolist() == pytest.approx([50, 100])


@pytest.mark.parametrize(
    ("curve", "rounds"),
    [
        ({"0": 4.0, "1": 3.0, "20": 2.2, "40": 2.1}, 20),
        ({"0": 4.0, "10": 2.4, "20": 2.0}, 15),  # half of the way from 2.4 to 2.0
        ({"0": 2.1}, 0),
        ({"0": 4.0, "20": 3.0}, 39),  # the score at the end counts, too
        (None, math.nan),
    ],
)
def test_rounds_until_near_the_reference(plan, store, curve, rounds):
    keep(plan, store, REFERENCE, 2.0)
    keep(plan, store, DWF, 2.15, curve)
    found = row(load_results(plan, store), DWF)["rounds_to_within"]
    assert found == rounds or (math.isnan(rounds) and math.isnan(found))


def test_a_run_that_never_comes_near_has_no_number_of_rounds(plan, store):
    keep(plan, store, REFERENCE, 2.0)
    keep(plan, store, DWF, 2.3, {"0": 4.0})
    assert math.isnan(row(load_results(plan, store), DWF)["rounds_to_within"])


def test_runs_after_so_many_rounds(plan, store):
    keep(plan, store, REFERENCE, 2.0, {"0": 4.0, "10": 2.5}, rounds=12)
    keep(plan, store, DWF, 2.2, {"0": 4.0, "10": 3.0}, stop_reason="max_rounds")
    keep(plan, store, replace(DWF, run=1), 2.2)
    frame = load_results(plan, store)
    assert after_rounds(frame, 5)["score"].tolist() == [3.25, 3.5]
    assert after_rounds(frame, 5)["excess"].tolist() == pytest.approx([62.5, 75])
    # A run that has settled keeps its score; one that was cut off might have gone on.
    assert after_rounds(frame, 50)["score"].tolist() == [2.0]
    with pytest.raises(StudyError, match="no run has a curve; increase curves"):
        after_rounds(frame[frame["run"] == 1], 5)


def test_tables_and_curves_of_the_excess(plan, store):
    keep(plan, store, REFERENCE, 2.0, {"0": 4.0, "10": 2.5}, rounds=12)
    keep(plan, store, replace(DWF, clients_per_round=10), 3.0, {"0": 4.0, "10": 3.0})
    frame = load_results(plan, store)
    text = " ".join(render(plan, frame, "excess").split())
    assert "score above the reference (%) (less is better)" in text
    assert "Reference: Last-word k-means with 10 clients per round, the score of the same run." in text
    assert "DWF k-means 1 50.0000 50.0000" in text
    assert "DWF k-means 1 75.0000" in " ".join(render(plan, frame, "excess", rounds=5).split())
    assert "Near: at most 10 % above." in " ".join(render(plan, frame, "rounds_to_within").split())
    curves = mean_curves(plan, frame, metric="excess").query("algorithm == 'dwf'")
    assert curves["mean"].tolist() == [100, 50, 50]
    iid, _ = draw_curves(plan, frame, metric="excess").axes
    assert iid.get_yscale() == "symlog"


def test_without_a_reference_there_is_nothing_to_compare(store):
    plan = make_plan()
    without = parse_plan({key: value for key, value in TABLE.items() if key != "reference"}, "plan", Path())
    keep(plan, store, DWF, 2.0)
    for one in (without, plan):  # of the plan, the reference is not run
        with pytest.raises(StudyError, match="no run has the metric excess: the plan names no reference, or"):
            render(one, load_results(one, store), "excess")


def test_reference_and_curves_change_no_key(plan):
    other = make_plan(reference="k-means", within=1, curves=9)
    assert [key_of(other, task) for task in tasks_of(other)] == [
        key_of(plan, task) for task in tasks_of(plan)
    ]


@pytest.mark.slow
def test_a_finished_study_with_all_that_it_compares(store):
    """With all clients, last-word takes the steps of pooled Lloyd; turns of few come near."""
    rules = [
        {"name": "last-word", "tol_score": 0.0},
        {"name": "stopped", "algorithm": "last-word", "max_rounds": 3},
    ]
    plan = make_plan(algorithm=rules, runs=1, within=0.5)
    run_study(plan, tasks_of(plan), store)
    frame = load_results(plan, store)
    few = row(frame, replace(REFERENCE, clients_per_round=2))
    assert row(frame, REFERENCE)["excess"] == 0
    assert abs(few["excess"]) < 0.5
    assert 1 <= few["rounds_to_within"] <= few["rounds"]
    early = row(frame, Task("digits", "iid", "stopped", 2, 0))
    assert early["excess"] > few["excess"]
    again = after_rounds(frame, 3)
    assert row(again, replace(REFERENCE, clients_per_round=2))["score"] == pytest.approx(early["score"])


def test_the_plan_of_the_memory_study():
    plan = load_plan(ROOT / "studies/memory.toml")
    tasks = tasks_of(plan)
    assert len({key_of(plan, task) for task in tasks}) == len(tasks)
    # Nothing but the end of its movements ends a run early, except where that is the question.
    for one in plan.algorithms:
        ends = one.parameters.get("tol_score", 0.0 if "patience" in one.parameters else None)
        assert ends == 0.0 or one.name in ("last-word-default", "fkm")
    assert np.isclose(plan.within, 0.1)
