"""Words: results go to standard output, the rest to standard error; numbers, rounds and reasons in words."""

import math
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

_STOPPED = {
    "tol": "the centroids hardly move any more (--tol)",
    "tol_score": "the score has settled (--tol-score)",
    "patience": "the movement has not shrunk for long (--patience)",
    "max_rounds": "no more rounds allowed (--max-rounds); more might do better",
    "one shot": "one round is all it takes",
    "interrupted": "it was interrupted",
}


@cache
def out() -> Console:
    """Return the console for results."""
    return Console(highlight=False)


@cache
def err() -> Console:
    """Return the console for progress, notes and errors; sharing it keeps notes out of a live bar."""
    return Console(stderr=True, highlight=False)


def say(message: str) -> None:
    """Write one line of result, below an empty one."""
    out().print()
    _line(out(), message)


def note(message: str) -> None:
    """Write a note in one line."""
    _line(err(), message, "Note: ", "yellow")


def error(message: str) -> None:
    """Write an error in one line."""
    _line(err(), message, "Error: ", "bold red")


def interrupted(message: str) -> None:
    """Write in one line what is left after Ctrl-C."""
    _line(err(), message, "Interrupted: ", "bold yellow")


def plain(text: str) -> str:
    """Escape control characters; names come from files and could control a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _line(console: Console, message: str, head: str = "", style: str = "") -> None:
    # One message is one line; soft wrapping does not break lines in a file or a pipe.
    joined = " ".join(part.strip() for part in message.splitlines())
    console.print(Text.assemble((head, style), plain(joined)), soft_wrap=True)


def write_json(found: dict[str, Any]) -> None:
    """Write a result as JSON, in ASCII if the output has another encoding than UTF-8."""
    from fedkmeans.model_card import to_json

    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    typer.echo(to_json(found, indent=2, ascii_only=not encoding.lower().startswith("utf")))


def show_facts(title: str, rows: list[tuple[str, Any]]) -> None:
    """Write a title and a table of names and values, without those that are empty."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for what, value in rows:
        if value != "":
            table.add_row(what, Text(plain(str(value))))
    out().print(Text(plain(title), style="bold"), soft_wrap=True)
    out().print(table)


def show_grid(
    title: str, texts: list[str], numbers: list[str], rows: list[list[str]], most: int = 30
) -> None:
    """Write a table with at most `most` rows, columns of texts before columns of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name in texts:
        table.add_column(plain(name), overflow="fold")
    for name in numbers:
        table.add_column(plain(name), justify="right", overflow="fold")
    for row in rows[:most]:
        table.add_row(*(Text(plain(cell)) for cell in row))
    out().print()
    out().print(Text(plain(title), style="bold"), soft_wrap=True)
    out().print(table)
    if len(rows) > most:
        out().print(f"… and {len(rows) - most:,} more", style="dim")


# --- in words ----------------------------------------------------------------------------------


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
