"""Saving and loading of models, and malformed files, which are refused."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from fedkmeans import FKM, FederatedKMeans, InProcess, KFed, Site
from fedkmeans.errors import DataError, ModelError
from fedkmeans.model import CARD_FILE, CENTROIDS_FILE, HISTORY_FILE, Model, check_destination, is_model
from fedkmeans.registry import make

NAMES = ("height", "weight", "größe, in cm")


def federation(seed=0):
    rng = np.random.default_rng(seed)
    sites = (Site(name, rng.normal(size=(40, 3)) + 4 * i, feature_names=NAMES) for i, name in enumerate("ab"))
    return InProcess(sites)


def fitted(estimator=None):
    estimator = estimator or FederatedKMeans.paper(3, random_state=1, max_rounds=20, score_every=7)
    return estimator.fit_federation(federation())


def model_of(estimator, algorithm="dwf"):
    clients = [{"name": "a", "n_samples": 40}, {"name": "b", "n_samples": 40}]
    return Model.from_estimator(estimator, algorithm=algorithm, clients=clients, dtype="float64")


@pytest.fixture(scope="module")
def model():
    return model_of(fitted())


@pytest.fixture(params=["model", "model.safetensors"])
def path(request, tmp_path):
    return tmp_path / request.param


def test_a_loaded_model_equals_the_saved_one(model, path):
    model.save(path)
    back = Model.load(path)
    assert back.centroids.tobytes() == model.centroids.tobytes()
    assert back.feature_names == NAMES
    assert back.card == model.card
    assert is_model(path)


def test_the_card_describes_the_fit(model):
    card = model.card
    assert card["algorithm"] == "dwf"
    assert card["seed"] == 1
    assert card["parameters"]["max_rounds"] == 20
    assert card["data"]["n_samples"] == 80
    assert card["data"]["clients"][1] == {"name": "b", "n_samples": 40}
    assert card["result"]["n_rounds"] == 20
    assert card["result"]["interrupted"] is False
    assert set(card["versions"]) == {"fedkmeans", "numpy", "scikit-learn", "python"}
    assert card["history"]["round"] == list(range(1, 21))
    assert card["history"]["score"][0] is None
    assert card["history"]["score"][6] > 0


@pytest.mark.parametrize("memory", ["server", "client", 0.9])
def test_estimates_and_bytes_are_saved(path, memory):
    estimator = fitted(FederatedKMeans(3, memory=memory, clients_per_round=1, random_state=0))
    model_of(estimator, "last-word").save(path)
    card = Model.load(path).card
    assert card["parameters"]["memory"] == memory
    assert card["result"]["stop_reason"] == estimator.stop_reason_
    for name in ("estimate", "bytes_sent", "bytes_received"):
        assert card["history"][name] == estimator.history_[name].tolist()
    assert all(type(n) is int and n > 0 for n in card["history"]["bytes_sent"])


def test_without_memory_there_are_no_estimates(model, path):
    model.save(path)
    assert set(Model.load(path).card["history"]["estimate"]) == {None}


def test_older_models_without_bytes_can_be_read(model, path):
    old = {"restart", "round", "movement", "participants", "asked", "score", "score_per_client"}
    history = {name: column for name, column in model.card["history"].items() if name in old}
    parameters = {
        name: value
        for name, value in model.card["parameters"].items()
        if name not in ("participation", "tol_score")
    }
    card = {**model.card, "history": history, "parameters": parameters}
    before = Model(model.centroids, model.feature_names, card)
    before.save(path)
    back = Model.load(path)
    assert set(back.card["history"]) == old
    assert back.card == card
    assert back.centroids.tobytes() == model.centroids.tobytes()


def test_a_folder_is_readable_by_people(model, tmp_path):
    model.save(tmp_path / "m")
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == [CARD_FILE, CENTROIDS_FILE, HISTORY_FILE]
    text = (tmp_path / "m" / CARD_FILE).read_text()
    assert "größe" in text
    assert len(text.splitlines()) > 20
    history = pd.read_csv(tmp_path / "m" / HISTORY_FILE)
    assert len(history) == 20
    assert history["score"].notna().sum() == 2


@pytest.mark.parametrize(
    ("algorithm", "estimator"), [("kfed", KFed(3, random_state=0)), ("fkm", FKM(3, random_state=0))]
)
def test_other_algorithms(algorithm, estimator, path):
    model = model_of(fitted(estimator), algorithm)
    model.save(path)
    assert Model.load(path).card == model.card


def test_pooled_k_means_has_no_rounds(path):
    X = np.random.default_rng(0).normal(size=(50, 2))
    estimator = make("k-means", n_clusters=4, random_state=3).fit(X)
    model = Model.from_estimator(estimator, algorithm="k-means", clients=[{"name": "a", "n_samples": 50}])
    model.save(path)
    back = Model.load(path)
    assert back.card["history"] == {}
    assert back.card["seed"] == 3
    assert back.feature_names is None
    assert (back.predict(X) == estimator.predict(X)).all()


def test_parameters_that_json_cannot_represent():
    def my_rule(summary):
        return summary.counts

    estimator = FederatedKMeans(3, init=np.eye(3), weighting=my_rule, random_state=0, max_rounds=2)
    card = model_of(fitted(estimator)).card
    assert card["parameters"]["init"] == "array of shape (3, 3)"
    assert card["parameters"]["weighting"] == "my_rule"
    json.dumps(card, allow_nan=False)


def test_predictions_are_the_estimators():
    X = pd.DataFrame(np.random.default_rng(5).normal(size=(200, 3)), columns=list(NAMES))
    estimator = FederatedKMeans(4, random_state=0, max_rounds=30).fit(X, clients=np.arange(200) % 5)
    model = model_of(estimator)
    assert (model.predict(X) == estimator.predict(X)).all()
    assert (model.predict(X.to_numpy()) == estimator.predict(X)).all()
    assert (model.predict(X[list(reversed(NAMES))]) == estimator.predict(X)).all()
    assert np.allclose(model.distances(X), estimator.transform(X))


def test_errors_name_the_columns_that_do_not_match(model):
    with pytest.raises(ModelError, match=r"lacks column\(s\) 'weight'.*has 'mass'"):
        model.check_columns(["height", "mass", NAMES[2]])
    assert model.check_columns([*NAMES, "other"]) == ("other",)
    with pytest.raises(ModelError, match="3 columns"):
        model.predict(np.zeros((4, 2)))
    with pytest.raises(ModelError, match="Column 'weight' has missing"):
        model.predict(np.array([[0, np.nan, 0]]))
    with pytest.raises(ModelError, match="columns of numbers"):
        model.predict(np.array([["a", "b", "c"]]))


# --- where a model is written ------------------------------------------------------------------


def test_an_older_model_is_replaced(model, path):
    model.save(path)
    model_of(fitted(KFed(2, random_state=0)), "kfed").save(path)
    assert Model.load(path).card["algorithm"] == "kfed"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_nothing_else_is_replaced(model, tmp_path):
    folder = tmp_path / "thesis"
    folder.mkdir()
    model.save(folder)  # empty, so nothing is lost
    (folder / "chapter.txt").write_text("years of work")
    with pytest.raises(ModelError, match=r"chapter\.txt.*choose another place"):
        model.save(folder)
    assert (folder / "chapter.txt").read_text() == "years of work"
    other = tmp_path / "weights.safetensors"
    save_file({"w": np.zeros(3)}, other)
    before = other.read_bytes()
    with pytest.raises(ModelError, match="no model that can be read"):
        model.save(other)
    assert other.read_bytes() == before
    file = tmp_path / "notes"
    file.write_text("mine")
    with pytest.raises((ModelError, DataError)):
        model.save(file)
    assert file.read_text() == "mine"


def test_a_destination_that_cannot_be_written_is_refused(model, tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "model", tmp_path / "absent" / "model"):
        with pytest.raises(ModelError, match="existing folder that you may write to"):
            check_destination(place)


# --- malformed models --------------------------------------------------------------------------


def change_card(**changes):
    def change(folder):
        card = json.loads((folder / CARD_FILE).read_text())
        for path, value in changes.items():
            *parents, last = path.split("__")
            place = card
            for key in parents:
                place = place[key]
            place[last] = value
        (folder / CARD_FILE).write_text(json.dumps(card))

    return change


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def centroids(array, name="centroids"):
    return lambda folder: save_file({name: array}, folder / CENTROIDS_FILE)


def truncate(name, keep):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:keep])


MALFORMED = {
    "centroids cut off": truncate(CENTROIDS_FILE, -5),
    "header cut off": truncate(CENTROIDS_FILE, 20),
    "empty file": write(CENTROIDS_FILE, b""),
    "pickle": write(CENTROIDS_FILE, b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00cos\nsystem\n."),
    "single precision": centroids(np.zeros((3, 3), dtype=np.float32)),
    "whole numbers": centroids(np.zeros((3, 3), dtype=np.int64)),
    "one dimension": centroids(np.zeros(9)),
    "no centroids": centroids(np.zeros((0, 3))),
    "no columns": centroids(np.zeros((3, 0))),
    "more columns": centroids(np.zeros((3, 4))),
    "fewer centroids": centroids(np.zeros((2, 3))),
    "NaN": centroids(np.full((3, 3), np.nan)),
    "infinity": centroids(np.full((3, 3), np.inf)),
    "another tensor": centroids(np.zeros((3, 3)), name="weights"),
    "no centroids file": lambda folder: (folder / CENTROIDS_FILE).unlink(),
    "no card": lambda folder: (folder / CARD_FILE).unlink(),
    "no history": lambda folder: (folder / HISTORY_FILE).unlink(),
    "card is a list": write(CARD_FILE, b"[]"),
    "card is no JSON": write(CARD_FILE, b"{'a': 1}"),
    "card is cut off": truncate(CARD_FILE, -40),
    "card is empty": write(CARD_FILE, b""),
    "card is binary": write(CARD_FILE, b"\xff\xfe\x00"),
    "card is nested too deep": write(CARD_FILE, b"[" * 100_000),
    "card has NaN": change_card(result__inertia=float("nan")),
    "card of another program": change_card(format="other"),
    "card too new": change_card(format_version=2),
    "version is text": change_card(format_version="1"),
    "version is true": change_card(format_version=True),
    "data is a list": change_card(data=[]),
    "too few names": change_card(data__feature_names=["a"]),
    "the same name twice": change_card(data__feature_names=["a", "a", "b"]),
    "names are numbers": change_card(data__feature_names=[1, 2, 3]),
    "clients without names": change_card(data__clients=[{"n_samples": 3}]),
    "rows are text": change_card(data__clients=[{"name": "a", "n_samples": "3"}]),
    "rounds are text": change_card(result__n_rounds="many"),
    "interrupted is a number": change_card(result__interrupted=1),
    "result is missing": change_card(result=None),
    "history is ragged": write(HISTORY_FILE, b"round,movement\n1,2\n3\n"),
    "history is text": write(HISTORY_FILE, b"round,movement\n1,fast\n"),
    "history has a name twice": write(HISTORY_FILE, b"round,round\n1,2\n"),
    "history is empty": write(HISTORY_FILE, b""),
    "bytes are negative": write(HISTORY_FILE, b"round,bytes_sent\n1,-2\n"),
    "bytes are no whole number": write(HISTORY_FILE, b"round,bytes_received\n1,2.5\n"),
    "bytes are not there": write(HISTORY_FILE, b"round,bytes_sent\n1,\n"),
    "history has no rounds": write(HISTORY_FILE, b"round,movement\n"),
    "other parameters": change_card(parameters__n_clusters=5),
}


@pytest.mark.parametrize("damage", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_models_are_refused_in_one_line(model, tmp_path, damage):
    place = tmp_path / "model"
    model.save(place)
    damage(place)
    with pytest.raises(ModelError) as caught:
        Model.load(place)
    message = str(caught.value)
    assert "\n" not in message
    assert str(place) in message
    assert ";" in message  # the remedy follows


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("history is ragged", "the history is damaged, its lines differ in length;"),
        ("history is text", "the history holds something that is no number (could not convert"),
        ("history has a name twice", "the history has column 'round' twice;"),
        ("bytes are negative", "column 'bytes_sent' of the history holds something that is no number of"),
        ("history is empty", "the history is empty, and the card speaks of 20 rounds;"),
        ("the same name twice", "the card names 'a' twice where 3 different columns are needed;"),
        ("other parameters", "n_clusters=5 among the parameters, and there are 3;"),
        ("no card", "card.json is missing;"),
    ],
)
def test_messages_name_the_fault_once(model, tmp_path, damage, words):
    model.save(tmp_path / "m")
    MALFORMED[damage](tmp_path / "m")
    assert is_model(tmp_path / "m")  # a damaged model is still recognized as one
    with pytest.raises(ModelError) as caught:
        Model.load(tmp_path / "m")
    assert words in str(caught.value)
    assert str(caught.value).count("damaged") <= 1


def test_a_newer_model_asks_for_an_upgrade(model, tmp_path):
    model.save(tmp_path / "m")
    change_card(format_version=2)(tmp_path / "m")
    with pytest.raises(ModelError, match="upgrade fedkmeans"):
        Model.load(tmp_path / "m")


def test_an_absent_model(tmp_path):
    with pytest.raises(ModelError, match="does not exist"):
        Model.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="is missing"):
        Model.load(tmp_path / "empty")


def test_a_data_file_is_no_model(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ModelError, match=r"x\.csv' is no model; give a folder"):
        Model.load(tmp_path / "x.csv")


def test_other_tensors_are_no_model(tmp_path):
    save_file({"centroids": np.zeros((2, 2))}, tmp_path / "x.safetensors")
    with pytest.raises(ModelError, match="no card"):
        Model.load(tmp_path / "x.safetensors")


@given(
    cut=st.integers(0, 3000), flips=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=4)
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_refused_or_harmless(model, tmp_path, cut, flips):
    """Any change of the bytes leads to a ModelError or a consistent model."""
    path = tmp_path / "m.safetensors"
    path.unlink(missing_ok=True)
    model.save(path)
    content = bytearray(path.read_bytes())
    for at, value in flips:
        content[at % len(content)] = value
    path.write_bytes(content[: len(content) - cut % len(content)] if cut % 2 else content)
    try:
        back = Model.load(path)
    except ModelError:
        return
    assert np.isfinite(back.centroids).all()
    assert back.centroids.shape == (3, 3)
    assert back.feature_names is None or len(back.feature_names) == 3


def test_a_history_too_long_for_one_file_is_left_out_with_a_warning(model, tmp_path, monkeypatch):
    monkeypatch.setattr("fedkmeans.model._LARGEST_CARD", 2000)
    with pytest.warns(UserWarning, match="save the model as a folder"):
        model.save(tmp_path / "m.safetensors")
    assert Model.load(tmp_path / "m.safetensors").card["history"] == {}


def test_an_estimator_whose_model_could_not_be_read_is_refused():
    estimator = fitted()
    estimator.feature_names_in_ = np.array(["only one"], dtype=object)
    with pytest.raises(ModelError, match="name 3 different columns"):
        model_of(estimator)
