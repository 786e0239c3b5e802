"""Work in threads: parts, order, errors, and limits on matrix products that are restored."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from fedkmeans._utils.threads import in_threads, single_products, split_evenly


@pytest.fixture(autouse=True)
def _as_before():
    """Matrix products must use as many threads after a test as before."""
    before = products()
    yield
    assert products() == before


def test_an_empty_list_has_no_parts():
    assert split_evenly([], 3) == []


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 40))
def test_parts_are_contiguous_and_not_too_many(sizes, n_parts):
    parts = split_evenly(sizes, n_parts)
    assert len(parts) <= n_parts
    assert [place for part in parts for place in range(len(sizes))[part]] == list(range(len(sizes)))
    assert all(part.stop > part.start for part in parts)
    largest = max(sum(sizes[part]) for part in parts)
    assert largest < sum(sizes) / n_parts + max(sizes)


def test_with_more_parts_than_items_each_has_one():
    assert split_evenly([3, 3, 3], 10) == [slice(0, 1), slice(1, 2), slice(2, 3)]


def test_one_part_has_all_items():
    assert split_evenly([5, 1, 7], 1) == [slice(0, 3)]


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_results_are_in_order_and_no_calls_give_no_results(n_threads):
    assert in_threads(lambda a, b: a * b, [], n_threads) == []
    assert in_threads(lambda a, b: a * b, [(i, 2) for i in range(20)], n_threads) == list(range(0, 40, 2))


def test_one_thread_is_the_calling_thread():
    asked = in_threads(lambda _: threading.get_ident(), [(0,), (1,)], 1)
    assert asked == [threading.get_ident()] * 2


@pytest.mark.parametrize("n_threads", [2, 3])
def test_all_threads_work_at_once_including_the_calling_thread(n_threads):
    meet = threading.Barrier(n_threads, timeout=30)  # all threads must arrive before any continues

    def work(_):
        meet.wait()
        return threading.get_ident()

    asked = in_threads(work, [(number,) for number in range(2 * n_threads)], n_threads)
    assert threading.get_ident() in asked
    assert len(set(asked)) == n_threads


def test_a_call_does_not_wait_for_threads_that_are_busy_elsewhere():
    busy, free = threading.Event(), threading.Event()

    def occupy(number):
        if number:
            busy.set()
            assert free.wait(30)

    def call():
        in_threads(occupy, [(0,), (1,), (2,)], 2)

    other = threading.Thread(target=call)
    other.start()
    assert busy.wait(30)
    try:
        assert in_threads(lambda number: number, [(1,), (2,)], 2) == [1, 2]
    finally:
        free.set()
        other.join(30)
    assert not other.is_alive()


def test_after_an_error_started_calls_finish_and_no_other_starts():
    begun, going = [], threading.Event()

    def work(number):
        begun.append(number)
        if number == 0:
            going.wait(30)
            raise ValueError("zero")
        going.set()
        time.sleep(0.05)
        begun.append(-number)

    with pytest.raises(ValueError, match="zero"):
        in_threads(work, [(number,) for number in range(50)], 2)
    at_the_end = list(begun)
    time.sleep(0.1)
    assert begun == at_the_end
    assert len([number for number in begun if number > 0]) == len([number for number in begun if number < 0])
    assert len(begun) < 50


@pytest.mark.parametrize("n_threads", [1, 2])
def test_an_error_in_a_thread_is_raised_and_the_threads_stay_usable(n_threads):
    def work(number):
        if number == 3:
            raise ValueError("three")
        return number

    with pytest.raises(ValueError, match="three"):
        in_threads(work, [(number,) for number in range(6)], n_threads)
    assert in_threads(work, [(0,), (1,)], n_threads) == [0, 1]


def products():
    np.ones((2, 2)) @ np.ones((2, 2))
    return sorted((info["filepath"], info["num_threads"]) for info in blas())


def blas():
    return [info for info in threadpool_info() if info["user_api"] == "blas"]


def test_matrix_products_use_one_thread_inside_and_as_many_as_before_outside():
    with single_products():
        assert {info["num_threads"] for info in blas()} <= {1}
        with single_products():
            pass
        assert {info["num_threads"] for info in blas()} <= {1}


def test_a_library_loaded_inside_is_limited_from_the_next_call_on_and_restored_outside():
    script = """
from threadpoolctl import threadpool_info
from fedkmeans._utils.threads import single_products

def threads():
    return {info["filepath"]: info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}

with single_products():
    few = threads()
    import scipy.linalg
    many = threads()
    with single_products():
        assert set(threads().values()) <= {1}, threads()
if set(many) == set(few):
    print("NumPy and SciPy share a library")
else:
    assert {file: n for file, n in threads().items() if file not in few} == {
        file: n for file, n in many.items() if file not in few
    }
"""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if done.stdout:
        pytest.skip(done.stdout.strip())


def test_overlapping_limits_are_restored():
    first, second = single_products(), single_products()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert {info["num_threads"] for info in blas()} <= {1}
    second.__exit__(None, None, None)


def test_limits_of_many_threads_are_restored():
    def work():
        for _ in range(200):
            in_threads(lambda number: number, [(1,), (2,)], 2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
