"""Words shared by the data errors, so that each is one line and names a file or client and a remedy."""

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

_LONGEST_CAUSE = 200
_MOST_LISTED = 10


def subject(path: Path, client_name: str | None = None) -> str:
    """Name who an error is about: the client when it has a name, and always the file."""
    return f"file {str(path)!r}" if client_name is None else f"client {client_name!r} (file {str(path)!r})"


def one_line(error: BaseException) -> str:
    """Say what another library complained about, on one line of bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST_CAUSE else text[: _LONGEST_CAUSE - 1] + "…"


def listing(names: Iterable[str], most: int = _MOST_LISTED) -> str:
    """List names in quotes; beyond `most` of them, only say how many more there are."""
    quoted = [repr(name) for name in names]
    shown = ", ".join(quoted[:most])
    return shown if len(quoted) <= most else f"{shown} and {len(quoted) - most} more"


def nearest(name: str, known: Sequence[str]) -> str:
    """Suggest the known names nearest to `name`, or list the known ones when none is near."""
    lowered = {candidate.lower(): candidate for candidate in reversed(known)}
    near = [lowered[match] for match in difflib.get_close_matches(name.lower(), list(lowered), n=3)]
    return f"did you mean {listing(near)}?" if near else f"known: {listing(known)}"
