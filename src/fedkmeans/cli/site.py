"""``fedkmeans site join``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import typer

from fedkmeans.cli import console
from fedkmeans.cli.inputs import read_source
from fedkmeans.cli.process import exit_code
from fedkmeans.cli.source import Source
from fedkmeans.cli.words import count
from fedkmeans.client.site import Site, SitePolicy
from fedkmeans.errors import FederationError, ParameterError
from fedkmeans.flower.deploy.certificates import check_site_private
from fedkmeans.flower.deploy.join_file import JoinFile
from fedkmeans.flower.deploy.joining import check_server, make_ready, stay_connected
from fedkmeans.flower.deploy.site_programs import check_programs


@dataclass(frozen=True)
class Joining:
    """What `join` was asked to do."""

    join_file: Path
    source: Source
    folder: Path | None
    key: Path | None
    check: bool
    min_cluster_size: int
    port: int


def join_federation(wish: Joining) -> None:
    """Check the rows, keep them ready, connect and stay connected."""
    join = JoinFile.read(wish.join_file)
    if wish.key is not None:
        check_site_private(wish.key.read_bytes(), str(wish.key))
    site = _site(join, wish)
    folder = (wish.folder or wish.join_file.with_suffix("")).resolve()
    member = make_ready(join, site, folder, wish.key)
    rows, columns = site.X.shape
    console.note(
        f"{join.site}: {count(rows, 'row')} of {count(columns, 'column')} are ready in {str(folder)!r}."
    )
    check_programs(member.home)
    missing = check_server(member)
    if wish.check:
        if missing is not None:
            raise FederationError(
                f"The rows are as they should be, but this site cannot join yet ({missing}). Ask whether the "
                "server is running, and whether this network lets you through to it."
            )
        console.say("All is well: the rows are as they should be, and the server is the one it should be.")
        return
    if missing is not None:
        console.note(f"This site cannot join yet ({missing}); it tries again until it can.")
    try:
        stay_connected(member, console.note, wish.port)
    except KeyboardInterrupt as stop:
        console.note(f"{join.site} has left; the same command joins again.")
        raise typer.Exit(exit_code(stop)) from None


def _site(join: JoinFile, wish: Joining) -> Site:
    """The site with its rows, in the columns that were agreed on."""
    source = wish.source
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
    policy = SitePolicy(wish.min_cluster_size)
    return Site(join.site, table.X, feature_names=table.feature_names, policy=policy)
