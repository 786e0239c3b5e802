"""Where the command line writes: results to standard output, all else to standard error."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


@cache
def out() -> Console:
    """Return the console for results."""
    from rich.console import Console

    return Console(highlight=False)


@cache
def err() -> Console:
    """Return the console for progress, notes and errors; one, so that a live bar and notes get along."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def say(message: str) -> None:
    """Write one line of result, below an empty one."""
    out().print()
    _line(out(), message)


def note(message: str) -> None:
    """Write one line that deserves attention but stops nothing."""
    _line(err(), message, "Note: ", "yellow")


def error(message: str) -> None:
    """Write the one line that says why it did not work."""
    _line(err(), message, "Error: ", "bold red")


def interrupted(message: str) -> None:
    """Write the one line that says what is left after Ctrl-C."""
    _line(err(), message, "Interrupted: ", "bold yellow")


def plain(text: str) -> str:
    """Write as escapes what a terminal would act upon; names come from files."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _line(console: Console, message: str, head: str = "", style: str = "") -> None:
    from rich.text import Text

    # Joined, as one message is one line; soft, so that lines in a file or a pipe are not broken.
    joined = " ".join(part.strip() for part in message.splitlines())
    console.print(Text.assemble((head, style), plain(joined)), soft_wrap=True)


def write_json(found: dict[str, Any]) -> None:
    """Write a result for programs, in ASCII where the output can hold no more."""
    import typer

    from fedkmeans.model_card import to_json

    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    typer.echo(to_json(found, indent=2, ascii_only=not encoding.lower().startswith("utf")))


def show_facts(title: str, rows: list[tuple[str, Any]]) -> None:
    """Write a title and below it what and how much, in two columns."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for what, value in rows:
        table.add_row(what, Text(plain(str(value))))
    out().print(Text(plain(title), style="bold"), soft_wrap=True)
    out().print(table)


def show_grid(title: str, header: list[tuple[str, bool]], rows: list[list[str]], most: int = 30) -> None:
    """Write a table; `header` has (name, whether of numbers), and of many rows only the first are shown."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name, of_numbers in header:
        table.add_column(plain(name), justify="right" if of_numbers else "left", overflow="fold")
    for row in rows[:most]:
        table.add_row(*(Text(plain(cell)) for cell in row))
    out().print()
    out().print(Text(plain(title), style="bold"), soft_wrap=True)
    out().print(table)
    if len(rows) > most:
        out().print(f"… and {len(rows) - most:,} more", style="dim")


def number(value: float | int | None) -> str:
    """Write a number for reading: six digits, in groups of three before the point."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
