"""Words of the command line: counts, why a fit ended, and errors in terms of what can be typed.

The package's errors name Python's parameters, as they should for those who call it from Python. Here,
at one place, these become the options that a person has typed. Imports nothing heavy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedkmeans.cli.options import TUNING

# As the help lists them; others that the package knows are for its own use.
WEIGHTING_NAMES = ("dynamic", "equal", "by_size", "by_compactness")

_STOPPED = {
    "tol": "the centroids hardly move any more (--tol)",
    "tol_score": "the score has settled (--tol-score)",
    "patience": "the movement has not shrunk for long (--patience)",
    "max_rounds": "no more rounds allowed (--max-rounds); more might do better",
    "one shot": "one round is all it takes",
    "interrupted": "it was interrupted",
}

_UNITS = ("kB", "MB", "GB", "TB")

_OPTIONS = {name: f"--{name.replace('_', '-')}" for name in (*TUNING, "n_clients")}
_OPTIONS |= {"n_clusters": "-k", "random_state": "--seed"}
# These are English words as well: they are options only where a message begins with them.
_ALSO_WORDS = {"seed": "--seed", "algorithm": "--algorithm", "alpha": "--alpha", "p": "--p"}
_ALSO_WORDS |= {name: option for name, option in _OPTIONS.items() if "_" not in name}
_NAMES = {name: option for name, option in _OPTIONS.items() if "_" in name}

_NO_VALUE = {"None": "none"}

# What a person has typed or named stands in quotes and stays as it is. An apostrophe is no quote.
_QUOTED = re.compile(r"""((?<!\w)'(?:[^'\\]|\\.)*'(?!\w)|(?<!\w)"(?:[^"\\]|\\.)*"(?!\w))""")
_IN_PYTHON = re.compile(r" \(in Python: .*?\)(?=$|[,;.: ])")
_BOTH_WAYS = re.compile(r"\b\w+=(?:\[\.\.\.\]|\.\.\.) \((--[^()]*)\)")
_OF_SKLEARN = re.compile(r"The '(\w+)' parameter of \w+ must")
_FIRST = re.compile(rf"\A({'|'.join(_ALSO_WORDS)})(?= (?:must|is|holds|cannot|'\w+' does)\b)")
_SET = re.compile(rf"\b({'|'.join(_OPTIONS)})=([\w.+-]*\w)")
_SET_TO_TEXT = re.compile(rf"\b({'|'.join(_OPTIONS)})=\Z")  # a text in quotes follows
_NAME = re.compile(rf"(?<![\w-])({'|'.join(_NAMES)})\b")
_ROWS = re.compile(r"\bn_samples=(\d+)(?: row\(s\)| rows?)?")
# An error of the system, with its number, perhaps another library's words, and a temporary path.
_ERRNO = re.compile(
    r"\[Errno \d+\] (?:Error [^\[;]*\[errno \d+\] )?([^:;'\[]+)(?:: '[^']*'(?: -> '[^']*')?)?"
)


def count(n: int, thing: str) -> str:
    """Count things: 1 client, 4 clients, 1,200 rows."""
    return f"{n:,} {thing}" + ("" if n == 1 else "s")


def size(n_bytes: float) -> str:
    """Write a number of bytes for reading: 198 bytes, 7.2 kB, 1.3 MB."""
    if n_bytes < 1000:
        return count(round(n_bytes), "byte")
    power = min((len(str(round(n_bytes))) - 1) // 3, len(_UNITS))
    return f"{n_bytes / 1000**power:,.1f} {_UNITS[power - 1]}"


def exchanged(history: Mapping[str, Sequence[Any]]) -> str | None:
    """Say how much went to clients and came back in all rounds; None if that was not recorded."""
    if not (history.get("bytes_sent") and history.get("bytes_received")):
        return None
    sent, received = (sum(history[name]) for name in ("bytes_sent", "bytes_received"))
    return f"{size(sent)} to the clients, {size(received)} back"


def why_stopped(reason: str, pooled: bool = False) -> str:
    """Say why a fit ended; a pooled one counts steps."""
    if pooled and reason == "max_rounds":
        return "no more steps allowed (--max-iter); more might do better"
    return _STOPPED.get(reason, reason)


def option(parameter: str) -> str:
    """Return the option that sets a parameter of an estimator."""
    return _OPTIONS[parameter]


def as_typed(message: str) -> str:
    """Say an error of the package in terms of options; text in quotes stays as it is."""
    message = _BOTH_WAYS.sub(r"\1", _IN_PYTHON.sub("", message))
    # What is one parameter in Python is another algorithm here.
    message = message.replace("or memory=None", "or --algorithm wf")
    message = _OF_SKLEARN.sub(lambda found: f"{_OPTIONS.get(found[1], found[1])} must", message)
    message = _ERRNO.sub(r"\1", message)
    parts = _QUOTED.split(message)
    parts[::2] = [_outside_quotes(part) for part in parts[::2]]
    return _FIRST.sub(lambda found: _ALSO_WORDS[found[1]], "".join(parts))


def _outside_quotes(text: str) -> str:
    text = _ROWS.sub(lambda found: count(int(found[1]), "row"), text)
    text = _SET.sub(lambda found: f"{_OPTIONS[found[1]]} {_NO_VALUE.get(found[2], found[2])}", text)
    text = _SET_TO_TEXT.sub(lambda found: f"{_OPTIONS[found[1]]} ", text)
    return _NAME.sub(lambda found: _OPTIONS[found[1]], text)
