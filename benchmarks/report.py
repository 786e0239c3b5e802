"""Markdown tables, printed row by row while a section runs, or from its file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A title, a note on how the rows were measured, and the columns."""

    title: str
    note: str
    columns: tuple[tuple[str, Callable[[Row], str]], ...]


def opening(table: Table) -> str:
    headings = [heading for heading, _ in table.columns]
    rule = ["-" * len(heading) for heading in headings]
    return f"\n### {table.title}\n\n{table.note}\n\n{_line(headings)}\n{_line(rule)}"


def line(table: Table, row: Row) -> str:
    return _line([cell(row).ljust(len(heading)) for heading, cell in table.columns])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def machine_line(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    load = "" if machine["load"] is None else f", load {machine['load']:.1f} at the start"
    return f"{machine['cores']} cores of {machine['cpu']}{load}; Python {machine['python']}, {versions}."


def field(name: str, pattern: str = "{}") -> Callable[[Row], str]:
    """A cell with a value of the row; a dash if there is none."""
    return lambda row: "–" if row.get(name) is None else pattern.format(row[name])


def shape(row: Row) -> str:
    return f"{row['n']:,} × {row['m']}"


def duration(name: str) -> Callable[[Row], str]:
    """A cell with the median of a spread of seconds."""

    def cell(row: Row) -> str:
        if row.get(name) is None:
            return "–"
        median = row[name]["median"]
        return f"{_number(median)} s" if median >= 1 else f"{_number(median * 1e3)} ms"

    return cell


def times(name: str) -> Callable[[Row], str]:
    """A cell with a spread of ratios, or with the difference if the two sides have different answers."""

    def cell(row: Row) -> str:
        if not row.get("agreed", True):
            return f"**answers differ by {row['difference']:.1e}**"
        ratio = row.get(name)
        if ratio is None:
            return "–"
        return f"{_number(ratio['median'])}× ({_number(ratio['min'])}–{_number(ratio['max'])})"

    return cell


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def save(folder: Path, section: str, content: dict[str, Any]) -> None:
    """Write `machine`, `settings` and `rows` of a section."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{section}.json").write_text(json.dumps(content, indent=1) + "\n")


def print_saved(folder: Path, sections: dict[str, dict[str, Table]]) -> None:
    """Print the tables of all sections that have a file in the folder."""
    for section, tables in sections.items():
        path = folder / f"{section}.json"
        if not path.exists():
            continue
        content = json.loads(path.read_text())
        print(f"\n## {section}\n\n{machine_line(content['machine'])}")
        if content["settings"]["quick"]:
            print("\n**A quick run, which only checks that it works; its numbers mean little.**")
        for name, table in tables.items():
            rows = [row for row in content["rows"] if row["table"] == name]
            if rows:
                print(opening(table))
                for row in rows:
                    print(line(table, row))
