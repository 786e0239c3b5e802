"""Writing TOML: the few kinds of values that our files have. Python reads it and does not write it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def to_toml(table: Mapping[str, Any]) -> str:
    """Write a flat table of texts, numbers, truth values and lists of texts."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in table.items())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        if "\n" in value and "'" not in value and value.replace("\n", "").isprintable():
            return f"'''\n{value}'''"  # a certificate reads better as it is
        # A text of JSON is one of TOML, but for the character that only TOML wants to be escaped, and
        # for those that JSON would escape in two halves.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"{type(value).__name__} cannot be written to our TOML")
