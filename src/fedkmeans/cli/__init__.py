"""The command line: ``fedkmeans fit``, ``predict``, ``evaluate``, ``partition``, ``study`` and others.

`options` and `commands` are tables; `typer_app` makes a program of them. They import nothing heavy, so
that the help appears at once. The module that does the work of a command is imported when it runs.
"""

import sys

from fedkmeans.cli.process import end_like_ctrl_c, exit_code, make_streams_safe
from fedkmeans.cli.typer_app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; the entry point of the program ``fedkmeans``."""
    make_streams_safe()
    try:
        end_like_ctrl_c()
        app(prog_name="fedkmeans")
    except KeyboardInterrupt as stop:  # before or after the command itself
        sys.exit(exit_code(stop))
