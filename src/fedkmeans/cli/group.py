"""What becomes of errors, warnings and Ctrl-C: one line each, and an exit code."""

from __future__ import annotations

import errno
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from fedkmeans.cli import console
from fedkmeans.errors import FedKMeansError

WRONG_INPUT = 2
INTERRUPTED = 130  # 128 + SIGINT, what shells expect

# typer brings its own copy of click or uses the installed one; either way this is its UsageError.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Group(TyperGroup):
    """The group of all commands; every command runs inside its `invoke`."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command, turning what a person can mend into one line on standard error."""
        if ctx.params.get("debug"):
            return super().invoke(ctx)
        with _warnings_as_notes():
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                console.interrupted("the command was not finished.")
                raise typer.Exit(INTERRUPTED) from None
            except _UsageError as error:
                console.error(_about_usage(error))
            except FedKMeansError as error:
                console.error(str(error))
            except OSError as error:
                if error.errno == errno.EPIPE:  # the reader of a pipe has gone, which is no mistake
                    raise
                console.error(_about_file(error))
            except ValueError as error:
                if not _is_parameter_error(error):
                    raise
                console.error(str(error))
            raise typer.Exit(WRONG_INPUT) from None


def _about_usage(error: Any) -> str:
    path = error.ctx.command_path if error.ctx is not None else "fedkmeans"
    return f"{error.format_message().rstrip('.')}. See {path} --help."


def _about_file(error: OSError) -> str:
    file = "" if error.filename is None else f"{str(error.filename)!r}: "
    return f"{file}{error.strerror or error}; check the path, its permissions and the space on the disk."


def _is_parameter_error(error: ValueError) -> bool:
    # By name: importing scikit-learn's class would load scikit-learn to report an error of another kind.
    return any(kind.__name__ == "InvalidParameterError" for kind in type(error).__mro__)


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    seen: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        text = str(message)
        if text not in seen:
            seen.add(text)
            console.note(text)

    with warnings.catch_warnings():
        # What libraries tell each other about their future is of no use to the person who runs this.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        warnings.showwarning = show
        yield
