"""Settings survive Flower's run configuration, which knows single numbers and texts only."""

import tomllib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkmeans._utils.checks import PARAMETERS
from fedkmeans.errors import ParameterError
from fedkmeans.flower.deploy.files import to_toml
from fedkmeans.flower.deploy.folder import app_project
from fedkmeans.flower.deploy.settings import RunSettings, from_run_config, to_run_config
from fedkmeans.flower.transport import WaitPolicy
from fedkmeans.registry import ALGORITHMS

FEDERATED = sorted(name for name, algorithm in ALGORITHMS.items() if not algorithm.pooled)

fractions = st.floats(0, 1, exclude_min=True, exclude_max=True)
small = st.floats(0, 1e3)
counts = st.integers(1, 10**6)
VALUES = {
    "init": st.sampled_from(["kfed", "random", "client_random", "k-means++"]),
    "n_init": counts.filter(lambda n: n < 20),
    "weighting": st.just("dynamic"),
    "init_clients": counts | st.sampled_from(["auto", "all"]),
    "init_rows": counts | st.sampled_from(["auto", "all"]),
    "look_ahead": fractions | st.just(0) | st.just(1.0),
    "learning_rate": fractions | st.just(1) | st.just(1.0),
    "momentum": fractions | st.just(0),
    "empty_clusters": st.just("keep"),
    "n_local_clusters": counts,
    "n_init_local": counts,
    "server_init": st.sampled_from(["previous", "k-means++"]),
    "clients_per_round": counts,
    "participation": st.sampled_from(["turns", "random"]),
    "max_local": counts,
    "tol": small,
    "tol_local": small,
    "tol_score": fractions | st.just(0),
    "patience": st.integers(2, 10**6) | st.none(),
    "min_rounds": st.just(1),
    "max_rounds": counts,
    "max_iter": counts,
    "score_every": st.integers(0, 9),
}


@st.composite
def settings(draw):
    algorithm = draw(st.sampled_from(FEDERATED))
    takes = sorted(set(PARAMETERS) & ALGORITHMS[algorithm].parameters())
    values = dict(VALUES)
    if "memory" in takes:
        values["memory"] = fractions if algorithm == "forgetting" else st.sampled_from(["server", "client"])
    given = draw(st.sets(st.sampled_from([name for name in takes if name in values])))
    positive = st.floats(0, 1e9, exclude_min=True)
    waiting = WaitPolicy(draw(positive), draw(counts), draw(small), draw(small), draw(positive))
    return RunSettings(
        n_clusters=draw(counts),
        algorithm=algorithm,
        seed=draw(st.integers(0, 2**63 - 1)),
        tuning={name: draw(values[name]) for name in sorted(given)},
        waiting=waiting,
        folder=draw(st.text(st.characters(codec="utf-8"), max_size=9)),
        min_sites=draw(counts),
    )


@given(settings())
def test_settings_survive_the_way_through_a_run_configuration(wish):
    config = to_run_config(wish)
    found = from_run_config(tomllib.loads(to_toml(config)))
    assert found == wish
    assert found.fingerprint == wish.fingerprint
    assert repr(found.estimator()) == repr(wish.estimator())


@given(settings())
def test_a_run_configuration_holds_what_flower_takes(wish):
    config = to_run_config(wish)
    assert {type(value) for value in config.values()} <= {bool, int, float, str}
    assert all(abs(value) < 2**63 for value in config.values() if type(value) is int)
    assert not any("_" in key for key in config)
    assert list(config) == list(to_run_config(RunSettings(n_clusters=1)))


def test_what_changes_a_run_changes_its_fingerprint():
    usual = RunSettings(n_clusters=3, seed=1, tuning={"max_rounds": 4})
    others = [
        replace(usual, n_clusters=4),
        replace(usual, seed=2),
        replace(usual, algorithm="fkm"),
        replace(usual, tuning={"max_rounds": 5}),
        replace(usual, tuning={}),
        replace(usual, tuning={"max_rounds": 4, "memory": "client"}),
    ]
    assert len({one.fingerprint for one in (usual, *others)}) == 7


