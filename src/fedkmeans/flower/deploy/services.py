"""Flower's own programs: call, start and stop them with the options that a federation needs."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from fedkmeans.errors import FederationError
from fedkmeans.flower.deploy import site_programs
from fedkmeans.flower.deploy.files import to_toml, write_private
from fedkmeans.flower.deploy.folder import (
    CONNECTION,
    FLOWER_FOLDER,
    LOOPBACK,
    NODES_FILE,
    FederationDetails,
    FederationFolder,
)
from fedkmeans.flower.server_app import NODES_VARIABLE, RUNS_VARIABLE

_START_S, _END_S, _CALL_S = 60.0, 15.0, 120.0
# How often Flower looks for work, in seconds; by default every few seconds.
_POLL = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
_QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Loaded here, because little may be done between fork and exec.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Program:
    """A program, the name of its log, and the variables that it gets beside those of this process."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, logs: Path) -> subprocess.Popen[bytes]:
        """Start it with its own log; signals to this process do not reach it.

        On Linux it receives SIGTERM when this process ends, in whatever way. Otherwise programs of a killed
        supervisor would keep running and block the ports that the next one needs.
        """
        with (logs / f"{self.name}.log").open("ab") as log:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PATH": search_path(), **self.environment},
                start_new_session=True,
                umask=0o077,  # databases and caches are private
                preexec_fn=_end_with_parent if _LIBC is not None else None,
            )


def _end_with_parent() -> None:
    """Send SIGTERM to this process when its parent ends, in whatever way."""
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def search_path() -> str:
    """Return the search path with Python's folder: Flower's programs start others from there."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def program(name: str) -> str:
    """Return the path of one of Flower's programs, which are in Python's folder."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise FederationError(
            f"Flower's program {name} is missing. Install it with: pip install 'fedkmeans[flower]'"
        )
    return found


def address(federation: FederationDetails) -> str:
    """Return the address of the SuperLink, on this machine only."""
    return f"{LOOPBACK}:{federation.internal_port}"


def superlink(folder: FederationFolder) -> Program:
    """Return the SuperLink, which keeps its state in a database and leaves apps to the executor."""
    command = (
        program("flower-superlink"),
        *("--host", LOOPBACK, "--port", str(folder.read().internal_port)),
        *("--ssl-ca-certfile", str(folder / "authority.crt")),
        *("--ssl-certfile", str(folder / "private/server.crt")),
        *("--ssl-keyfile", str(folder / "private/server.key")),
        "--enable-supernode-auth",
        *("--database", str(folder / "state/superlink.db")),
        *("--isolation", "process"),
        *("--superexec-auth-secret-file", str(folder / "private/executor.secret")),
        "--disable-runtime-dependency-installation",
    )
    return Program("superlink", command, environment(folder))


def executor(folder: FederationFolder) -> Program:
    """Return the executor, which starts our ServerApp when a run starts."""
    command = (
        program("flower-superexec"),
        *("--runtime-api-address", address(folder.read())),
        *("--root-certificates", str(folder / "authority.crt")),
        *("--superexec-auth-secret-file", str(folder / "private/executor.secret")),
    )
    where = {NODES_VARIABLE: str(folder / NODES_FILE), RUNS_VARIABLE: str(folder / "runs")}
    return Program("executor", command, {**environment(folder), **where})


def gate(folder: FederationFolder, host: str = "0.0.0.0") -> Program:
    """Return the gate, to which sites connect."""
    federation = folder.read()
    command = (
        *(sys.executable, "-m", "fedkmeans.flower.deploy.gate"),
        *("--host", host, "--port", str(federation.port)),
        *("--certificate", str(folder / "private/server.crt"), "--key", str(folder / "private/server.key")),
        *("--superlink", f"https://{address(federation)}", "--authority", str(folder / "authority.crt")),
    )
    return Program("gate", command)


