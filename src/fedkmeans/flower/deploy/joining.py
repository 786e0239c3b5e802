"""Prepare a site, and keep its SuperNode connected to the server."""

from __future__ import annotations

import re
import ssl
import subprocess
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from fedkmeans.client.site import Site
from fedkmeans.errors import FederationError, ParameterError
from fedkmeans.flower.deploy import services, site_programs
from fedkmeans.flower.deploy.files import write_private
from fedkmeans.flower.deploy.join_file import JoinFile
from fedkmeans.flower.deploy.services import Say
from fedkmeans.flower.deploy.site_folder import prepare

_LOOK_S, _PAUSE_S = 0.5, 5.0
# The server needs a minute to forget a site that disappeared; until then it refuses to connect it again.
_MOST_REFUSED_S = 90.0
# How far a site's clock may differ from the server's; the limits are Flower's.
_MOST_AHEAD_S, _MOST_BEHIND_S = 5.0, 305.0
# The SuperNode logs this if the server refuses its key.
_REFUSED = "Failed to activate SuperNode"
# The SuperNode logs this if it keeps running but no longer contacts the server, or if a run ended while a
# message of it arrived. In the second case it sends each reply only with the next message.
_STUCK = re.compile(r"ERROR.*(Client error|Server error|SSL|certificate)|Ignoring message", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Member:
    """A site that is ready to connect: what it was told, and the folder with all that a SuperNode needs."""

    join: JoinFile
    folder: Path


def make_ready(join: JoinFile, site: Site, folder: Path, key: Path | None = None) -> Member:
    """Write all that a SuperNode needs to a private folder; `key` is a file with the site's own key."""
    private = join.key.encode() if key is None else key.read_bytes()
    if not private:
        raise ParameterError(
            f"the join file of {join.site!r} has no private key, as the site made its own; name it with --key"
        )
    prepare(folder, site)
    site_programs.write_programs(folder, services.program(site_programs.EXECUTOR))
    write_private(folder / "authority.crt", join.authority)
    write_private(folder / "key", private)
    return Member(join, folder)


def check_server(member: Member) -> str | None:
    """Return why the site cannot join yet, or None if it can; raises if the server's certificate is wrong."""
    host, _, port = member.join.server.rpartition(":")
    context = ssl.create_default_context(cafile=str(member.folder / "authority.crt"))
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
    """Return what is wrong with the clock if the server would refuse all requests because of it.

    The server read its clock between `asked` and `answered`, and reported it in whole seconds.
    """
    try:
        if told is None or (server := parsedate_to_datetime(told)).tzinfo is None:
            return None
    except ValueError:  # a proxy with another format; skip the check
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
    """Run the SuperNode until this process is interrupted; restart it if it ends or stops receiving."""
    program = services.supernode(member.join.server, member.folder, port)
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
        elif time.monotonic() - refused_since > _MOST_REFUSED_S:
            raise FederationError(
                f"The server refuses the key of {member.join.site!r}: it does not know it, or the same site "
                "is connected from elsewhere. Ask who runs the federation."
            )
        say(f"Not connected ({why}); next try in {_PAUSE_S:g} s.")
        time.sleep(_PAUSE_S)
        if (missing := check_server(member)) is not None:
            say(f"This site cannot join yet: {missing}.")


def _watch(process: subprocess.Popen[bytes], log: Path, start: int, say: Say) -> str:
    """Follow a SuperNode's log until the SuperNode ends or stops receiving; returns the reason."""
    n_answers, connected, refused, rest = 0, False, False, b""
    with log.open("rb") as file:
        file.seek(start)
        while True:
            ended = process.poll() is not None
            # Keep an incomplete last line for the next time.
            lines, end, rest = (rest + file.read()).rpartition(b"\n")
            text = (lines + end + (rest if ended else b"")).decode(errors="replace")
            text = services.COLOUR.sub("", text)
            if not connected and "SuperNode ID:" in text:
                connected = True
                say("Connected; waiting for questions. Ctrl-C ends it.")
            if answered := text.count("Sent successfully"):
                n_answers += answered
                say(f"Answered {n_answers} question(s).")
            if connected and (stuck := _STUCK.search(text)):
                return stuck.group(0)[:200]
            # The SuperNode logs more lines after that.
            refused = refused or _REFUSED in text
            if ended:
                return _REFUSED if refused else services.last_line(log)
            time.sleep(_LOOK_S)
