"""Words shared by the data errors, so that each is one line and names a file or client and a remedy."""

import difflib
import os
import re
import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedkmeans.errors import Setting

DROP_ROWS = Setting("missing", "drop_rows", typed="--missing drop-rows")
DROP_COLUMNS = Setting("drop=[...]", typed="--drop NAME")
CHOOSE_COLUMNS = Setting("columns=[...]", typed="--columns NAME,...")

_LONGEST_CAUSE = 200
_LONGEST_VALUE = 40
_MOST_LISTED = 10
# A library's advice to unpickle a file is the last thing to pass on to someone who may not trust it.
_ADVICE = re.compile(r"(?<=[.!?])\s+[^.!?]*(?:allow_pickle|pickle\.load|unsafe)\b.*", re.DOTALL)


def subject(path: Path, client_name: str | None = None) -> str:
    """Name who an error is about: the client when it has a name, and always the file."""
    return f"file {str(path)!r}" if client_name is None else f"client {client_name!r} (file {str(path)!r})"


def one_line(error: BaseException) -> str:
    """Say what another library complained about, on one line of bounded length, without a full stop."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # the path is named by the caller, in the words of the user
    text = " ".join(_ADVICE.sub("", str(error)).split()) or type(error).__name__
    text = visible(text).rstrip(".;: ")
    return text if len(text) <= _LONGEST_CAUSE else text[: _LONGEST_CAUSE - 1] + "…"


def visible(text: str) -> str:
    """Write control characters as escapes, so that no text from a file steers a terminal."""
    return "".join(repr(letter)[1:-1] if is_control(letter) else letter for letter in text)


def is_control(letter: str) -> bool:
    """Tell whether a character is a control character, a lone surrogate or a line separator."""
    return unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")


def short(value: object) -> str:
    """Quote a value from a file, cut to a bounded length."""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…")


def count(number: int, noun: str) -> str:
    """Say how many there are: ``1 value``, ``2 values``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listing(names: Iterable[str], most: int = _MOST_LISTED) -> str:
    """List names in quotes; beyond `most` of them, only say how many more there are."""
    quoted = [repr(name) for name in names]
    shown = ", ".join(quoted[:most])
    return shown if len(quoted) <= most else f"{shown} and {len(quoted) - most} more"


def nearest(name: str, known: Sequence[str]) -> str:
    """Suggest the known names nearest to `name`, or list the known ones when none is near; a sentence."""
    lowered = {candidate.lower(): candidate for candidate in reversed(known)}
    near = [lowered[match] for match in difflib.get_close_matches(name.lower(), list(lowered), n=3)]
    return f"did you mean {listing(near)}?" if near else f"it has {listing(known) or 'no columns'}."


def drop_these(names: Sequence[str], most: int = 3) -> Setting:
    """Return the setting that leaves out columns."""
    options = " ".join(f"--drop {shlex.quote(name)}" for name in names[:most])
    more = " …" if len(names) > most else ""
    return Setting(f"drop=[{listing(names, most)}]", typed=f"{options}{more}")
