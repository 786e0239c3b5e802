"""What becomes of errors, warnings and Ctrl-C: one line each, and an exit code."""

from __future__ import annotations

import errno
import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

import fedkmeans
from fedkmeans.cli import console
from fedkmeans.cli.process import WRONG_INPUT, exit_code
from fedkmeans.cli.words import as_typed
from fedkmeans.errors import FedKMeansError

# typer brings its own copy of click or uses the installed one; either way this is its UsageError.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_TWICE = re.compile(r"( Did you mean [^?]*\?)\1")
_PACKAGE = str(Path(fedkmeans.__file__).parent)


def _without_types(parameters: list[Any]) -> list[Any]:
    """Take out of the help what only programmers read: <bool> at a flag, <list[Path]> at an argument."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        elif parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None
    return parameters


def with_examples(*paragraphs: str, examples: str) -> str:
    """Put a help text together; the mark keeps the lines of the examples as they are."""
    return "\n\n".join([*paragraphs, f"\b\n[bold]Examples[/bold]\n{examples.strip(chr(10))}"])


class Command(TyperCommand):
    """A command whose help is for those who type it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments and options."""
        return _without_types(super().get_params(ctx))


class SubGroup(TyperGroup):
    """A group of commands; its help is for those who type it, too."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options that stand before a command."""
        return _without_types(super().get_params(ctx))


class Group(SubGroup):
    """The group of all commands; every command runs inside its `invoke`."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command, turning what a person can mend into one line on standard error."""
        if ctx.params.get("debug"):
            return super().invoke(ctx)
        with _warnings_as_notes(), _compiling_as_note():
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as stop:
                console.interrupted("the command was not finished.")
                raise typer.Exit(exit_code(stop)) from None
            except _UsageError as error:
                console.error(_about_usage(error))
            except FedKMeansError as error:
                console.error(as_typed(str(error)))
            except OSError as error:
                if error.errno == errno.EPIPE:  # the reader of a pipe has gone, which is no mistake
                    raise
                console.error(_about_file(error))
            except ValueError as error:
                if not _is_parameter_error(error):
                    raise
                console.error(as_typed(str(error)))
            raise typer.Exit(WRONG_INPUT) from None


def _about_usage(error: Any) -> str:
    path = error.ctx.command_path if error.ctx is not None else "fedkmeans"
    # Some versions of typer and click both make a suggestion, the same one.
    message = _TWICE.sub(r"\1", error.format_message()).rstrip(".")
    return f"{message}{'' if message.endswith('?') else '.'} See {path} --help."


def _about_file(error: OSError) -> str:
    file = "the output" if error.filename is None else repr(os.fsdecode(error.filename))
    cause = os.strerror(error.errno) if error.errno else str(error)
    return f"{file}: {cause}; check the path, its permissions and the space on the disk."


def _is_parameter_error(error: ValueError) -> bool:
    # By name: importing scikit-learn's class would load scikit-learn to report an error of another kind.
    return any(kind.__name__ == "InvalidParameterError" for kind in type(error).__mro__)


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Show what this package warns of; what libraries tell programmers is of no use to who runs this."""
    seen: set[str] = set()

    def show(message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any) -> None:
        text = as_typed(str(message))
        if category is UserWarning and filename.startswith(_PACKAGE) and text not in seen:
            seen.add(text)
            console.note(text)

    with warnings.catch_warnings():
        # Even where Python was told to turn warnings into errors.
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, RuntimeWarning):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = show
        yield


class _Notes(logging.Handler):
    """Writes what is logged as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        console.note(record.getMessage())


@contextmanager
def _compiling_as_note() -> Iterator[None]:
    """Say why nothing seems to happen while code is compiled."""
    log, handler = logging.getLogger("fedkmeans.kernels"), _Notes()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
