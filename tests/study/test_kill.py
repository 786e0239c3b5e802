"""Killed at random moments, a study ends with exactly the rows of an undisturbed one."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedkmeans.study import Store, key_of, load_plan, run_study, tasks_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc"),
]

# Runs of a tenth of a second, so that a kill is nearly always in the middle of one.
PLAN = """
seed = 4
runs = 60
n_clients = 10
clients_per_round = [5]

[[data]]
name = "digits"
k = 10
distributions = ["iid"]

[[algorithm]]
name = "dwf"
max_rounds = 100
kernel = "numpy"
"""
# Most of the seconds that the program takes to start go by while it imports: this has done so, and becomes
# the program with each line that it is given.
READY = """
import os, sys
import fedkmeans.cli.study
from fedkmeans.cli import main
for line in sys.stdin:
    if os.fork() == 0:
        os.setsid()
        print(os.getpid(), flush=True)
        sys.argv = ["fedkmeans", *line.split()]
        main()
    os.wait()
"""


class Study:
    """The command in processes of its own, which can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Store(folder / "store")
        self.groups: list[int] = []
        self._errors = (folder / "errors.txt").open("w+")
        self._ready = subprocess.Popen(
            [sys.executable, "-c", READY],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def start(self, n_jobs: int) -> int:
        """Start it; returns the number of its process, and of its group."""
        self._ready.stdin.write(f"study run plan.toml --store store --quiet --n-jobs {n_jobs}\n")
        self._ready.stdin.flush()
        self.groups.append(int(self._ready.stdout.readline()))
        return self.groups[-1]

    def start_afresh(self, n_jobs: int) -> subprocess.Popen:
        """Start it as a person would."""
        line = "-m fedkmeans study run plan.toml --store store --quiet --n-jobs"
        process = subprocess.Popen(
            [sys.executable, *line.split(), str(n_jobs)],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,
        )
        self.groups.append(process.pid)
        return process

    def wait_for(self, group: int, n: int) -> None:
        """Until there are so many records."""
        deadline = time.monotonic() + 60
        while len(self.store.keys()) < n:
            assert members(group), Path(self._errors.name).read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def tidy(self) -> None:
        """End what is left, and remove what the killed could not remove themselves."""
        self._ready.kill()
        for group in self.groups:
            if members(group):
                os.killpg(group, signal.SIGKILL)
            for pattern in (f"*loky-{group}-*", f"joblib_memmapping_folder_{group}_*"):
                for left in Path("/dev/shm").glob(pattern):
                    left.rmdir() if left.is_dir() else left.unlink()
        self._ready.communicate()
        self._errors.close()


def members(group: int) -> list[int]:
    """The processes of a group that live; those that only wait to be buried do not count."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp, *_ = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if int(pgrp) == group and state != "Z":
            found.append(int(path.parent.name))
    return found


@pytest.fixture
def study(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    study = Study(tmp_path)
    yield study
    study.tidy()


def rows_of(store: Store) -> list[tuple]:
    """All rows of the file, after SQLite has looked it over, without what depends on the time."""
    connection = sqlite3.connect(store.path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        blobs = connection.execute("SELECT key, centroids FROM runs ORDER BY key").fetchall()
    finally:
        connection.close()
    facts = store.facts()
    for one in facts.values():
        del one["seconds"], one["finished"]
    return [(key, facts[key], blob) for key, blob in blobs]


def test_killed_twenty_times_it_ends_with_the_rows_of_an_undisturbed_one(study, tmp_path):
    rng, grew, n_killed = random.Random(8), 0, 0

    def kill(group):
        assert members(group)
        os.killpg(group, signal.SIGKILL)
        return n_killed + 1

    for _ in range(3):  # while it starts
        process = study.start_afresh(n_jobs=2)
        time.sleep(rng.uniform(0.0, 3.0))
        n_killed = kill(process.pid)
        assert process.wait() == -signal.SIGKILL
    for attempt in range(17):
        before = len(study.store.keys())
        group = study.start(n_jobs=2 if attempt % 4 == 0 else 1)
        if attempt % 3 == 1:  # whatever it is doing
            time.sleep(rng.uniform(0.0, 0.5))
        else:  # surely at work
            study.wait_for(group, before + rng.randint(1, 3))
            time.sleep(rng.uniform(0.0, 0.1))
        n_killed = kill(group)
        grew += len(study.store.keys()) > before
    plan = load_plan(tmp_path / "plan.toml")
    tasks = tasks_of(plan)
    # It got on between the kills, and was not done when the last one came.
    assert n_killed == 20
    assert grew >= 11
    assert len(study.store.keys()) < len(tasks)
    assert study.start_afresh(n_jobs=2).wait(timeout=60) == 0
    undisturbed = Store(tmp_path / "undisturbed")
    run_study(plan, tasks, undisturbed)
    rows = rows_of(study.store)
    assert [key for key, *_ in rows] == sorted(key_of(plan, task) for task in tasks)  # all, none twice
    assert rows == rows_of(undisturbed)


def test_workers_do_not_outlive_the_study(study, tmp_path):
    """Killed alone, it cannot tell its workers to end."""
    group = study.start(n_jobs=2)
    study.wait_for(group, 2)
    assert len(members(group)) >= 3
    os.kill(group, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while left := members(group):
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)
    plan = load_plan(tmp_path / "plan.toml")
    keys = [key for key, *_ in rows_of(study.store)]
    assert set(keys) <= {key_of(plan, task) for task in tasks_of(plan)}
    assert len(set(keys)) == len(keys) >= 2
