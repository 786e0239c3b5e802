"""Records are kept whole, once, and for good, whatever happens to the processes that write them."""

import json
import multiprocessing
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from fedkmeans.errors import StudyError
from fedkmeans.study import Record, Store

pytestmark = pytest.mark.slow

posix = pytest.mark.skipif(os.name == "nt", reason="needs fork and signals")
FACTS = {"run": 3, "score": 0.1 + 0.2, "curve": {"0": 1.5, "10": 1.25}, "data": "größe", "distribution": None}


def record(key: str, n_bytes: int = 0, centroids=None) -> Record:
    return Record(key, {"run": 0, "filling": "x" * n_bytes}, centroids)


def rows_in(store: Store) -> int:
    """What the file itself says, after SQLite has looked it over."""
    connection = sqlite3.connect(store.path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        (n,) = connection.execute("SELECT count(*) FROM runs").fetchone()
        (keys,) = connection.execute("SELECT count(DISTINCT key) FROM runs").fetchone()
    finally:
        connection.close()
    assert n == keys
    return n


# --- what is kept ------------------------------------------------------------------------------


def test_records_come_back_as_they_were(tmp_path):
    centroids = np.random.default_rng(0).normal(size=(3, 4))
    assert Store(tmp_path).add(Record("a", FACTS, centroids)) is True
    assert Store(tmp_path).add(Record("b", {"run": 1})) is True
    store = Store(str(tmp_path))
    assert store.keys() == {"a", "b"}
    assert store.facts() == {"a": FACTS, "b": {"run": 1}}
    found = store.centroids()
    assert list(found) == ["a"]
    assert found["a"].dtype == np.float32
    np.testing.assert_array_equal(found["a"], centroids.astype(np.float32))


def test_a_key_is_there_once(tmp_path):
    store = Store(tmp_path)
    assert store.add(Record("a", {"run": 1})) is True
    assert store.add(Record("a", {"run": 2})) is False
    assert store.facts() == {"a": {"run": 1}}
    assert rows_in(store) == 1


def test_centroids_are_kept_without_pickle(tmp_path):
    store = Store(tmp_path)
    store.add(record("a", centroids=np.ones((2, 2))))
    with pytest.raises(TypeError, match="must be a string or a real number"):
        store.add(record("b", centroids=np.array([[{}]], dtype=object)))
    connection = sqlite3.connect(store.path)
    ((blob,),) = connection.execute("SELECT centroids FROM runs").fetchall()
    assert blob.startswith(b"\x93NUMPY")
    evil = np.lib.format.magic(1, 0) + b"v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(
        120
    )
    connection.execute("UPDATE runs SET centroids = ?", [evil])
    connection.commit()
    connection.close()
    with pytest.raises(ValueError, match="allow_pickle"):
        store.centroids()


def test_the_file_can_be_read_by_others(tmp_path):
    """What the documentation says of it: one table, one row a run, JSON."""
    Store(tmp_path).add(Record("a", FACTS))
    connection = sqlite3.connect(tmp_path / "runs.sqlite")
    ((key, text, centroids),) = connection.execute("SELECT key, record, centroids FROM runs").fetchall()
    ((run,),) = connection.execute("SELECT record ->> 'run' FROM runs").fetchall()
    connection.close()
    assert (key, json.loads(text), centroids, run) == ("a", FACTS, None, 3)


def test_folders_are_made_when_there_is_something_to_keep(tmp_path):
    store = Store(tmp_path / "not" / "yet")
    assert (store.keys(), store.facts(), store.centroids()) == (set(), {}, {})
    assert not (tmp_path / "not").exists()
    store.add(record("a"))
    assert store.keys() == {"a"}
    (tmp_path / "empty").mkdir()
    assert Store(tmp_path / "empty").facts() == {}
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize(
    "statements", [[], ["CREATE TABLE runs (key TEXT PRIMARY KEY, record TEXT, centroids)"]]
)
def test_a_process_that_died_before_its_first_record_left_nothing(tmp_path, statements):
    connection = sqlite3.connect(tmp_path / "runs.sqlite")
    for statement in statements:
        connection.execute(statement)
    connection.close()
    (tmp_path / "runs.sqlite").touch()
    store = Store(tmp_path)
    assert store.facts() == {}
    assert store.add(record("a"))
    assert store.keys() == {"a"}


# --- what is refused ---------------------------------------------------------------------------


def test_a_newer_format_is_left_alone(tmp_path):
    store = Store(tmp_path)
    store.add(record("a"))
    connection = sqlite3.connect(store.path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    before = store.path.read_bytes()
    for use in (store.keys, store.facts, store.centroids, lambda: store.add(record("b"))):
        with pytest.raises(StudyError, match=r"runs\.sqlite' was written by a newer .* update fedkmeans"):
            use()
    assert store.path.read_bytes() == before


@pytest.mark.parametrize("content", [b"key,record\na,1\n" * 100, bytes(range(256)) * 8])
def test_a_file_that_is_no_database(tmp_path, content):
    (tmp_path / "runs.sqlite").write_bytes(content)
    store = Store(tmp_path)
    for use in (store.facts, lambda: store.add(record("a"))):
        with pytest.raises(
            StudyError, match=r"runs\.sqlite': file is not a database; see whether it is a study"
        ):
            use()
    assert store.path.read_bytes() == content


@pytest.mark.parametrize("version", [0, 1])
def test_the_database_of_something_else(tmp_path, version):
    connection = sqlite3.connect(tmp_path / "runs.sqlite")
    connection.execute("CREATE TABLE patients (name TEXT)")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    store = Store(tmp_path)
    before = store.path.read_bytes()
    for use in (store.facts, lambda: store.add(record("a"))):
        with pytest.raises(
            StudyError, match=r"runs\.sqlite' holds no runs of a study; choose another folder"
        ):
            use()
    assert store.path.read_bytes() == before


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "store").write_text("")
    with pytest.raises(StudyError, match=r"cannot make folder .*store': "):
        Store(tmp_path / "store").add(record("a"))
    (tmp_path / "runs.sqlite").mkdir()
    with pytest.raises(StudyError, match=r"runs\.sqlite': unable to open database file; see whether"):
        Store(tmp_path).facts()


