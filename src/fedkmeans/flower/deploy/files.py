"""Write files that only their owner can read, and TOML, which Python itself can only read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedkmeans._utils.atomic_io import atomic_path


@contextmanager
def private_path(path: Path) -> Iterator[Path]:
    """Like `atomic_path`, and readable only by its owner, even if the folder is not."""
    with atomic_path(path) as temporary:
        temporary.unlink()  # others may have opened it already, and could read what is written
        temporary.touch(0o600, exist_ok=False)
        yield temporary


def write_private(path: Path, content: bytes | str) -> None:
    """Write a file that only its owner can read."""
    with private_path(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def to_toml(table: Mapping[str, Any]) -> str:
    """Return a flat table of texts, numbers, booleans and lists of texts as TOML."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in table.items())


def _value(value: Any) -> str:
    if isinstance(value, bool | int | float):
        return repr(value).lower()
    if isinstance(value, str):
        if "\n" in value and "'" not in value and value.replace("\n", "").isprintable():
            return f"'''\n{value}'''"  # keeps certificates readable
        # A JSON string is also a TOML string, except for the character DEL, which TOML escapes, and for
        # characters that JSON would escape as surrogate pairs.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"{type(value).__name__} cannot be written to our TOML")
