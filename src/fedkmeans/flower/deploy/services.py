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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from fedkmeans.errors import FederationError
from fedkmeans.flower.deploy import site_programs
from fedkmeans.flower.deploy.files import to_toml, write_private
from fedkmeans.flower.deploy.folder import CONNECTION, FLOWER_FOLDER, LOOPBACK, NODES_FILE, FederationFolder
from fedkmeans.flower.server_app import NODES_VARIABLE, RUNS_VARIABLE

Say = Callable[[str], None]  # shows a line to the user

_START_S, _END_S, _CALL_S = 60.0, 15.0, 120.0
_SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",  # seconds; by default Flower looks for work every few seconds
}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# A call for a new process, which then receives SIGTERM when its parent ends, in whatever way. It is prepared
# here, because little may be done between fork and exec.
_PR_SET_PDEATHSIG, _ON_LINUX = 1, sys.platform == "linux"
_END_WITH_PARENT = partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, signal.SIGTERM) if _ON_LINUX else None


@dataclass(frozen=True, slots=True)
class Program:
    """A program, the name of its log, and the variables that it gets beside those of this process."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, logs: Path) -> subprocess.Popen[bytes]:
        """Start it with its own log; signals to this process do not reach it.

        On Linux it ends with this process. Otherwise programs of a killed supervisor would keep running and
        block the ports that the next one needs.
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
                preexec_fn=_END_WITH_PARENT,
            )


def search_path() -> str:
    """Return the search path with Python's folder: Flower's programs start others from there."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def program(name: str) -> str:
    """Return the path of one of Flower's programs, which are in Python's folder."""
    found = shutil.which(name, path=search_path())
    if found is None:
        raise FederationError(
            f"Flower's program {name} is missing. Install it with: pip install 'fedkmeans[flower]'"
        )
    return found


def address(folder: FederationFolder) -> str:
    """Return the address of the SuperLink, on this machine only."""
    return f"{LOOPBACK}:{folder.read().internal_port}"


def superlink(folder: FederationFolder) -> Program:
    """Return the SuperLink, which keeps its state in a database and leaves apps to the executor."""
    command = (
        program("flower-superlink"),
        *("--host", LOOPBACK, "--port", str(folder.read().internal_port)),
        *("--ssl-ca-certfile", str(folder / "authority.crt")),
        *("--ssl-certfile", str(folder / "private/server.crt")),
        *("--ssl-keyfile", str(folder / "private/server.key")),
        "--enable-supernode-auth",
        *("--database", str(folder / "state/superlink.db"), "--isolation", "process"),
        *("--superexec-auth-secret-file", str(folder / "private/executor.secret")),
        "--disable-runtime-dependency-installation",
    )
    return Program("superlink", command, environment(folder))


def executor(folder: FederationFolder) -> Program:
    """Return the executor, which starts our ServerApp when a run starts."""
    command = (
        program("flower-superexec"),
        *("--runtime-api-address", address(folder), "--root-certificates", str(folder / "authority.crt")),
        *("--superexec-auth-secret-file", str(folder / "private/executor.secret")),
    )
    where = {NODES_VARIABLE: str(folder / NODES_FILE), RUNS_VARIABLE: str(folder / "runs")}
    return Program("executor", command, {**environment(folder), **where})


def gate(folder: FederationFolder, host: str = "0.0.0.0") -> Program:
    """Return the gate, to which sites connect."""
    command = (
        *(sys.executable, "-m", "fedkmeans.flower.deploy.gate"),
        *("--host", host, "--port", str(folder.read().port)),
        *("--certificate", str(folder / "private/server.crt"), "--key", str(folder / "private/server.key")),
        *("--superlink", f"https://{address(folder)}", "--authority", str(folder / "authority.crt")),
    )
    return Program("gate", command)


def supernode(server: str, folder: Path, port: int) -> Program:
    """Return the SuperNode of a site's folder, which has the programs that it may start."""
    command = (
        program("flower-supernode"),
        *("--superlink", server, "--root-certificates", str(folder / "authority.crt")),
        *("--auth-supernode-private-key", str(folder / "key"), "--port", str(port)),
        *("--node-config", f"site-folder={json.dumps(str(folder))}"),
    )
    places = {"FLWR_HOME": str(folder / site_programs.HOME), "PATH": str(folder / site_programs.PROGRAMS)}
    return Program("supernode", command, {**_SETTINGS, **places})


def environment(folder: FederationFolder) -> dict[str, str]:
    """Return the environment of Flower's programs at the server; to this machine they use no proxy."""
    places = {"NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK, "FLWR_HOME": str(folder / FLOWER_FOLDER)}
    return {**_SETTINGS, **places}


def configure(folder: FederationFolder) -> None:
    """Write the address of the SuperLink to Flower's configuration."""
    certificate = (folder / "authority.crt").resolve()
    connection = {"address": address(folder), "root-certificates": str(certificate)}
    text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n{to_toml(connection)}'
    (folder / FLOWER_FOLDER).mkdir(parents=True, exist_ok=True)
    write_private(folder / FLOWER_FOLDER / "config.toml", text)  # atomically: another call may be reading it


def flwr(folder: FederationFolder, *arguments: str) -> dict[str, Any]:
    """Call Flower's command line for this federation and return its answer in JSON; raises if it failed."""
    configure(folder)
    done = subprocess.run(
        [program("flwr"), *arguments, "--format", "json"],
        env={**os.environ, **_SETTINGS, "FLWR_HOME": str(folder / FLOWER_FOLDER)},
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
    health = f"https://{address(folder)}/health"
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
    text = COLOUR.sub("", log.read_text(encoding="utf-8", errors="replace")).strip() or "(nothing)"
    return text.splitlines()[-1][-300:]


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
        process.terminate()
    until = time.monotonic() + _END_S
    for process in processes:
        try:
            process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
