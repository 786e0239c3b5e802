"""Models as they come to lie on a disk: what is in the files, and when the disk is full."""

import errno
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedkmeans import KFed
from fedkmeans.cli.console import number
from fedkmeans.errors import ModelError
from fedkmeans.model import Model


def model_of(client: str) -> Model:
    estimator = KFed(2, random_state=0).fit(np.random.default_rng(0).normal(size=(30, 2)))
    return Model.from_estimator(estimator, algorithm="kfed", clients=[{"name": client, "n_samples": 30}])


def test_names_cannot_steer_a_terminal_that_shows_the_card(tmp_path):
    name = "\x1b[31m\x9b\x7f\u2028 ü"
    model_of(name).save(tmp_path / "m")
    text = (tmp_path / "m" / "card.json").read_text()
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert Model.load(tmp_path / "m").card["data"]["clients"][0]["name"] == name


@pytest.mark.parametrize("name", ["model", "model.safetensors"])
def test_a_disk_that_is_full_is_named_once(tmp_path, monkeypatch, name):
    def full(self, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    model, path = model_of("a"), tmp_path / name
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ModelError) as caught:
        model.save(path)
    assert str(caught.value).startswith(f"Model {str(path)!r} cannot be written: No space left on device; ")
    assert str(caught.value).count(str(tmp_path)) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("k", "m"), [(8, 2), (12, 7), (3, 9)])
def test_all_centroids_can_be_read_in_eighty_columns(run, here, k, m):
    X = np.random.default_rng(0).normal(size=(60, m))
    pd.DataFrame(X, columns=[f"c{j}" for j in range(m)]).to_csv("a.csv", index=False)
    assert run(f"fit a.csv -k {k} --seed 0 --max-rounds 3 -q").code == 0
    text = run("inspect model").out
    table = text[text.index("Centroids") :]
    assert max(len(line.rstrip()) for line in table.splitlines()) <= 80
    for value in Model.load("model").centroids.ravel():
        assert number(float(value)) in table
