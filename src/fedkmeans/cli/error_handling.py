"""Errors, warnings and Ctrl-C: each becomes one line on standard error, and errors an exit code."""

import errno
import logging
import os
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
from fedkmeans.errors import FedKMeansError, FedKMeansWarning, as_typed

# typer brings its own copy of click or uses the installed one; either way this is its UsageError.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_SUGGESTION = " Did you mean "
_PACKAGE = str(Path(fedkmeans.__file__).parent)


class _PlainHelp:
    """Removes Python's types from the help: <bool> of a flag, <list[Path]> of an argument."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return arguments and options."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
            elif parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda ctx: None
        return parameters


class SingleCommand(_PlainHelp, TyperCommand):
    """A command."""


class SubGroup(_PlainHelp, TyperGroup):
    """A group of commands."""


class Group(SubGroup):
    """The group of all commands; every command runs inside its `invoke`."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; show an error that the user can correct as one line on standard error."""
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
                console.error(as_typed(error))
            except OSError as error:
                if error.errno == errno.EPIPE:  # the reader of a pipe has ended, which is not an error
                    raise
                console.error(_about_file(error))
            raise typer.Exit(WRONG_INPUT) from None


def _about_usage(error: Any) -> str:
    path = error.ctx.command_path if error.ctx is not None else "fedkmeans"
    # Some versions of typer and click both make a suggestion, the same one.
    parts = error.format_message().split(_SUGGESTION)
    message = _SUGGESTION.join(parts[:2]).rstrip(".")
    return f"{message}{'' if message.endswith('?') else '.'} See {path} --help."


def _about_file(error: OSError) -> str:
    file = "the output" if error.filename is None else repr(os.fsdecode(error.filename))
    cause = os.strerror(error.errno) if error.errno else str(error)
    return f"{file}: {cause}; check the path, its permissions and the space on the disk."


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Show the warnings of this package; those of libraries are for programmers."""
    seen: set[str] = set()

    def show(message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any) -> None:
        text = as_typed(message)
        if category in (UserWarning, FedKMeansWarning) and filename.startswith(_PACKAGE) and text not in seen:
            seen.add(text)
            console.note(text)

    with warnings.catch_warnings():
        # Even where Python was told to turn warnings into errors.
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, RuntimeWarning):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = show
        yield


class _Notes(logging.Handler):
    """Writes log records as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        console.note(record.getMessage())


@contextmanager
def _compiling_as_note() -> Iterator[None]:
    """Say that code is being compiled, which takes a while."""
    log, handler = logging.getLogger("fedkmeans.kernels"), _Notes()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
