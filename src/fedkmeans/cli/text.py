"""Numbers and reasons in words: counts, sizes, durations, and why a fit stopped. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_STOPPED = {
    "tol": "the centroids hardly move any more (--tol)",
    "tol_score": "the score has settled (--tol-score)",
    "patience": "the movement has not shrunk for long (--patience)",
    "max_rounds": "no more rounds allowed (--max-rounds); more might do better",
    "one shot": "one round is all it takes",
    "interrupted": "it was interrupted",
}

_UNITS = ("kB", "MB", "GB", "TB")


def count(n: int, thing: str) -> str:
    """Count things: 1 client, 4 clients, 1,200 rows."""
    return f"{n:,} {thing}" + ("" if n == 1 else "s")


def size(n_bytes: float) -> str:
    """Write a number of bytes: 198 bytes, 7.2 kB, 1.3 MB."""
    if n_bytes < 1000:
        return count(round(n_bytes), "byte")
    power = min((len(str(round(n_bytes))) - 1) // 3, len(_UNITS))
    return f"{n_bytes / 1000**power:,.1f} {_UNITS[power - 1]}"


def duration(seconds: float) -> str:
    """Write a time: 4.2 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def exchanged(history: Mapping[str, Sequence[Any]]) -> str | None:
    """Say how many bytes all rounds sent and received; None if that was not recorded."""
    if not (history.get("bytes_sent") and history.get("bytes_received")):
        return None
    sent, received = (sum(history[name]) for name in ("bytes_sent", "bytes_received"))
    return f"{size(sent)} to the clients, {size(received)} back"


def why_stopped(reason: str, pooled: bool = False) -> str:
    """Say why a fit stopped; a pooled one counts steps."""
    if pooled and reason == "max_rounds":
        return "no more steps allowed (--max-iter); more might do better"
    return _STOPPED.get(reason, reason)
