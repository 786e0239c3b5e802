"""``fedkmeans federation`` new, serve, status and renew."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from fedkmeans._utils.checks import check_real
from fedkmeans.cli import console
from fedkmeans.cli.process import exit_code
from fedkmeans.cli.source import names
from fedkmeans.cli.words import count
from fedkmeans.errors import FederationError, ParameterError
from fedkmeans.flower.deploy import services
from fedkmeans.flower.deploy.certificates import AUTHORITY_DAYS, days_left, read_site_public
from fedkmeans.flower.deploy.folder import (
    CONNECTION,
    FederationDetails,
    FederationFolder,
    new_federation,
    renew_server,
)
from fedkmeans.flower.deploy.membership import add_sites, remove_site
from fedkmeans.flower.deploy.run_folder import RunFolder
from fedkmeans.flower.deploy.serving import serve

_HAND_OVER = "Hand each site its file, safely, and delete it here: it holds the site's private key."


def make_federation(
    path: Path,
    name: str | None,
    host: str,
    sites: list[str],
    columns: list[str],
    port: int,
    internal_port: int,
    public_keys: list[str],
) -> None:
    """Make the folder, and say what to do with it."""
    federation = FederationDetails(
        name=name or path.resolve().name,
        host=host,
        port=port,
        internal_port=internal_port,
        sites=names(sites, ()),
        columns=names(columns, ()),
    )
    folder = new_federation(path, federation, dict(_public_key(text) for text in public_keys))
    _show_join_files(folder, federation.name, federation.sites)
    console.say(f"{_HAND_OVER} Then start the server: fedkmeans federation serve {shlex.quote(str(path))}")


def _show_join_files(folder: FederationFolder, name: str, sites: Sequence[str]) -> None:
    rows = [(site, str(folder / "join" / f"{site}.toml")) for site in sites]
    console.show_facts(f"{name}, {count(len(rows), 'site')}", rows)


def add_to_federation(path: Path, sites: list[str], public_keys: list[str]) -> None:
    """Make join files for more sites, and say what to do with them."""
    folder, new = FederationFolder(path.resolve()), names(sites, ())
    known = add_sites(folder, new, dict(_public_key(text) for text in public_keys))
    _show_join_files(folder, folder.read().name, new)
    console.say(_HAND_OVER if known else f"{_HAND_OVER} The server will know them when it is started.")


def remove_from_federation(path: Path, site: str) -> None:
    """Remove a site, and say so."""
    remove_site(FederationFolder(path.resolve()), site)
    console.say(f"{site} is removed: its key is of no use any more. Runs that begin now go without it.")


def _public_key(text: str) -> tuple[str, bytes]:
    site, equals, file = text.partition("=")
    if not equals:
        raise ParameterError(f"--public-key must be SITE=FILE, got {text!r}")
    return site, read_site_public(Path(file).read_bytes(), file)


def serve_federation(path: Path, host: str) -> None:
    """Serve until interrupted."""
    try:
        serve(FederationFolder(path.resolve()), console.note, host)
    except KeyboardInterrupt as stop:
        console.note("The server has ended; started again, it goes on where it was.")
        raise typer.Exit(exit_code(stop)) from None


def renew_certificate(path: Path, days: float) -> None:
    """Make a new certificate and say until when it is good."""
    check_real("--days", days, low=0, high=AUTHORITY_DAYS, low_open=True)
    folder = FederationFolder(path)
    renew_server(folder, days)
    left = days_left((folder / "private/server.crt").read_bytes())
    console.say(f"The new certificate is good for {left:.0f} days. Start the server again for it to be used.")


def tell_status(path: Path, json: bool) -> None:
    """Say who is connected and how the runs stand."""
    folder = FederationFolder(path.resolve())
    found = status_of(folder)
    if json:
        console.write_json(found)
        return
    state = "running" if found["server"] else "not running"
    left = found["certificate_days"]
    rows = [("server", state), ("certificate", f"good for {left:.0f} days" if left > 0 else "expired")]
    rows += [(f"site {name}", status) for name, status in found["sites"].items()]
    rows += [(f"run {name}", _about_run(run)) for name, run in found["runs"].items()]
    console.show_facts(folder.read().name, rows)


def status_of(folder: FederationFolder) -> dict[str, Any]:
    """What is known about a federation, as plain data."""
    federation = folder.read()
    up = services.is_up(folder)
    online: dict[str, str] = {}
    if up:
        listed = services.flwr(folder, "supernode", "list", CONNECTION)["nodes"]
        online = {str(node["node-id"]): node["status"] for node in listed}
    nodes = folder.nodes()
    return {
        "server": up,
        "certificate_days": days_left((folder / "private/server.crt").read_bytes()),
        "sites": {
            site: online.get(str(nodes.get(site)), "unknown" if not up else "not registered")
            for site in federation.sites
        },
        "runs": {
            path.name: _run_status(path) for path in sorted((folder / "runs").iterdir()) if path.is_dir()
        },
    }


def _run_status(path: Path) -> dict[str, Any]:
    run = RunFolder(path)
    lines = list(run.progress())
    return {**run.status(), "rounds": lines[-1]["round"] if lines else 0}


def _about_run(run: dict[str, Any]) -> str:
    text = f"{run.get('status', 'not begun')}, {count(run['rounds'], 'round')}"
    return f"{text}: {run['reason']}" if "reason" in run else text


def check_served(folder: FederationFolder) -> None:
    """Raise unless the server is running."""
    if not services.is_up(folder):
        raise FederationError(
            "The server is not running. Start it with: fedkmeans federation serve "
            f"{shlex.quote(str(folder.path))}"
        )
