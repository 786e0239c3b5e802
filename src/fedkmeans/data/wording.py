"""Common wording of data errors: each is one line and names a file or client and a remedy."""

import difflib
import os
import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedkmeans.errors import DataError, Setting

DROP_ROWS = Setting("missing", "drop_rows", typed="--missing drop-rows")
DROP_COLUMNS = Setting("drop=[...]", typed="--drop NAME")
CHOOSE_COLUMNS = Setting("columns=[...]", typed="--columns NAME,...")

_LONGEST_CAUSE = 200
_LONGEST_VALUE = 40
_MOST_LISTED = 10
# Some libraries advise to unpickle a file. This advice is unsafe and is not passed on.
_ADVICE = re.compile(r"(?<=[.!?])\s+[^.!?]*(?:allow_pickle|pickle\.load|unsafe)\b.*", re.DOTALL)


def subject(path: Path, client_name: str | None = None) -> str:
    """Name the file of an error, and the client if it has a name."""
    return f"file {str(path)!r}" if client_name is None else f"client {client_name!r} (file {str(path)!r})"


def one_line(error: BaseException) -> str:
    """Return the message of another library's error as one short line without a full stop."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # the caller names the path as the user wrote it
    text = " ".join(_ADVICE.sub("", str(error)).split()) or type(error).__name__
    text = visible(text).rstrip(".;: ")
    return text if len(text) <= _LONGEST_CAUSE else text[: _LONGEST_CAUSE - 1] + "…"


@contextmanager
def reading(who: str, remedy: str, *errors: type[Exception], why: str = "") -> Iterator[None]:
    """Convert `errors` of the block that reads `who` into a DataError with the cause and the remedy."""
    try:
        yield
    except DataError:
        raise
    except errors as error:
        raise DataError(f"{who} cannot be read{why}: {one_line(error)}; {remedy}") from error


def visible(text: str) -> str:
    """Escape control characters, so that text from a file cannot control a terminal."""
    return "".join(repr(letter)[1:-1] if is_control(letter) else letter for letter in text)


def is_control(letter: str) -> bool:
    """Return whether a character is a control character, a lone surrogate or a line separator."""
    return unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")


def short(value: object) -> str:
    """Quote a value from a file, truncated if it is long."""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…")


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 value``, ``2 values``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listing(names: Iterable[str], most: int = _MOST_LISTED) -> str:
    """List up to `most` names in quotes, and say how many more there are."""
    quoted = [repr(name) for name in names]
    shown = ", ".join(quoted[:most])
    return shown if len(quoted) <= most else f"{shown} and {len(quoted) - most} more"


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a sentence that suggests known names similar to `name`, or lists the known names."""
    lowered = {candidate.lower(): candidate for candidate in reversed(known)}
    near = [lowered[match] for match in difflib.get_close_matches(name.lower(), list(lowered), n=3)]
    return f"did you mean {listing(near)}?" if near else f"it has {listing(known) or 'no columns'}."


def drop_these(names: Sequence[str], most: int = 3) -> Setting:
    """Return the setting that leaves out columns."""
    options = " ".join(f"--drop {shlex.quote(name)}" for name in names[:most])
    more = " …" if len(names) > most else ""
    return Setting(f"drop=[{listing(names, most)}]", typed=f"{options}{more}")
