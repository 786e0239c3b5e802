"""Run calls in threads, with matrix products limited to one thread each."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from itertools import starmap
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

T = TypeVar("T")


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    """Return a pool that is kept: starting threads would take longer than a small round."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="fedkmeans")


def _libraries() -> list[Any]:
    """Return the loaded BLAS libraries: NumPy's, and SciPy's, which compiled code uses."""
    # While another thread loads SciPy, the module has no `blas` yet.
    return _look_for_libraries(hasattr(sys.modules.get("scipy.linalg"), "blas"))


@cache
def _look_for_libraries(with_scipy: bool) -> list[Any]:
    """Search for libraries, which takes milliseconds; repeated only after SciPy was loaded."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


# A forked process has none of its parent's threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


class _SingleProducts:
    """The limit on matrix products, shared by all threads: the first sets it, the last lifts it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.n_users = 0
        self.found: list[Any] = []  # libraries at the last search
        self.before: list[tuple[Any, int]] = []  # libraries with several threads, and their number

    def enter(self) -> None:
        with self.lock:
            found = _libraries()
            if self.n_users == 0 or found is not self.found:  # a library was loaded since
                several = [(library, library.num_threads) for library in found]
                self.before += [(library, n) for library, n in several if n > 1]
                self.found = found
                for library, _ in self.before:
                    library.set_num_threads(1)
            self.n_users += 1

    def leave(self) -> None:
        with self.lock:
            self.n_users -= 1
            if self.n_users == 0:
                for library, n_threads in self.before:
                    library.set_num_threads(n_threads)
                self.before.clear()


_SINGLE = _SingleProducts()


@contextmanager
def single_products() -> Iterator[None]:
    """Run matrix products in the calling thread, so that they do not compete for the cores."""
    _SINGLE.enter()
    try:
        yield
    finally:
        _SINGLE.leave()


def _next(todo: deque[T]) -> T | None:
    """Take the next item, or None; safe in several threads."""
    try:
        return todo.popleft()
    except IndexError:
        return None


def in_threads(function: Callable[..., T], calls: Sequence[tuple[Any, ...]], n_threads: int) -> list[T]:
    """Call a function with each of the argument lists, `n_threads` at a time; return results in order.

    The calling thread works too, because waking another thread takes as long as a small call.
    """
    with single_products():
        if n_threads <= 1 or len(calls) <= 1:
            return list(starmap(function, calls))
        results: dict[int, T] = {}
        todo = deque(enumerate(calls))

        def work() -> None:
            while (call := _next(todo)) is not None:
                place, arguments = call
                results[place] = function(*arguments)

        helpers = [_pool(n_threads).submit(work) for _ in range(min(n_threads, len(calls)) - 1)]
        try:
            work()
        finally:
            todo.clear()  # after an error, no further call starts
            begun = [helper for helper in helpers if not helper.cancel()]
            wait(begun)
        for helper in begun:
            helper.result()
        return [results[place] for place in range(len(calls))]


def split_evenly(sizes: Sequence[int], n_parts: int) -> list[slice]:
    """Split a list into at most `n_parts` contiguous parts of about the same total size."""
    if n_parts <= 1:
        return [slice(0, len(sizes))][: len(sizes)]
    parts: list[slice] = []
    total, start, done = sum(sizes), 0, 0
    for place, size in enumerate(sizes):
        done += size
        if done * n_parts >= total * (len(parts) + 1) or place == len(sizes) - 1:
            parts.append(slice(start, place + 1))
            start = place + 1
    return parts
