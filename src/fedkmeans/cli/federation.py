"""``fedkmeans federation`` new, add, remove, serve, renew and status, and ``fedkmeans site join``."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from fedkmeans._utils.checks import check_real
from fedkmeans.cli import console
from fedkmeans.cli.console import count
from fedkmeans.cli.files import Source, names, read_source
from fedkmeans.cli.process import exit_code
from fedkmeans.client.site import Site, SitePolicy
from fedkmeans.errors import FederationError, ParameterError
from fedkmeans.flower.deploy import certificates, services
from fedkmeans.flower.deploy.folder import (
    CONNECTION,
    FederationDetails,
    FederationFolder,
    new_federation,
    renew_server,
)
from fedkmeans.flower.deploy.join_file import JoinFile
from fedkmeans.flower.deploy.joining import check_server, make_ready, stay_connected
from fedkmeans.flower.deploy.membership import add_sites, remove_site
from fedkmeans.flower.deploy.run_folder import RunFolder
from fedkmeans.flower.deploy.serving import serve
from fedkmeans.flower.deploy.site_programs import check_programs

_HAND_OVER = "Hand each site its file, safely, and delete it here: it holds the site's private key."


def make_federation(
    *,
    folder: Path,
    name: str | None,
    site: list[str],
    columns: list[str] | None,
    public_key: list[str] | None,
    **address: Any,
) -> None:
    """Make the folder, and say what to do with it; `address` is host, port and internal_port."""
    called = name or folder.resolve().name
    federation = FederationDetails(called, sites=names(site), columns=names(columns or ()), **address)
    made = new_federation(folder, federation, _public_keys(public_key))
    _show_join_files(made, federation.name, federation.sites)
    console.say(f"{_HAND_OVER} Then start the server: fedkmeans federation serve {shlex.quote(str(folder))}")


def _show_join_files(folder: FederationFolder, name: str, sites: Sequence[str]) -> None:
    rows = [(site, str(folder / "join" / f"{site}.toml")) for site in sites]
    console.show_facts(f"{name}, {count(len(rows), 'site')}", rows)


def add_to_federation(*, folder: Path, site: list[str], public_key: list[str] | None) -> None:
    """Make join files for more sites, and say what to do with them."""
    federation, new = FederationFolder(folder.resolve()), names(site)
    known = add_sites(federation, new, _public_keys(public_key))
    _show_join_files(federation, federation.read().name, new)
    console.say(_HAND_OVER if known else f"{_HAND_OVER} The server will know them when it is started.")


def remove_from_federation(*, folder: Path, site: str) -> None:
    """Remove a site, and say so."""
    remove_site(FederationFolder(folder.resolve()), site)
    console.say(f"{site} is removed: its key is of no use any more. Runs that begin now go without it.")


def _public_keys(texts: list[str] | None) -> dict[str, bytes]:
    keys = {}
    for text in texts or ():
        site, equals, file = text.partition("=")
        if not equals:
            raise ParameterError(f"must be SITE=FILE, got {text!r}", parameter="public_key")
        keys[site] = certificates.read_site_public(Path(file).read_bytes(), file)
    return keys


def serve_federation(*, folder: Path, listen: str) -> None:
    """Serve until interrupted."""
    with _until_ctrl_c("The server has ended; started again, it goes on where it was."):
        serve(FederationFolder(folder.resolve()), console.note, listen)


@contextmanager
def _until_ctrl_c(message: str) -> Iterator[None]:
    """Say something when Ctrl-C ends what goes on until then."""
    try:
        yield
    except KeyboardInterrupt as stop:
        console.note(message)
        raise typer.Exit(exit_code(stop)) from None


def renew_certificate(*, folder: Path, days: float) -> None:
    """Make a new certificate for the server."""
    check_real("--days", days, low=0, high=certificates.AUTHORITY_DAYS, low_open=True)
    federation = FederationFolder(folder)
    renew_server(federation, days)
    left = certificates.days_left((federation / "private/server.crt").read_bytes())
    console.say(f"The new certificate is good for {left:.0f} days. Start the server again for it to be used.")


def tell_status(*, folder: Path, json: bool) -> None:
    """Show which sites are connected, and the state of the runs."""
    federation = FederationFolder(folder.resolve())
    found = status_of(federation)
    if json:
        console.write_json(found)
        return
    state = "running" if found["server"] else "not running"
    left = found["certificate_days"]
    rows = [("server", state), ("certificate", f"good for {left:.0f} days" if left > 0 else "expired")]
    rows += [(f"site {name}", status) for name, status in found["sites"].items()]
    for name, run in found["runs"].items():
        stands = f"{run.get('status', 'not begun')}, {count(run['rounds'], 'round')}"
        rows.append((f"run {name}", f"{stands}: {run['reason']}" if "reason" in run else stands))
    console.show_facts(federation.read().name, rows)


def status_of(folder: FederationFolder) -> dict[str, Any]:
    """Return the state of a federation, its sites and runs."""
    sites, nodes = folder.read().sites, folder.nodes()
    up = services.is_up(folder)
    listed = services.flwr(folder, "supernode", "list", CONNECTION)["nodes"] if up else []
    online = {str(node["node-id"]): node["status"] for node in listed}
    otherwise = "not registered" if up else "unknown"
    runs = {}
    for path in sorted(path for path in (folder / "runs").iterdir() if path.is_dir()):
        rounds = [line["round"] for line in RunFolder(path).progress()]
        runs[path.name] = {**RunFolder(path).status(), "rounds": rounds[-1] if rounds else 0}
    return {
        "server": up,
        "certificate_days": certificates.days_left((folder / "private/server.crt").read_bytes()),
        "sites": {site: online.get(str(nodes.get(site)), otherwise) for site in sites},
        "runs": runs,
    }


def join_federation(
    *,
    join_file: Path,
    data: Path,
    folder: Path | None,
    key: Path | None,
    check: bool,
    min_cluster_size: int,
    port: int,
    source: dict[str, Any],
) -> None:
    """Check the rows, store them for answers, connect and stay connected."""
    join = JoinFile.read(join_file)
    if key is not None:
        certificates.check_site_private(key.read_bytes(), str(key))
    site = _site(join, Source.of(data, **source), SitePolicy(min_cluster_size))
    folder = (folder or join_file.with_suffix("")).resolve()
    member = make_ready(join, site, folder, key)
    rows, columns = site.X.shape
    console.note(
        f"{join.site}: {count(rows, 'row')} of {count(columns, 'column')} are ready in {str(folder)!r}."
    )
    check_programs(member.folder)
    missing = check_server(member)
    if check:
        if missing is not None:
            raise FederationError(
                f"The rows are as they should be, but this site cannot join yet ({missing}). Ask whether the "
                "server is running, and whether this network lets you through to it."
            )
        console.say("All is well: the rows are as they should be, and the server is the one it should be.")
        return
    if missing is not None:
        console.note(f"This site cannot join yet ({missing}); it tries again until it can.")
    with _until_ctrl_c(f"{join.site} has left; the same command joins again."):
        stay_connected(member, console.note, port)


def _site(join: JoinFile, source: Source, policy: SitePolicy) -> Site:
    """Return the site with its rows, in the columns of the join file."""
    if join.columns:
        if source.columns is not None:
            raise ParameterError("the join file says which columns all sites have; leave out --columns")
        source = replace(source, columns=join.columns)
    tables = read_source(source, fixed_columns=bool(join.columns))
    if len(tables) != 1:
        raise ParameterError(
            f"--data must be one file with the rows of one site; it holds {len(tables)} tables"
        )
    (table,) = tables
    return Site(join.site, table.X, feature_names=table.feature_names, policy=policy)
