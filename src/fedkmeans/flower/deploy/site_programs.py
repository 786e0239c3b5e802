"""The programs that a site's SuperNode may start: nothing else is on its search path.

Flower finds programs by name. The search path of a site has one folder. In it, the executor is Flower's,
the app for a message is ours (`only_app`), and all other programs refuse to run.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from fedkmeans._utils.atomic_io import atomic_path
from fedkmeans.errors import FederationError

EXECUTOR, APP = "flower-superexec", "flwr-clientapp"
# Programs that Flower's executor starts for other kinds of tasks; each runs what the server sent.
REFUSED = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")


def folder_of(home: Path) -> Path:
    """Return the only folder on the search path."""
    return home / "bin"


def write_programs(home: Path, executor: str) -> None:
    """Write the programs; `executor` is the path of Flower's own."""
    folder = folder_of(home)
    if os.pathsep in str(folder):
        raise FederationError(
            f"A site's folder must not have {os.pathsep!r} in its path, as {str(folder)!r} has: programs "
            "would not be found there. Name another folder."
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Without -P, Python also finds modules in the current folder.
    ours = [sys.executable, "-P", "-m", "fedkmeans.flower.only_app"]
    _write(folder / EXECUTOR, f'exec {shlex.quote(executor)} "$@"')
    _write(folder / APP, f'exec {shlex.join(ours)} "$@"')
    for name in REFUSED:
        _write(folder / name, f'echo "{name}: this site runs the app of fedkmeans and no other" >&2; exit 1')


def _write(path: Path, command: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        temporary.chmod(0o700)


def check_programs(home: Path) -> None:
    """Raise if our app cannot be started."""
    path = folder_of(home) / APP
    try:
        # Set Flower's folder: by default it is in the home folder, and a service may have none.
        surroundings = {**os.environ, "FLWR_HOME": str(home)}
        subprocess.run([path, "--help"], env=surroundings, capture_output=True, check=True, timeout=120)
    except PermissionError:
        raise FederationError(
            f"{str(path)!r} cannot be started. Is the disk mounted without the right to execute (noexec)? "
            "Name another folder."
        ) from None
    except (OSError, subprocess.SubprocessError) as error:
        raise FederationError(f"{str(path)!r} cannot be started: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Return the last line that a program printed, or else Python's message."""
    said = getattr(error, "stderr", None) or b""
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else str(error)
