"""Which data a command was asked to read. Imports nothing heavy."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import typer


@dataclass(frozen=True)
class Source:
    """Files and how to read them.

    Attributes
    ----------
    paths : tuple of pathlib.Path
        Files and folders.
    label, client_column : str or None
    columns : tuple of str or None
    drop : tuple of str
        Both as typed: what a comma in them means is known once a file's columns are.
    missing : str
        "error" or "drop-rows".
    header : bool or None
        Whether the first line of a text file names the columns; None means that it is guessed.
    """

    paths: tuple[Path, ...] = ()
    label: str | None = None
    client_column: str | None = None
    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    missing: str = "error"
    header: bool | None = None


@dataclass(frozen=True)
class BuiltIn:
    """A built-in data set, and how to deal it out to clients; None means not given."""

    name: str
    how: str | None = None
    n_clients: int | None = None
    options: tuple[tuple[str, float], ...] = ()


def names(values: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """Split what was given with commas, or repeated, or both; the exact name of a column is not split.

    A name with a comma in a list is put in quotes, as in CSV.
    """
    found: list[str] = []
    for value in values:
        # A quotation mark means something only where there is a comma to protect.
        fields = [value]
        if value not in known and "," in value:
            fields = next(csv.reader([value], skipinitialspace=True))
        found += [field if field in known else field.strip() for field in fields]
    return tuple(name for name in found if name)


def source_of(
    data: list[Path] | None,
    label: str | None = None,
    client_column: str | None = None,
    columns: list[str] | None = None,
    drop: list[str] | None = None,
    missing: str = "error",
    header: str | None = None,
) -> Source:
    """Put what was typed together; refuse words that mean nothing."""
    chosen = None if not columns else tuple(columns)
    for name, value, allowed in (
        ("--missing", missing, ("error", "drop-rows")),
        ("--header", header, (None, "yes", "no")),
    ):
        if value not in allowed:
            choices = " or ".join(word for word in allowed if word)
            raise typer.BadParameter(f"must be {choices}, got {value!r}.", param_hint=name)
    is_there = None if header is None else header == "yes"
    return Source(tuple(data or ()), label, client_column, chosen, tuple(drop or ()), missing, is_there)
