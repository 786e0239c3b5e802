"""The study of memory: it resumes, it reports, and its accelerations do what they say."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from benchmarks.memory_study import acceleration, tables
from benchmarks.memory_study.cases import prepare
from benchmarks.memory_study.grid import ALL_RULES, DEFAULT, EXTRAPOLATED, FKM, TOLERANCES, Task, grid
from benchmarks.memory_study.report import write_report
from benchmarks.memory_study.runner import carry_out, first_within, run, value_at

from fedkmeans import FederatedKMeans
from fedkmeans.algorithms.fit import find_memory
from fedkmeans.algorithms.rounds import Plan, run_rounds
from fedkmeans.algorithms.state import State, Target
from fedkmeans.algorithms.stopping import Stopping
from fedkmeans.algorithms.wf_kmeans import LocalWork
from fedkmeans.protocol import exchange

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("starts")


@pytest.fixture(scope="module")
def case(cache):
    return prepare("synthetic", "non-iid", 0, cache)


def test_a_second_run_does_nothing_and_the_report_is_written(tmp_path, cache):
    rules = [rule for rule in ALL_RULES if rule != FKM]
    tasks = [Task("synthetic", "non-iid", 10, rule, 0) for rule in rules]
    tasks.append(Task("synthetic", "non-iid", 100, DEFAULT, 0))
    out = tmp_path / "runs.csv"
    silent = {"workers": 1, "max_rounds": 60, "report": lambda _: None}
    assert run(tasks, out, cache, **silent) == len(tasks)
    written = out.read_bytes()
    assert run(tasks, out, cache, **silent) == 0
    assert out.read_bytes() == written
    write_report(out)
    names = {"summary.csv", "acceleration.csv", "stopping.csv", "bars.csv", "README.md", "budgets.png"}
    assert names <= {path.name for path in tmp_path.iterdir()}
    exact = pd.read_csv(tmp_path / "bars.csv").query("rule == 'last word, all clients'")
    assert exact["met"].tolist() == [True]


def test_the_grid_names_each_run_once():
    tasks = grid()
    assert len(set(tasks)) == len(tasks)
    assert {task.rule for task in tasks} == set(ALL_RULES)


def test_a_start_is_the_same_from_the_cache(case, cache):
    prepare.cache_clear()
    again = prepare("synthetic", "non-iid", 0, cache)
    assert again is not case
    np.testing.assert_array_equal(again.start, case.start)
    assert again.score(again.pooled) == case.score(case.pooled)


def test_watching_tells_where_a_tolerance_would_stop(tmp_path, cache, case):
    """One long run stands for a run with each tolerance."""
    out = tmp_path / "runs.csv"
    run([Task("synthetic", "non-iid", 10, DEFAULT, 0)], out, cache, workers=1, report=lambda _: None)
    row = pd.read_csv(out).iloc[0]
    end = row["pooled"] * (1 + row["end"] / 100)
    for tol in TOLERANCES:
        model = FederatedKMeans(5, clients_per_round=10, init=case.start, tol_score=tol, random_state=0)
        model.fit_federation(case.federation)
        assert model.n_iter_ == row[f"stop_{tol:g}_rounds"]
        assert model.stop_reason_ == row[f"stop_{tol:g}_reason"]
        above = 100 * (model.score_per_sample_ / end - 1)
        assert above == pytest.approx(row[f"stop_{tol:g}_above_end"], abs=1e-5)


def centroids_by_round(case, find_target, rounds=40):
    seen = []
    plan = Plan(0, 10, 1.0, 0.0, Stopping(tol=0, patience=None, max_rounds=rounds), participation="turns")
    conversation = run_rounds(
        State.start(case.start),
        plan,
        case.federation.clients,
        find_target,
        lambda state, _: seen.append(state),
    )
    run(case.federation, conversation)
    return np.array([state.centroids for state in seen])


def test_over_relaxation_by_one_is_the_plain_rule(case):
    plain = find_memory("server", LocalWork(max_local=1))
    factor_one = acceleration.accelerate(plain, "over-relaxation", factor=1.0)
    expected = centroids_by_round(case, plain)
    np.testing.assert_allclose(centroids_by_round(case, factor_one), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", EXTRAPOLATED.values())
def test_accelerated_rules_go_elsewhere_but_not_before_everybody_was_heard(case, name):
    plain = find_memory("server", LocalWork(max_local=1))
    expected = centroids_by_round(case, plain)
    found = centroids_by_round(case, acceleration.accelerate(plain, name))
    np.testing.assert_array_equal(found[:9], expected[:9])  # ten of a hundred clients a round
    assert np.abs(found[9:20] - expected[9:20]).max() > 1e-6


def scripted(estimates, window=1):
    """A finder whose target is always one, with these estimates."""

    def find(state, clients, chosen):
        yield from ()
        return Target(np.ones((1, 1)), chosen, 0, 0, "inner", estimates[state.round], window)

    return find


@pytest.mark.parametrize(
    ("estimates", "window", "expected"),
    [([5.0, 4.0], 1, 2.0), ([5.0, 5.0], 1, 2.0), ([4.0, 5.0], 1, 1.0), ([5.0, 4.0], None, 1.0)],
)
def test_the_safeguard_falls_back(estimates, window, expected):
    find = acceleration.accelerate(scripted(estimates, window), "over-relaxation", factor=2.0)
    state = State.start(np.zeros((1, 1)))
    first = exchange.run(None, find(state, ("a",), ("a",)))
    second = exchange.run(None, find(replace(state, round=1, memory=first.memory), ("a",), ("a",)))
    assert second.d.item() == expected
    assert second.memory.inner == "inner"


def test_anderson_solves_a_linear_problem():
    """On d = A C + b mixing finds the fixed point in as many steps as there are dimensions, and one."""
    rng = np.random.default_rng(0)
    A, b = np.diag([0.9, 0.5, 0.2]), rng.normal(size=3)
    fixed = np.linalg.solve(np.eye(3) - A, b)
    trail, c = (), np.zeros((1, 3))
    for _ in range(5):
        trail = (*trail, (c, c @ A + b - c))
        c = acceleration.anderson(trail)
    np.testing.assert_allclose(c[0], fixed, atol=1e-6)


def test_settled_runs_stay_and_others_are_not_known():
    scores = {10: 3.0, 20: 2.0}
    assert value_at(scores, 20, settled=False) == 2.0
    assert value_at(scores, 50, settled=True) == 2.0
    assert np.isnan(value_at(scores, 50, settled=False))
    assert first_within(scores, 2.5) == 20
    assert first_within(scores, 1.0) is None


def test_ratios_treat_runs_that_never_arrive_honestly():
    both = pd.DataFrame(
        {
            "data": "x",
            "distribution": "y",
            "n": [1, 1, 1, 1],
            "within_0.1": [100.0, 100.0, np.nan, np.nan],
            "within_0.1_fast": [50.0, np.nan, 250.0, np.nan],
        }
    )
    found = tables.rounds_ratio(both, "within_0.1")
    assert (found["both reach"], found["only plain"], found["only accelerated"]) == (1, 1, 1)
    assert found["ratio"] == pytest.approx(0.5)
    assert found["ratio, censored"] == pytest.approx((0.5 * 5 * 0.5) ** (1 / 3))


def test_fkm_keeps_its_own_start(case):
    seen = []
    task = Task("synthetic", "non-iid", 10, FKM, 0)
    carry_out(task, case, lambda state, info: seen.append(info.round), max_rounds=2)
    assert seen == [1, 2]
