"""Numbers, rounds and reasons in words. Imports nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.filesize import decimal

_STOPPED = {
    "tol": "the centroids hardly move any more (--tol)",
    "tol_score": "the score has settled (--tol-score)",
    "patience": "the movement has not shrunk for long (--patience)",
    "max_rounds": "no more rounds allowed (--max-rounds); more might do better",
    "one shot": "one round is all it takes",
    "interrupted": "it was interrupted",
}


def number(value: float | int | None) -> str:
    """Write a number with six digits, in groups of three before the point."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def count(n: int, thing: str) -> str:
    """Count things: 1 client, 4 clients, 1,200 rows."""
    return f"{n:,} {thing}" + ("" if n == 1 else "s")


def duration(seconds: float) -> str:
    """Write a time: 4.2 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def exchanged(history: Mapping[str, Sequence[Any]]) -> str:
    """Say how many bytes all rounds sent and received; empty if that was not recorded."""
    if not (history.get("bytes_sent") and history.get("bytes_received")):
        return ""
    sent, received = (decimal(sum(history[name])) for name in ("bytes_sent", "bytes_received"))
    return f"{sent} to the clients, {received} back"


def why_stopped(reason: str, pooled: bool = False) -> str:
    """Say why a fit stopped; a pooled one counts steps."""
    if pooled and reason == "max_rounds":
        return "no more steps allowed (--max-iter); more might do better"
    return _STOPPED.get(reason, reason)


def about_result(card: Mapping[str, Any], pooled: bool = False) -> list[tuple[str, str]]:
    """Return the facts that every summary of a fit has."""
    data, result = card["data"], card["result"]
    return [
        ("rows", number(data["n_samples"])),
        ("columns", number(data["n_features"])),
        ("steps" if pooled else "rounds", number(result["n_rounds"])),
        ("stopped because", why_stopped(result["stop_reason"], pooled)),
        ("score per sample", number(result["score_per_sample"])),
    ]


def about_round(done: int, of: int | None, estimate: float | None, movement: float, *more: str) -> str:
    """Describe a round; `estimate` is the score as far as the server can tell."""
    which = f"round {done:,} of at most {of:,}" if of else f"round {done:,}"
    return ", ".join(filter(None, (which, about_score(estimate), f"movement {movement:.2e}", *more)))


def about_score(estimate: float | None) -> str:
    """Write the score that the server estimates; empty if it cannot."""
    # "About": over the clients that answered so far, each at the centroids that it was sent.
    return "" if estimate is None or not math.isfinite(estimate) else f"score about {estimate:.4g}"


def time_left(at_most: str, seconds: float, done: int, todo: int) -> str:
    """Say how long `todo` more rounds take at most, if `done` rounds took so long; empty after none."""
    return f"{at_most} {duration(seconds / done * todo)} left" if done else ""
