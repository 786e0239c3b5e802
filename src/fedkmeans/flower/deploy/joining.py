"""A site's side: keep its rows ready, and keep Flower's SuperNode connected to the server."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from fedkmeans.client.site import Site
from fedkmeans.errors import FederationError, ParameterError
from fedkmeans.flower.deploy import services, site_programs
from fedkmeans.flower.deploy.join_file import JoinFile
from fedkmeans.flower.deploy.site_folder import prepare

Say = Callable[[str], None]

_LOOK_S, _PAUSE_S = 0.5, 5.0
# The server forgets a site that vanished after a minute; until then it takes no other in its place.
_PATIENCE_S = 90.0
# How far a site's clock may differ from the server's: Flower's own limits.
_MOST_AHEAD_S, _MOST_BEHIND_S = 5.0, 305.0
# What the SuperNode writes when the server refuses its key.
_REFUSED = "Failed to activate SuperNode"
# ... and when it goes on living but will never ask the server again; or when a run ended while a message
# of it came in, after which it sends every reply only when the next message comes.
_DEAF = re.compile(r"ERROR.*(Client error|Server error|SSL|certificate)|Ignoring message", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Member:
    """A site that is ready to connect."""

    join: JoinFile
    folder: Path

    @property
    def authority(self) -> Path:
        """The certificate by which the server is known."""
        return self.folder / "authority.crt"

    @property
    def home(self) -> Path:
        """Flower's folder."""
        return self.folder / "flower"

    @property
    def key(self) -> Path:
        """The site's private key."""
        return self.folder / "key"


def make_ready(join: JoinFile, site: Site, folder: Path, key: Path | None = None) -> Member:
    """Write all that a SuperNode needs into a folder that only its owner can read.

    Parameters
    ----------
    join : JoinFile
    site : Site
    folder : pathlib.Path
    key : pathlib.Path or None
        The site's own private key, if the join file has none.
    """
    member = Member(join, folder)
    private = join.key.encode()
    if key is not None:
        private = key.read_bytes()
    if not private:
        raise ParameterError(
            f"the join file of {join.site!r} has no private key, as the site made its own; name it with --key"
        )
    prepare(folder, site)
    site_programs.write_programs(member.home, services.program(site_programs.EXECUTOR))
    member.authority.write_text(join.authority, encoding="utf-8")
    handle = os.open(member.key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(private)
    return member


def check_server(member: Member) -> str | None:
    """Look whether the server can be trusted; returns why a site cannot join yet, if it cannot.

    Raises
    ------
    FederationError
        Somebody answers who is not the server, or whose certificate has expired.
    """
    host, _, port = member.join.server.rpartition(":")
    context = ssl.create_default_context(cafile=str(member.authority))
    with closing(HTTPSConnection(host, int(port), timeout=10, context=context)) as connection:
        try:
            connection.connect()
            asked = datetime.now(UTC)
            connection.request("HEAD", "/")
            told = connection.getresponse().getheader("date")
        except ssl.SSLCertVerificationError as error:
            raise FederationError(_about_certificate(member.join.server, error)) from None
        except OSError as error:
            return f"{member.join.server}: {error.strerror or error}"
        except HTTPException as error:
            return f"{member.join.server}: {error!r}"
    return _about_clock(told, asked, datetime.now(UTC))


def _about_clock(told: str | None, asked: datetime, answered: datetime) -> str | None:
    """What is wrong with the clock, if the server would refuse every request for it, and not say why.

    The server looked at its clock between `asked` and `answered`, and told it in whole seconds.
    """
    try:
        if told is None or (server := parsedate_to_datetime(told)).tzinfo is None:
            return None
    except ValueError:  # of a proxy that has its own way to tell it; what follows will show
        return None
    ahead = (asked - server).total_seconds() - 1
    behind = (server - answered).total_seconds()
    if ahead <= _MOST_AHEAD_S and behind <= _MOST_BEHIND_S:
        return None
    differs = f"{ahead:.0f} s ahead of" if ahead > 0 else f"{behind:.0f} s behind"
    return (
        f"the clock of this computer is {differs} the server's, and requests are signed with the time; set "
        "the clocks, for instance by NTP"
    )


def _about_certificate(server: str, error: ssl.SSLCertVerificationError) -> str:
    if "expired" in error.verify_message:
        return f"The certificate of {server} has expired. Ask who runs the federation to renew it."
    if "mismatch" in error.verify_message or "not valid for" in error.verify_message:
        return f"The certificate of {server} was made for another name. Ask for a new join file."
    return (
        f"Whoever answers at {server} is not the server of this federation ({error.verify_message}). "
        "Send nothing, and ask who runs the federation."
    )


def stay_connected(member: Member, say: Say, port: int) -> None:
    """Run the SuperNode until this process is interrupted; it is started again when it ends or goes deaf."""
    program = services.supernode(
        member.join.server, member.authority, member.key, member.folder, member.home, port
    )
    log = member.folder / f"{program.name}.log"
    refused_since: float | None = None
    while True:
        start = log.stat().st_size if log.exists() else 0
        process = program.start(member.folder)
        try:
            why = _watch(process, log, start, say)
        finally:
            services.end([process])
        if _REFUSED not in why:
            refused_since = None
        elif refused_since is None:
            refused_since = time.monotonic()
        elif time.monotonic() - refused_since > _PATIENCE_S:
            raise FederationError(
                f"The server refuses the key of {member.join.site!r}: it does not know it, or the same site "
                "is connected from elsewhere. Ask who runs the federation."
            )
        say(f"Not connected ({why}); next try in {_PAUSE_S:g} s.")
        time.sleep(_PAUSE_S)
        missing = check_server(member)
        if missing is not None:
            say(f"This site cannot join yet: {missing}.")


def _watch(process: subprocess.Popen[bytes], log: Path, start: int, say: Say) -> str:
    """Follow a SuperNode's log until it ends or goes deaf; returns why."""
    n_answers, connected, refused, rest = 0, False, False, b""
    with log.open("rb") as file:
        file.seek(start)
        while True:
            ended = process.poll() is not None
            # What comes after the last end of a line is looked at when the line is whole.
            lines, end, rest = (rest + file.read()).rpartition(b"\n")
            text = (lines + end + (rest if ended else b"")).decode(errors="replace")
            text = _COLOUR.sub("", text)
            if not connected and "SuperNode ID:" in text:
                connected = True
                say("Connected; waiting for questions. Ctrl-C ends it.")
            answered = text.count("Sent successfully")
            if answered:
                n_answers += answered
                say(f"Answered {n_answers} question(s).")
            deaf = _DEAF.search(text) if connected else None
            if deaf is not None:
                return deaf.group(0)[:200]
            # It goes on writing for a while after that.
            refused = refused or _REFUSED in text
            if ended:
                return _REFUSED if refused else services.last_line(log)
            time.sleep(_LOOK_S)
