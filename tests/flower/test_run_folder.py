"""What a run leaves on the server's disk can be read at any moment."""

import json
import os
import stat
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from fedkmeans import FederatedKMeans, InProcess
from fedkmeans.flower.deploy.run_folder import RunFolder

X = np.random.default_rng(0).normal(size=(60, 2))


@pytest.fixture
def folder(tmp_path):
    run = RunFolder(tmp_path / "runs" / "one")
    run.make()
    return run


def info(number, estimate=1.0, answered=("a",), asked=("a", "b")):
    return SimpleNamespace(
        restart=0, round=number, movement=0.5, estimate=estimate, answered=answered, asked=asked
    )


def test_only_its_owner_can_read_a_run(tmp_path):
    before = os.umask(0)
    try:
        run = RunFolder(tmp_path / "runs" / "one")
        run.make()
    finally:
        os.umask(before)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700


def test_a_run_that_has_not_begun_stands_nowhere(tmp_path, folder):
    assert folder.status() == {}
    assert list(folder.progress()) == []
    assert RunFolder(tmp_path / "nothing").status() == {}


def test_how_a_run_stands_is_what_was_said_last(folder):
    folder.say("running", run="12", pid=3)
    assert folder.status() == {"status": "running", "run": "12", "pid": 3}
    folder.say("failed", reason="größer als alles")
    assert folder.status() == {"status": "failed", "reason": "größer als alles"}
    assert [path.name for path in folder.path.iterdir()] == ["status.json"]


def test_a_status_is_seen_whole_or_not_at_all(folder, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda number: None)
    folder.say("running", number=0)
    seen, done = [], threading.Event()

    def read():
        while not done.is_set():
            seen.append(folder.status()["number"])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(300):
            folder.say("running", number=number, padding="x" * 5000)
    finally:
        done.set()
        reader.join()
    assert seen == sorted(seen)


def test_a_status_that_cannot_be_written_leaves_the_old_one(folder):
    folder.say("running")
    with pytest.raises(TypeError):
        folder.say("finished", score=object())
    assert folder.status() == {"status": "running"}
    assert [path.name for path in folder.path.iterdir()] == ["status.json"]


def test_one_line_per_round_says_who_is_missing_and_why(folder):
    silent = {}
    observe = folder.reporter(7, lambda: silent)
    observe(None, info(1, answered=("a", "b")))
    silent["b"] = "not connected"
    observe(None, info(2, estimate=float("nan")))
    first, second = folder.progress()
    assert (first["round"], first["of"], first["missing"], first["answered"]) == (1, 7, {}, ["a", "b"])
    assert (second["round"], second["estimate"], second["missing"]) == (2, None, {"b": "not connected"})
    assert second["time"] >= first["time"]


def test_a_real_fit_reports_every_round(folder):
    federation = InProcess.from_arrays(X, np.arange(60) % 3)
    model = FederatedKMeans(2, max_rounds=4, tol=0, random_state=0)
    model.fit_federation(federation, on_round=folder.reporter(4, dict))
    assert [line["round"] for line in folder.progress()] == [1, 2, 3, 4]
    # For programs in any language: no NaN, which is no JSON.
    text = (folder.path / "progress.jsonl").read_text()
    assert [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]


def test_a_line_that_is_being_written_waits(folder):
    observe = folder.reporter(None, dict)
    observe(None, info(1))
    path = folder.path / "progress.jsonl"
    whole = path.read_text()
    for end in range(1, len(whole)):
        path.write_text(whole + whole[:end])
        expected = 2 if whole[:end].endswith("\n") else 1
        assert len(list(folder.progress())) == expected


def test_a_line_that_was_torn_does_not_spoil_those_after_it(folder):
    """A run that was killed while it wrote goes on, and its progress can still be read."""
    folder.reporter(None, dict)(None, info(1))
    path = folder.path / "progress.jsonl"
    whole = path.read_text()
    for end in (1, 30, len(whole) - 2, len(whole) - 1):
        path.write_text(whole + whole[:end])
        folder.reporter(None, dict)(None, info(2))
        assert [line["round"] for line in folder.progress()][-1] == 2
        assert {line["round"] for line in folder.progress()} == {1, 2}


def test_a_wish_to_stop_ends_a_run_after_its_round(folder):
    model = FederatedKMeans(2, max_rounds=50, tol=0, tol_score=0, random_state=0)
    observe = folder.reporter(50, dict)

    def wish(state, told):
        if told.round == 3:
            assert not (folder.path / "stop").exists()
            folder.ask_to_stop()
        observe(state, told)

    with pytest.raises(KeyboardInterrupt):
        model.fit_federation(InProcess.from_arrays(X, np.arange(60) % 3), on_round=wish)
    assert model.n_iter_ == 3
    assert [line["round"] for line in folder.progress()] == [1, 2, 3]


def test_a_run_that_goes_on_is_not_stopped_by_an_old_wish(folder):
    folder.ask_to_stop()
    folder.ask_to_stop()
    assert (folder.path / "stop").exists()
    folder.make()
    assert not (folder.path / "stop").exists()


def test_where_things_are(folder):
    assert {folder.journal.parent, folder.model.parent} == {folder.path}
