"""Threads for work that lets other threads run, and matrix products that start none of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

T = TypeVar("T")


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    """Threads are kept: starting them would take longer than a small round."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="fedkmeans")


@cache
def _libraries() -> ThreadpoolController:
    """Finding the loaded libraries takes milliseconds, so it is done once, with all of them loaded."""
    import_module("scipy.linalg")
    return ThreadpoolController()


# A forked process has none of its parent's threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


class _SingleProducts:
    """The limit on matrix products, shared by all threads: set by the first, lifted by the last."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.n_users = 0
        self.limit: Any = None

    def enter(self) -> None:
        with self.lock:
            if self.n_users == 0:
                self.limit = _libraries().limit(limits=1, user_api="blas")
                self.limit.__enter__()
            self.n_users += 1

    def leave(self) -> None:
        with self.lock:
            self.n_users -= 1
            if self.n_users == 0:
                self.limit.__exit__(None, None, None)


_SINGLE = _SingleProducts()


@contextmanager
def single_products() -> Iterator[None]:
    """Let matrix products run in the thread that asks for them: others would fight for the cores."""
    _SINGLE.enter()
    try:
        yield
    finally:
        _SINGLE.leave()


def in_threads(function: Callable[..., T], calls: Sequence[tuple[Any, ...]], n_threads: int) -> list[T]:
    """Call a function with each of the argument lists, `n_threads` at a time; the results in their order."""
    with single_products():
        if n_threads <= 1 or len(calls) <= 1:
            return [function(*arguments) for arguments in calls]
        return list(_pool(n_threads).map(lambda arguments: function(*arguments), calls))


def split_evenly(sizes: Sequence[int], n_parts: int) -> list[slice]:
    """Cut a list into at most `n_parts` runs of about the same total size."""
    parts: list[slice] = []
    total, start, done = sum(sizes), 0, 0
    for place, size in enumerate(sizes):
        done += size
        if done * n_parts >= total * (len(parts) + 1) or place == len(sizes) - 1:
            parts.append(slice(start, place + 1))
            start = place + 1
    return parts
