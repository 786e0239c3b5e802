"""Compiling in a second process: once, only where it helps, and harmless when it fails."""

import os
import subprocess
import sys

import pytest

from fedkmeans.kernels.numba import compile_ahead

pytestmark = pytest.mark.slow

COLD_FIT = """
import numpy as np
from numba.core import event
from fedkmeans import FederatedKMeans

class Names(event.Listener):
    compiled = set()
    def on_start(self, event):
        self.compiled.add(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event):
        pass

event.register("numba:compile", Names())
X = np.random.default_rng(0).normal(size=(320, 24))
clients = np.repeat(np.arange(8), 40)
fast, plain = (
    FederatedKMeans.paper(4, max_rounds=30, random_state=0, kernel=kernel).fit(X, clients=clients)
    for kernel in ("numba", "numpy")
)
assert np.allclose(fast.cluster_centers_, plain.cluster_centers_, rtol=0, atol=1e-12)
print(*sorted(Names.compiled))
"""


def cold_fit(folder):
    done = subprocess.run(
        [sys.executable, "-c", COLD_FIT],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.skipif(compile_ahead._n_cores() < 2, reason="needs a second core")
def test_what_another_process_compiled_is_not_compiled_again(tmp_path):
    compiled = cold_fit(tmp_path)
    assert {"gram_kmeans", "follow_labels"} <= set(compiled)
    # Were it asked for with other types of arguments, it would be compiled in vain, and nobody would notice.
    assert not {"scan", "follow_steps"} & set(compiled)
    assert len(list(tmp_path.rglob("ahead-float64-steps-*"))) == 1
    assert cold_fit(tmp_path) == []


@pytest.fixture
def cold(tmp_path, monkeypatch):
    """As if nothing were compiled yet; the process that compiles is another, which can be chosen."""
    monkeypatch.setattr(compile_ahead, "_n_cores", lambda: 2)
    monkeypatch.setattr(compile_ahead, "_cache_folder", lambda: tmp_path)
    started = []

    def instead_of_compiling(script):
        def start(command, **options):
            started.append(command)
            return subprocess_popen([sys.executable, "-c", script, *command[3:]], **options)

        subprocess_popen = subprocess.Popen
        monkeypatch.setattr(compile_ahead.subprocess, "Popen", start)
        return started

    yield instead_of_compiling
    compile_ahead.wait()


GOOD = "import sys, pathlib; pathlib.Path(sys.argv[-1]).touch()"


def test_happens_once_for_each_type_and_kind_of_steps(cold):
    started = cold(GOOD)
    kinds = [("float64", "steps"), ("float64", "step"), ("float32", "steps")]
    for kind in kinds * 2:
        compile_ahead.start(*kind)
        compile_ahead.wait()
    assert [tuple(command[3:5]) for command in started] == kinds


def test_waits_until_it_is_done(cold, tmp_path):
    cold(f"import time; time.sleep(0.5); {GOOD}")
    compile_ahead.start("float64", "steps")
    assert not list(tmp_path.iterdir())
    compile_ahead.wait()
    assert len(list(tmp_path.iterdir())) == 1
    assert not compile_ahead._running  # so that rounds lose no time with it


def test_a_process_that_fails_is_not_waited_for(cold):
    cold("raise SystemExit(1)")
    compile_ahead.start("float64", "steps")
    compile_ahead.wait()
    assert not compile_ahead._running


def test_not_with_one_core_nor_without_a_cache_nor_in_a_frozen_program(cold, monkeypatch):
    started = cold(GOOD)
    for name, value in [("_n_cores", lambda: 1), ("_cache_folder", lambda: None)]:
        with monkeypatch.context() as patch:
            patch.setattr(compile_ahead, name, value)
            compile_ahead.start("float64", "steps")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "frozen", True, raising=False)
        compile_ahead.start("float64", "steps")
    assert not started
