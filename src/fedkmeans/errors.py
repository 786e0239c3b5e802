"""Errors that a person can act on: each message names the client, the column and the remedy.

All but :class:`FederationError` and its subclasses are also :class:`ValueError`, so that code written
for scikit-learn's conventions catches them. The command line shows each in one line and exits with 2.

An error keeps the parameter and the remedy as fields. ``str(error)`` writes parameters as Python does
(``max_rounds``), :func:`as_typed` writes them as options (``--max-rounds``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

# Parameters whose option has another name.
_OPTIONS = {"n_clusters": "-k", "random_state": "--seed", "client": "--client-column"}


@dataclass(frozen=True)
class Setting:
    """A parameter within a message, which Python and the command line write differently.

    The value is Ellipsis if the message names the parameter only. `typed` is what to type on the command
    line; None means the option, followed by the value.
    """

    name: str
    value: Any = ...
    typed: str | None = None

    def __str__(self) -> str:
        return self.name if self.value is ... else f"{self.name}={self.value!r}"


Part: TypeAlias = "str | Setting | Message"


class Message:
    """A text in `parts`, of which some may be settings, and a remedy, which says what to do about it.

    If the text is about a `parameter`, it continues after the name of the parameter.
    """

    def __init__(
        self, *parts: Part, parameter: str | None = None, remedy: Part | Sequence[Part] = ()
    ) -> None:
        self.parts, self.parameter = parts, parameter
        self.remedy = (remedy,) if isinstance(remedy, str | Setting | Message) else tuple(remedy)

    def __str__(self) -> str:
        return self._text(str)

    def _text(self, write: Any) -> str:
        text = "".join(map(write, self.parts))
        if self.parameter is not None:
            text = f"{write(Setting(self.parameter))} {text}"
        if self.remedy:
            text += (" " if text.endswith((".", "?")) else "; ") + "".join(map(write, self.remedy))
        return text


def as_typed(part: object) -> str:
    """Write a message, or a part of one, with options in place of parameters."""
    if isinstance(part, Message):
        return part._text(as_typed)
    if not isinstance(part, Setting):
        return str(part)
    if part.typed is not None:
        return part.typed
    option = option_of(part.name)
    if part.value is ...:
        return option
    return f"{option} {'none' if part.value is None else repr(part.value)}"


def option_of(parameter: str) -> str:
    """Return the option that sets a parameter; what is an option already is returned as it is."""
    if parameter.startswith("-"):
        return parameter
    return _OPTIONS.get(parameter, f"--{parameter.replace('_', '-')}")


class FedKMeansError(Message, Exception):
    """Base of every error that this package raises on purpose."""


class FedKMeansWarning(Message, UserWarning):
    """A warning that names parameters."""


class DataError(FedKMeansError, ValueError):
    """The data of a client, or a file, cannot be used as it is."""


class ParameterError(FedKMeansError, ValueError):
    """A parameter has an invalid value."""


class FederationError(FedKMeansError, RuntimeError):
    """The federation cannot continue, for instance because no client answers."""


class WireError(FederationError):
    """Data that was received, or read from a disk, is not what was sent."""


class JournalError(FederationError):
    """The journal of a run cannot be written, or belongs to another run."""


class ModelError(FedKMeansError, ValueError):
    """A saved model cannot be read, or does not fit the data."""


class StudyError(FedKMeansError, ValueError):
    """The plan of a study, or the stored results of its runs, cannot be used."""