def supernode(server: str, folder: Path, port: int) -> Program:
    """Return the SuperNode of a site's folder, which has the programs that it may start."""
    command = (
        program("flower-supernode"),
        *("--superlink", server, "--root-certificates", str(folder / "authority.crt")),
        *("--auth-supernode-private-key", str(folder / "key")),
        *("--port", str(port)),
        *("--node-config", f"site-folder={json.dumps(str(folder))}"),
    )
    places = {"FLWR_HOME": str(folder / site_programs.HOME), "PATH": str(folder / site_programs.PROGRAMS)}
    return Program("supernode", command, {**_QUIET, **_POLL, **places})


def environment(folder: FederationFolder) -> dict[str, str]:
    """Return the environment of Flower's programs at the server."""
    # Connections to this machine use no proxy.
    direct = {"NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK}
    return {**_QUIET, **_POLL, **direct, "FLWR_HOME": str(folder / FLOWER_FOLDER)}


def configure(folder: FederationFolder) -> None:
    """Write the address of the SuperLink to Flower's configuration."""
    certificate = (folder / "authority.crt").resolve()
    connection = {"address": address(folder.read()), "root-certificates": str(certificate)}
    text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n{to_toml(connection)}'
    (folder / FLOWER_FOLDER).mkdir(parents=True, exist_ok=True)
    write_private(folder / FLOWER_FOLDER / "config.toml", text)  # atomically: another call may be reading it


def flwr(folder: FederationFolder, *arguments: str) -> dict[str, Any]:
    """Call Flower's command line for the SuperLink of this federation; see `call_flwr`."""
    configure(folder)
    return call_flwr(folder / FLOWER_FOLDER, *arguments)


def call_flwr(home: Path, *arguments: str) -> dict[str, Any]:
    """Call Flower's command line and return its answer in JSON; raises if the command failed.

    The ``config.toml`` in `home`, Flower's folder, has the address of the SuperLink.
    """
    done = subprocess.run(
        [program("flwr"), *arguments, "--format", "json"],
        env={**os.environ, **_QUIET, "FLWR_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=_CALL_S,
        check=False,
    )
    what = f"`flwr {' '.join(arguments[:2])}`"
    try:
        # There may be other output before the JSON.
        answer: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        said = (done.stderr or done.stdout).strip()[-500:]
        raise FederationError(f"{what} failed: {said}") from None
    if not answer.get("success"):
        said = " ".join(str(answer.get("error-message", answer)).split())
        advice = " Start the server with: fedkmeans federation serve" if "unavailable" in said else ""
        raise FederationError(f"{what} failed: {said}{advice}")
    return answer


def is_up(folder: FederationFolder) -> bool:
    """Return whether the SuperLink answers."""
    context = ssl.create_default_context(cafile=str(folder / "authority.crt"))
    health = f"https://{address(folder.read())}/health"
    try:
        return httpx.get(health, verify=context, trust_env=False, timeout=5).is_success
    except httpx.TransportError:
        return False


def wait_until_up(folder: FederationFolder, process: subprocess.Popen[bytes]) -> None:
    """Wait for the SuperLink; raises if it ends or takes too long."""
    until = time.monotonic() + _START_S
    while not is_up(folder):
        if process.poll() is not None or time.monotonic() > until:
            log = folder / "logs" / "superlink.log"
            raise FederationError(f"The SuperLink did not start; {str(log)!r} says why: {last_line(log)}")
        time.sleep(0.2)


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty, without colours."""
    text = COLOUR.sub("", log.read_text(encoding="utf-8", errors="replace"))
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "(nothing)"


def register_sites(folder: FederationFolder) -> dict[str, int]:
    """Register the keys of all sites that are not registered yet; returns each site's node."""
    nodes = folder.nodes()
    for site in folder.read().sites:
        if site not in nodes:
            key = str(folder / "keys" / f"{site}.pub")
            answer = flwr(folder, "supernode", "register", key, CONNECTION, "--name", site)
            nodes[site] = int(answer["node-id"])
            folder.keep_nodes(nodes)
    return nodes


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Stop programs with SIGTERM, and with SIGKILL if they do not end in time."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    until = time.monotonic() + _END_S
    for process in processes:
        try:
            process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
