"""The page of a run: all from the model's card, nothing loaded, nothing run, nothing taken for markup."""

import re

import numpy as np
import pytest

from fedkmeans import FederatedKMeans, KFed
from fedkmeans.model import Model
from fedkmeans.study.page.run import page


def model_of(estimator, X, names=None, algorithm="last-word"):
    clients = np.arange(len(X)) % 3
    fitted = estimator.fit(X, clients=clients)
    sizes = [{"name": f"<b>client {i}</b>", "n_samples": int((clients == i).sum())} for i in range(3)]
    model = Model.from_estimator(fitted, algorithm=algorithm, clients=sizes)
    return model if names is None else Model(model.centroids, names, model.card)


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(90, 3)).round(3)


def test_shows_what_is_in_the_card(X):
    model = model_of(FederatedKMeans(2, random_state=0, n_init=2), X, ("age", "bmi", "a<b"))
    text = page(model, "Spring & autumn", {})
    assert "<h1>Spring &amp; autumn</h1>" in text
    for what in (
        f"{model.card['result']['score_per_sample']:,.6g}",
        "90 at 3 clients",
        "a&lt;b",
        "last-word",
    ):
        assert what in text
    for number in model.centroids.ravel():
        assert f"<td>{number:,.5g}</td>" in text
    assert text.count("<svg") == 1
    assert "&lt;b&gt;client 0&lt;/b&gt;" in text
    assert "<b>client" not in text


def test_loads_nothing_and_runs_no_script(X):
    text = page(model_of(FederatedKMeans(2, random_state=0), X), "A", {})
    assert "<script" not in text
    assert not re.search(r"(src|href)=\"(?!data:|#)", text)
    assert "default-src 'none'" in text


def test_says_who_was_asked_in_vain_and_why(X):
    missing = {"<b>client 1</b>": ["no answer", "no answer", ""], "gone": ["not connected"]}
    text = page(model_of(FederatedKMeans(2, random_state=0), X), "A", missing)
    assert "2 time(s): no answer; 1 time(s)" in text
    assert "<td>gone</td><td>–</td><td>1 time(s): not connected</td>" in text
    assert text.count("<td>never</td>") == 2


def test_without_rounds_there_is_no_picture_of_them(X):
    model = model_of(KFed(2, random_state=0), X, algorithm="kfed")
    assert "<svg" in page(model, "A", {})  # its one exchange counts as one
    text = page(Model(model.centroids, None, {**model.card, "history": {}}), "A", {})
    assert "<svg" not in text
    assert "no rounds" in text


@pytest.mark.parametrize(("n_columns", "shown"), [(64, "<img"), (60, "too many numbers"), (2, "<td>")])
def test_centroids_are_shown_as_they_can_be_read(n_columns, shown):
    rows = np.random.default_rng(0).random((60, n_columns))
    assert (
        shown in page(model_of(FederatedKMeans(2, random_state=0), rows), "A", {}).partition("Centroids")[2]
    )


def test_wide_tables_scroll_by_themselves_not_with_the_page():
    rows = np.random.default_rng(0).random((60, 40))
    text = page(model_of(FederatedKMeans(2, random_state=0), rows), "A", {})
    assert text.count("<table>") == text.count('<div class="scroll" tabindex="0"><table>') == 3
