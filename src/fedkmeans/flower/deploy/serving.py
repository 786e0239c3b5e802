"""The server of a federation: it starts, watches and stops three programs."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedkmeans.errors import FederationError
from fedkmeans.flower.deploy import services
from fedkmeans.flower.deploy.certificates import days_left
from fedkmeans.flower.deploy.folder import LOOPBACK, FederationFolder
from fedkmeans.flower.deploy.services import Program, Say

_LOOK_S = 0.5
# A program that ends is restarted after a pause, which doubles up to the longest.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_SOON_DAYS = 30
# Programs of a killed server need a moment to end and release their ports.
_PORT_S = 15.0


class Watched:
    """A program that is restarted when it ends."""

    def __init__(self, program: Program, logs: Path) -> None:
        self.program, self.logs, self.pause = program, logs, _FIRST_PAUSE_S
        self.start()

    def start(self) -> None:
        """Start it."""
        self.process, self.started = self.program.start(self.logs), time.monotonic()
        self.again: float | None = None  # when to start it again

    def look(self, say: Say) -> None:
        """Restart it if it has ended, and say so."""
        now, code = time.monotonic(), self.process.poll()
        if code is not None and self.again is None:
            if now - self.started > 2 * _LONGEST_PAUSE_S:  # it ran for long enough
                self.pause = _FIRST_PAUSE_S
            log = self.logs / f"{self.program.name}.log"
            say(
                f"The {self.program.name} ended (exit code {code}: {services.last_line(log)}); it is "
                f"started again in {self.pause:g} s."
            )
            self.again = now + self.pause
            self.pause = min(2 * self.pause, _LONGEST_PAUSE_S)
        elif self.again is not None and now >= self.again:
            self.start()


def serve(folder: FederationFolder, say: Say, host: str) -> None:
    """Run the server until interrupted, with the gate at the address `host`; then stop all its programs."""
    federation = folder.read()
    _check_certificate(folder, say)
    with _only_one(folder):
        _wait_for_port(LOOPBACK, federation.internal_port, "internal_port")
        _wait_for_port(host, federation.port, "port")
        logs = folder / "logs"
        watched = [Watched(services.superlink(folder), logs)]
        try:
            services.wait_until_up(folder, watched[0].process)
            n_sites = len(services.register_sites(folder))
            others = (services.gate(folder, host), services.executor(folder))
            watched.extend(Watched(program, logs) for program in others)
            say(f"{federation.name}: {n_sites} site(s) may connect to {federation.host}:{federation.port}.")
            while True:
                time.sleep(_LOOK_S)
                for one in watched:
                    one.look(say)
        finally:
            services.end([one.process for one in reversed(watched)])


def _check_certificate(folder: FederationFolder, say: Say) -> None:
    left = days_left((folder / "private/server.crt").read_bytes())
    renew = f"renew it with: fedkmeans federation renew {folder.path}"
    if left <= 0:
        raise FederationError(f"The server's certificate has expired, so no site would connect; {renew}")
    if left < _SOON_DAYS:
        say(f"The server's certificate expires in {left:.0f} day(s); {renew}")


def _wait_for_port(host: str, port: int, name: str) -> None:
    """Wait until a port is free; raises if that takes too long."""
    until = time.monotonic() + _PORT_S
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                return
            except OSError as error:
                reason = error.strerror or error
        if time.monotonic() > until:
            raise FederationError(
                f"Port {port} cannot be used ({reason}). Is the server running already? Else change "
                f"{name} in federation.toml; sites need new join files if it is `port`."
            )
        time.sleep(_LOOK_S)


@contextmanager
def _only_one(folder: FederationFolder) -> Iterator[None]:
    """Refuse to serve a folder twice; the lock is released when the process ends, in whatever way."""
    with (folder / "state" / "lock").open("w") as file:
        with suppress(ImportError):  # not on every system; the ports are checked anyway
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise FederationError(f"{str(folder.path)!r} is being served already.") from None
        yield