@posix
def test_a_folder_that_may_only_be_read():
    """What is in it can be looked at; keeping more is refused. As another user: root may do anything."""
    code = (
        "import os, sys\n"
        "from fedkmeans.errors import StudyError\n"
        "from fedkmeans.study import Record, Store\n"
        "if os.geteuid() == 0:\n"
        "    os.setuid(65534)\n"
        "store = Store(sys.argv[1])\n"
        "print(store.facts())\n"
        "for folder in (store, Store(store.folder / 'new')):\n"
        "    try:\n"
        "        folder.add(Record('b', {}))\n"
        "    except StudyError as error:\n"
        "        print(error)\n"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Store(folder).add(record("a"))
        (folder / "runs.sqlite").chmod(0o444)
        folder.chmod(0o555)
        done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True)
        folder.chmod(0o755)
        assert Store(folder).keys() == {"a"}
    facts, to_old, to_new = done.stdout.splitlines()
    assert facts == "{'a': {'filling': '', 'run': 0}}"
    assert "readonly database; see whether it is a study's file, may be written to" in to_old
    assert "cannot make folder" in to_new
    assert "Permission denied" in to_new
    assert done.stderr == ""


@posix
def test_a_full_disk_loses_nothing_that_was_kept(tmp_path):
    import resource

    store = Store(tmp_path)
    store.add(record("a", 1000))

    def fill():
        size = store.path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, size + 20_000))  # as on a full disk
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for key in "bcdefgh":
            store.add(record(key, 8000))

    told = in_a_fork(fill)
    assert told.startswith("StudyError: cannot use ")
    assert "has room on its disk" in told
    kept = store.keys()
    assert "a" in kept
    assert "h" not in kept
    assert rows_in(store) == len(kept)
    assert store.add(record("h", 8000))


def in_a_fork(work) -> str:
    """Do it in a process of its own, with all that is loaded here; returns the error it ended with."""
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def main():
        try:
            work()
            theirs.send("nothing")
        except StudyError as error:
            theirs.send(f"{type(error).__name__}: {error}")

    process = multiprocessing.get_context("fork").Process(target=main)
    process.start()
    told = ours.recv()
    process.join()
    return told


# --- many processes, and processes that die ----------------------------------------------------


@posix
def test_of_several_processes_one_adds_a_record(tmp_path):
    """Also the very first one, when none of them finds a file."""
    context = multiprocessing.get_context("fork")
    n_processes, keys = 4, [str(i) for i in range(15)]
    barrier, added = context.Barrier(n_processes), context.Queue()

    def add_all(number):
        for key in keys:
            barrier.wait(timeout=30)  # so that all are at the same key
            added.put((key, Store(tmp_path).add(Record(key, {"by": number})), number))

    processes = [context.Process(target=add_all, args=(i,)) for i in range(n_processes)]
    for process in processes:
        process.start()
    told = [added.get(timeout=30) for _ in range(n_processes * len(keys))]
    for process in processes:
        process.join()
    winners = {key: number for key, was_added, number in told if was_added}
    assert sum(was_added for _, was_added, _ in told) == len(keys)
    store = Store(tmp_path)
    assert {key: facts["by"] for key, facts in store.facts().items()} == winners
    assert rows_in(store) == len(keys)


@posix
def test_killed_at_any_moment_all_that_was_added_is_there(tmp_path):
    context, rng = multiprocessing.get_context("fork"), random.Random(3)
    reading, writing = os.pipe()
    store = Store(tmp_path)

    def add_for_ever(attempt):
        for number in range(10_000):
            key = f"{attempt}-{number}"
            if Store(tmp_path).add(record(key, rng.randrange(20_000), np.ones((20, 30)))):
                os.write(writing, f"{key}\n".encode())

    told = ""
    for attempt in range(10):
        process = context.Process(target=add_for_ever, args=(attempt,))
        process.start()
        if attempt % 2:
            select.select([reading], [], [], 30)  # until it has added one
        time.sleep(rng.uniform(0.0, 0.2))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        told += os.read(reading, 1_000_000).decode() if select.select([reading], [], [], 0)[0] else ""
        reported, kept = set(told.split()), store.keys()
        assert reported <= kept
        # The last one may have been kept just before it could be told.
        assert len(kept - reported) <= attempt + 1
        if kept:
            assert rows_in(store) == len(kept)
            assert {facts["run"] for facts in store.facts().values()} == {0}
            assert len(store.centroids()) == len(kept)
    os.close(reading)
    os.close(writing)
    assert len({key.partition("-")[0] for key in told.split()}) >= 5