def test_who_is_waited_for_and_where_it_runs_does_not():
    usual = RunSettings(n_clusters=3)
    waiting = WaitPolicy(timeout=1, min_answers=2, wait=3, cool_down=4, poll=5)
    assert replace(usual, waiting=waiting, folder="/elsewhere", min_sites=9).fingerprint == usual.fingerprint
    one, two = {"max_rounds": 4, "tol": 0.1}, {"tol": 0.1, "max_rounds": 4}
    assert replace(usual, tuning=one).fingerprint == replace(usual, tuning=two).fingerprint


def test_an_algorithm_on_pooled_rows_is_refused():
    with pytest.raises(ParameterError, match="'k-means' needs all rows in one place; choose a federated"):
        RunSettings(n_clusters=3, algorithm="k-means")


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"n-clusters": 0}, "n-clusters"),
        ({"n-clusters": "three"}, "n-clusters"),
        ({"n-clusters": 2.5}, "n-clusters"),
        ({"n-clusters": True}, "n-clusters"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"min-sites": 0}, "min-sites"),
        ({"algorithm": "magic"}, "algorithm"),
        ({"algorithm": 5}, "algorithm"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "long"}, "timeout"),
        ({"min-answers": 0}, "min_answers"),
        ({"min-answers": 1.5}, "min_answers"),
        ({"wait": -1.0}, "wait"),
        ({"cool-down": float("nan")}, "cool_down"),
        ({"poll": 0.0}, "poll"),
        ({"max-rounds": "many"}, "max_rounds"),
        ({"max-rounds": "0"}, "max_rounds"),
        ({"max-rounds": True}, "max_rounds"),
        ({"learning-rate": "2"}, "learning_rate"),
        ({"tol": "nan"}, "tol"),
        ({"momentum": 1.0}, "momentum"),
        ({"memory": "0.5"}, "memory"),
        ({"memory": "none"}, "memory"),
        ({"weighting": "heavy"}, "weighting"),
        ({"init": "magic"}, "init"),
        ({"participation": "never"}, "participation"),
        ({"n-init": "1e2"}, "n_init"),
        ({"algorithm": "kfed", "memory": "server"}, "memory"),
    ],
)
def test_bad_values_are_refused_by_name(config, named):
    with pytest.raises(ParameterError, match=named) as found:
        from_run_config({"n-clusters": 3, **config})
    assert "\n" not in str(found.value)


def test_numbers_may_come_as_numbers_or_as_text():
    """As ``flwr run --run-config 'max-rounds=5'`` or with quotes."""
    for value in (5, "5"):
        assert from_run_config({"n-clusters": 3, "max-rounds": value}).tuning == {"max_rounds": 5}
    assert from_run_config({"n-clusters": 3, "patience": "None"}).tuning == {"patience": None}
    assert from_run_config({"n-clusters": 3, "tol": ""}).tuning == {}
    assert from_run_config({}).n_clusters == 8


def test_the_app_has_every_setting_and_no_other():
    project = tomllib.loads(app_project())
    app = project["tool"]["flwr"]["app"]
    assert app["config"] == to_run_config(RunSettings(n_clusters=8))
    assert from_run_config(app["config"]) == RunSettings(n_clusters=8)
    assert set(app["components"]) == {"serverapp", "clientapp"}
    assert project["project"]["name"] == "fedkmeans-app"


def test_the_app_names_what_there_is():
    from importlib import import_module

    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    components = tomllib.loads(app_project())["tool"]["flwr"]["app"]["components"]
    for name, kind in (("serverapp", ServerApp), ("clientapp", ClientApp)):
        module, _, attribute = components[name].partition(":")
        assert isinstance(getattr(import_module(module), attribute), kind)
