"""Which data a command was asked to read. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


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
    missing : str
        "error" or "drop-rows".
    """

    paths: tuple[Path, ...] = ()
    label: str | None = None
    client_column: str | None = None
    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    missing: str = "error"


@dataclass(frozen=True)
class BuiltIn:
    """A built-in data set, and how to deal it out to clients; None means not given."""

    name: str
    how: str | None = None
    n_clients: int | None = None
    options: tuple[tuple[str, float], ...] = ()


def names(values: Sequence[str] | None) -> tuple[str, ...]:
    """Split what was given with commas, or repeated, or both."""
    return tuple(name.strip() for value in values or () for name in value.split(",") if name.strip())
