"""Streams and signals of the process. Imports nothing heavy."""

import atexit
import codecs
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

WRONG_INPUT = 2

_INSTEAD = {"…": "...", "–": "-", "—": "-", "≤": "<=", "×": "x", "√": "sqrt ", "’": "'"}
_AT_ONCE_S = 1.0
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Ended(KeyboardInterrupt):
    """A signal, whose number is the argument, told the process to end; work is saved as after Ctrl-C."""


def exit_code(stop: KeyboardInterrupt) -> int:
    """Return 128 plus the number of the signal, as shells do: 130 for Ctrl-C."""
    return 128 + (stop.args[0] if isinstance(stop, Ended) else signal.SIGINT)


def make_streams_safe() -> None:
    """Replace characters that a stream cannot encode, instead of failing."""
    codecs.register_error("fedkmeans", _something_like_it)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="fedkmeans")


def _something_like_it(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_INSTEAD.get(character, "?") for character in text), error.end


def end_like_ctrl_c() -> None:
    """Make SIGTERM and SIGHUP end a command as Ctrl-C does, unless they are ignored (nohup)."""
    terminals = [number for number in (1, 2) if os.isatty(number)]
    ignored_until = 0.0

    def end(number: int, _: FrameType | None) -> None:
        nonlocal ignored_until
        if time.monotonic() < ignored_until:  # shortly after the first
            return
        ignored_until = time.monotonic() + _AT_ONCE_S
        # Python removes its handlers before it exits; a late signal would change the exit code.
        atexit.register(_ignore)
        if number not in (signal.SIGTERM, signal.SIGINT):
            # The terminal has hung up; writing there would raise an error.
            for terminal in terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), terminal)
        raise Ended(number)

    for number in _SIGNALS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, end)


def _ignore() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore signals while a result is saved; a second Ctrl-C would lose the work."""
    before: dict[int, Any] = {}
    try:
        for number in _SIGNALS:
            before[number] = signal.signal(number, signal.SIG_IGN)
    except ValueError:  # not the main thread, which alone receives signals
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
