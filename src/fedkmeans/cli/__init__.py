"""The command line: ``fedkmeans fit``, ``predict``, ``evaluate``, ``partition``, ``study`` and others.

`commands` and `options` say what can be typed and import nothing heavy, so that help comes at once;
each command's work is in a module of its own, imported when it is asked for.
"""

from __future__ import annotations

import sys

from fedkmeans.cli.commands import app
from fedkmeans.cli.process import end_like_ctrl_c, exit_code, make_streams_safe

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; the entry point of the program ``fedkmeans``."""
    make_streams_safe()
    try:
        end_like_ctrl_c()
        app(prog_name="fedkmeans")
    except KeyboardInterrupt as stop:  # before or after the command itself
        sys.exit(exit_code(stop))
