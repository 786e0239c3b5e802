"""Where messages go: results to standard output, the rest to standard error."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text


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
