"""Run calls in threads, with matrix products limited to one thread each."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
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


@cache
def _libraries(with_scipy: bool) -> Any:
    """Find the loaded BLAS libraries, which takes milliseconds; repeated only after SciPy was loaded."""
    return ThreadpoolController().select(user_api="blas")


# A forked process has none of its parent's threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


class _SingleProducts:
    """The limit on matrix products, shared by all threads: the first sets it, the last lifts it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.n_users = 0
        self.libraries: Any = None
        self.limits = ExitStack()

    def __enter__(self) -> None:
        with self.lock:
            # NumPy's library, and SciPy's, which compiled code uses. While another thread loads SciPy, the
            # module has no `blas` yet.
            libraries = _libraries(hasattr(sys.modules.get("scipy.linalg"), "blas"))
            if self.n_users == 0 or libraries is not self.libraries:  # a library was loaded since
                self.libraries = libraries
                self.limits.callback(libraries.limit(limits=1).restore_original_limits)
            self.n_users += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.n_users -= 1
            if self.n_users == 0:
                self.limits.close()


_SINGLE = _SingleProducts()


def single_products() -> _SingleProducts:
    """Run matrix products in the calling thread, so that they do not compete for the cores."""
    return _SINGLE


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
            while True:
                try:
                    place, arguments = todo.popleft()
                except IndexError:
                    return
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
