"""The folder of a federation at the server, as ``fedkmeans federation new`` creates it.

::

    federation.toml         name, host, ports, sites; may be edited
    authority.crt           public: in every join file
    private/                authority.key, server.key, server.crt, executor.secret; mode 0700
    keys/SITE.pub           the sites' public keys
    join/SITE.toml          one per site, to be sent and deleted: the only copy of its private key
    app/                    the Flower app, two lines that name this package
    state/                  SuperLink's database, the nodes of the sites, Flower's configuration
    logs/                   one file per program
    runs/NAME/              one folder per run
"""

from __future__ import annotations

import json
import os
import re
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedkmeans import __version__
from fedkmeans._utils.atomic_io import atomic_folder, atomic_path
from fedkmeans._utils.checks import check_integer
from fedkmeans.errors import ParameterError, Setting
from fedkmeans.flower.deploy import certificates
from fedkmeans.flower.deploy.certificates import Certified
from fedkmeans.flower.deploy.join_file import JoinFile
from fedkmeans.flower.deploy.settings import RunSettings, to_run_config
from fedkmeans.flower.deploy.toml import to_toml

SETTINGS_FILE = "federation.toml"
# Name of the SuperLink in Flower's configuration.
CONNECTION = "fedkmeans"
LOOPBACK = "127.0.0.1"
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45}")
_SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True, slots=True)
class FederationDetails:
    """The content of ``federation.toml``.

    Attributes
    ----------
    name : str
    host : str
        Name or address by which sites reach the server.
    port : int
        The port for sites, and the only one that must be open to them.
    internal_port : int
        The port of the SuperLink, open to this machine only.
    sites, columns : tuple of str
    """

    name: str
    host: str
    port: int
    internal_port: int
    sites: tuple[str, ...]
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for port in (self.port, self.internal_port):
            if check_integer("port", port) > 65_535:
                raise ParameterError(f"must be at most 65535, got {port}", parameter="port")
        if self.port == self.internal_port:
            raise ParameterError(
                "and ", Setting("internal_port"), f" are both {self.port}; they must differ", parameter="port"
            )
        if not _HOST.fullmatch(self.host):
            raise ParameterError(
                f"host {self.host!r} is no name or address of a server; leave out https:// and the port, and "
                "write other letters than a to z as in xn--mnchen-3ya.de"
            )
        if not self.sites:
            raise ParameterError("a federation needs at least one site; name them with --site")
        for site in self.sites:
            check_site_name(site)
        if len(set(self.sites)) < len(self.sites):
            raise ParameterError("two sites have the same name; give each a name of its own")
        if len(set(self.columns)) < len(self.columns):
            raise ParameterError("two columns have the same name; name each of them once")


def check_site_name(name: str) -> None:
    """Refuse a name that is not a valid file name on every system."""
    if not _SITE_NAME.fullmatch(name):
        raise ParameterError(
            f"site {name!r} cannot be called so; use up to 63 letters, digits, dots, dashes and underscores, "
            "beginning with a letter or digit"
        )


