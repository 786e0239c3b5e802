"""The programs that a site's SuperNode may start: nothing else is on its search path.

Flower finds what it starts by name. A site's path has one folder, in which the executor is Flower's, the app
for a message is ours (`only_app`), and whatever else a server might ask for says no.
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
# What else Flower's executor would start for a task of that kind; each runs what the server sent.
REFUSED = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")


def folder_of(home: Path) -> Path:
    """The only folder on the search path."""
    return home / "bin"


def write_programs(home: Path, executor: str) -> None:
    """Write them; `executor` is the path of Flower's own."""
    folder = folder_of(home)
    if os.pathsep in str(folder):
        raise FederationError(
            f"A site's folder must not have {os.pathsep!r} in its path, as {str(folder)!r} has: programs "
            "would not be found there. Name another folder."
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Without -P Python would look for modules in whatever folder a person is in.
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
    """Refuse to begin where our app cannot be started."""
    path = folder_of(home) / APP
    try:
        # With Flower's folder named: it would look for one in the home, and a service may have none.
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
    """What a program said last, or else what Python says."""
    said = getattr(error, "stderr", None) or b""
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else str(error)
