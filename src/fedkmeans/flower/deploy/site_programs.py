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

# Parts of a site's folder: Flower's own, and the only folder on the search path.
HOME, PROGRAMS = "flower", "flower/bin"
EXECUTOR, APP = "flower-superexec", "flwr-clientapp"
# Programs that Flower's executor starts for other kinds of tasks; each runs what the server sent.
REFUSED = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")


def write_programs(site_folder: Path, executor: str) -> None:
    """Write the programs; `executor` is the path of Flower's own."""
    folder = site_folder / PROGRAMS
    if os.pathsep in str(folder):
        raise FederationError(
            f"A site's folder must not have {os.pathsep!r} in its path, as {str(folder)!r} has: programs "
            "would not be found there. Name another folder."
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Without -P, Python also finds modules in the current folder.
    ours = [sys.executable, "-P", "-m", "fedkmeans.flower.only_app"]
    commands = {EXECUTOR: f'exec {shlex.quote(executor)} "$@"', APP: f'exec {shlex.join(ours)} "$@"'}
    for name in REFUSED:
        commands[name] = f'echo "{name}: this site runs the app of fedkmeans and no other" >&2; exit 1'
    for name, command in commands.items():
        with atomic_path(folder / name) as temporary:
            temporary.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
            temporary.chmod(0o700)


def check_programs(site_folder: Path) -> None:
    """Raise if our app cannot be started."""
    path = site_folder / PROGRAMS / APP
    # By default, Flower's folder is in the home folder, and a service may have none.
    surroundings = {**os.environ, "FLWR_HOME": str(site_folder / HOME)}
    try:
        subprocess.run([path, "--help"], env=surroundings, capture_output=True, check=True, timeout=120)
    except PermissionError:
        raise FederationError(
            f"{str(path)!r} cannot be started. Is the disk mounted without the right to execute (noexec)? "
            "Name another folder."
        ) from None
    except (OSError, subprocess.SubprocessError) as error:
        # The last line that the program printed, or else Python's message.
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip() or str(error)
        raise FederationError(f"{str(path)!r} cannot be started: {said.splitlines()[-1]}") from None