@dataclass(frozen=True, slots=True)
class FederationFolder:
    """A federation's folder on the server."""

    path: Path

    def __truediv__(self, part: str) -> Path:
        return self.path / part

    @property
    def database(self) -> Path:
        """Database of the SuperLink, which it needs after a restart."""
        return self / "state" / "superlink.db"

    @property
    def nodes_file(self) -> Path:
        """File with the Flower node of each site."""
        return self / "state" / "nodes.json"

    @property
    def flower_home(self) -> Path:
        """Flower's own folder, with the address of the SuperLink."""
        return self / "state" / "flower"

    def read(self) -> FederationDetails:
        """Read ``federation.toml``."""
        path = self / SETTINGS_FILE
        try:
            table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
            return FederationDetails(
                name=str(table["name"]),
                host=str(table["host"]),
                port=table["port"],
                internal_port=table["internal_port"],
                sites=_texts(table, "sites"),
                columns=_texts({"columns": [], **table}, "columns"),
            )
        except OSError as error:
            raise ParameterError(
                f"{str(self.path)!r} is no folder of a federation ({error.strerror}: "
                f"{SETTINGS_FILE}); make one with: fedkmeans federation new DIR"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ParameterError(f"{str(path)!r} is not TOML: {error}; correct it") from None
        except (KeyError, TypeError) as error:
            raise ParameterError(f"{str(path)!r} lacks or has a wrong entry: {error}; correct it") from None

    def nodes(self) -> dict[str, int]:
        """Return the node id of each site; empty if no site is registered yet."""
        try:
            found: dict[str, str] = json.loads(self.nodes_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return {name: int(node) for name, node in found.items()}

    def keep_nodes(self, nodes: Mapping[str, int]) -> None:
        """Write the node id of each site, as text, because other readers of JSON may round large numbers."""
        with atomic_path(self.nodes_file) as temporary:
            temporary.write_text(json.dumps({name: str(nodes[name]) for name in sorted(nodes)}, indent=2))


def new_federation(
    path: Path, federation: FederationDetails, public_keys: Mapping[str, bytes] | None = None
) -> FederationFolder:
    """Create the folder of a federation atomically.

    Parameters
    ----------
    path : pathlib.Path
        A new folder.
    federation : FederationDetails
    public_keys : dict or None
        Keys of sites that created their own pair; the others get a private key in their join file.
    """
    public_keys = public_keys or {}
    unknown = sorted(set(public_keys) - set(federation.sites))
    if unknown:
        raise ParameterError(f"a key is given for {unknown[0]!r}, which is no site; name it with --site, too")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ParameterError(f"{str(path)!r} exists already; choose a new folder")
    authority = certificates.new_authority(federation.name)
    with atomic_folder(path) as folder:
        folder.chmod(0o700)
        for part in ("private", "keys", "join", "app", "state", "state/flower", "logs", "runs"):
            (folder / part).mkdir(mode=0o700)
        write_settings(folder, federation)
        _write(folder / "authority.crt", authority.certificate)
        _write(folder / "private/authority.key", authority.key)
        _write(folder / "private/executor.secret", secrets.token_bytes(32))
        _write_server(folder, federation, authority)
        _write(folder / "app/pyproject.toml", app_project())
        for site in federation.sites:
            write_site(folder, federation, site, authority.certificate, public_keys.get(site))
    return FederationFolder(path)


def write_settings(folder: Path, federation: FederationDetails) -> None:
    """Write ``federation.toml``."""
    with atomic_path(folder / SETTINGS_FILE) as temporary:
        _write(temporary, to_toml(_as_table(federation)))


def write_site(
    folder: Path, federation: FederationDetails, site: str, authority: bytes, public_key: bytes | None
) -> None:
    """Write a site's public key and its join file, with a new private key if no public key is given."""
    private = ""
    if public_key is None:
        key = certificates.new_key()
        public_key = certificates.site_public(key.public_key())
        private = certificates.site_private(key).decode()
    _write(folder / "keys" / f"{site}.pub", public_key)
    join = join_file(federation, site, authority, private)
    _write(folder / "join" / f"{site}.toml", join.write())


def renew_server(folder: FederationFolder, days: float = certificates.SERVER_DAYS) -> None:
    """Create a new certificate for the server; the sites need not do anything."""
    federation = folder.read()
    authority = Certified(
        (folder / "private/authority.key").read_bytes(), (folder / "authority.crt").read_bytes()
    )
    _write_server(folder.path, federation, authority, days)


def join_file(federation: FederationDetails, site: str, authority: bytes, private_key: str) -> JoinFile:
    """Return the join file of a site."""
    return JoinFile(
        federation=federation.name,
        site=site,
        server=f"{federation.host}:{federation.port}",
        columns=federation.columns,
        authority=authority.decode(),
        key=private_key,
    )


def app_project() -> str:
    """Return the Flower app: the names of the installed apps, and every setting that a run may change."""
    config = to_run_config(RunSettings(n_clusters=8))
    return (
        to_toml_section("project", {"name": "fedkmeans-app", "version": __version__, "license": "Apache-2.0"})
        + to_toml_section("tool.flwr.app", {"publisher": "fedkmeans"})
        + to_toml_section(
            "tool.flwr.app.components",
            {"serverapp": "fedkmeans.flower.server_app:app", "clientapp": "fedkmeans.flower.client_app:app"},
        )
        + to_toml_section("tool.flwr.app.config", config)
    )


def to_toml_section(title: str, table: Mapping[str, Any]) -> str:
    """Return a section of a TOML file."""
    return f"[{title}]\n{to_toml(table)}\n"


def _texts(table: Mapping[str, Any], name: str) -> tuple[str, ...]:
    if not isinstance(table[name], list):
        raise TypeError(f"{name} is no list")
    return tuple(map(str, table[name]))


def _as_table(federation: FederationDetails) -> dict[str, Any]:
    return {
        "name": federation.name,
        "host": federation.host,
        "port": federation.port,
        "internal_port": federation.internal_port,
        "sites": federation.sites,
        "columns": federation.columns,
    }


def _write_server(
    folder: Path, federation: FederationDetails, authority: Certified, days: float = certificates.SERVER_DAYS
) -> None:
    hosts: Sequence[str] = dict.fromkeys([federation.host, "localhost", LOOPBACK]).keys()  # type: ignore[assignment]
    server = certificates.new_server(authority, list(hosts), days)
    _write(folder / "private/server.crt", server.certificate)
    _write(folder / "private/server.key", server.key)


def _write(path: Path, content: bytes | str) -> None:
    """Write a file that only its owner can read."""
    data = content.encode() if isinstance(content, str) else content
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    path.chmod(0o600)  # it may have been there before
    with os.fdopen(handle, "wb") as file:
        file.write(data)
