"""The time that compiled code takes to get ready is counted once, told once, and charged to no run."""

import logging
import time
from threading import Barrier, Thread

import pytest

from fedkmeans.cli import error_handling
from fedkmeans.kernels import preparation
from fedkmeans.kernels.preparation import Stopwatch, announce_compiling, preparing


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on only when it is told to."""

    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    found = Clock()
    monkeypatch.setattr(preparation.time, "perf_counter", found)
    monkeypatch.setattr(preparation, "PREPARATION", preparation._Preparation())
    return found


def test_preparation_is_told_apart_from_the_rest(clock):
    clock.now = 5.0
    with preparing():
        clock.now += 100.0  # before the run
    stopwatch = Stopwatch()
    clock.now += 1.0
    with preparing():
        clock.now += 10.0
        assert (stopwatch.seconds(), stopwatch.preparation()) == (1.0, 10.0)  # also while it goes on
    clock.now += 0.5
    assert (stopwatch.seconds(), stopwatch.preparation()) == (1.5, 10.0)


def test_parts_of_parts_count_once(clock):
    stopwatch = Stopwatch()
    with preparing():
        clock.now += 1.0
        with preparing():
            clock.now += 2.0
        clock.now += 4.0
    assert stopwatch.preparation() == 7.0


def test_an_error_ends_it(clock):
    stopwatch = Stopwatch()

    def fail():
        with preparing():
            clock.now += 1.0
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    clock.now += 2.0
    assert (stopwatch.seconds(), stopwatch.preparation()) == (2.0, 1.0)


def test_threads_that_prepare_at_the_same_time_count_once():
    barrier, stopwatch = Barrier(4), Stopwatch()

    def work():
        with preparing():
            barrier.wait()
            time.sleep(0.05)
            barrier.wait()

    threads = [Thread(target=work) for _ in range(4)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0.05 <= stopwatch.preparation() <= time.perf_counter() - started


def test_compiling_is_told_once_and_commands_show_it(caplog, capsys):
    announce_compiling.cache_clear()
    with caplog.at_level(logging.INFO, "fedkmeans.kernels"), error_handling._compiling_as_note():
        announce_compiling(True)
        announce_compiling(True)
    assert [record.getMessage() for record in caplog.records] == [
        "Compiling for this kind of data, once on this machine; it takes ten seconds or so."
    ]
    assert capsys.readouterr().err.count("Note: Compiling for this kind of data") == 1
    log = logging.getLogger("fedkmeans.kernels")
    assert not log.handlers  # as it was
