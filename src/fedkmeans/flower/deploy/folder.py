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
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedkmeans import __version__
from fedkmeans._utils.atomic_io import atomic_folder
from fedkmeans._utils.checks import check_integer
from fedkmeans.errors import ParameterError, Setting
from fedkmeans.flower.deploy import certificates
from fedkmeans.flower.deploy.files import to_toml, write_private
from fedkmeans.flower.deploy.join_file import JoinFile
from fedkmeans.flower.deploy.settings import RunSettings, to_run_config

SETTINGS_FILE, NODES_FILE = "federation.toml", "state/nodes.json"
# Flower's own folder, with the address of the SuperLink.
FLOWER_FOLDER = "state/flower"
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

    def read(self) -> FederationDetails:
        """Read ``federation.toml``."""
        path = self / SETTINGS_FILE
        try:
            table: dict[str, Any] = {"columns": [], **tomllib.loads(path.read_text(encoding="utf-8"))}
            for name in ("sites", "columns"):
                if not isinstance(table[name], list):
                    raise TypeError(f"{name} is no list")
            return FederationDetails(
                *(str(table["name"]), str(table["host"]), table["port"], table["internal_port"]),
                sites=tuple(map(str, table["sites"])),
                columns=tuple(map(str, table["columns"])),
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

    def write(self, federation: FederationDetails) -> None:
        """Write ``federation.toml``."""
        write_private(self / SETTINGS_FILE, to_toml(asdict(federation)))

    def nodes(self) -> dict[str, int]:
        """Return the node id of each site; empty if no site is registered yet."""
        path = self / NODES_FILE
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return {name: int(node) for name, node in found.items()}

    def keep_nodes(self, nodes: Mapping[str, int]) -> None:
        """Write the node id of each site, as text, because other readers of JSON may round large numbers."""
        texts = {name: str(nodes[name]) for name in sorted(nodes)}
        write_private(self / NODES_FILE, json.dumps(texts, indent=2))


def new_federation(
    path: Path, federation: FederationDetails, public_keys: Mapping[str, bytes] | None = None
) -> FederationFolder:
    """Create the folder of a federation, which must be new, atomically.

    `public_keys` has the keys of sites that created their own pair; the others get a private key in their
    join file.
    """
    public_keys = public_keys or {}
    for site in sorted(set(public_keys) - set(federation.sites)):
        raise ParameterError(f"a key is given for {site!r}, which is no site; name it with --site, too")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ParameterError(f"{str(path)!r} exists already; choose a new folder")
    authority = certificates.new_authority(federation.name)
    with atomic_folder(path) as temporary:
        folder = FederationFolder(temporary)
        temporary.chmod(0o700)
        for part in ("private", "keys", "join", "app", "state", FLOWER_FOLDER, "logs", "runs"):
            (folder / part).mkdir(mode=0o700)
        folder.write(federation)
        write_private(folder / "authority.crt", authority.certificate)
        write_private(folder / "private/authority.key", authority.key)
        write_private(folder / "private/executor.secret", secrets.token_bytes(32))
        write_private(folder / "app/pyproject.toml", app_project())
        renew_server(folder)
        for site in federation.sites:
            write_site(folder, site, public_keys.get(site))
    return FederationFolder(path)


def write_site(folder: FederationFolder, site: str, public_key: bytes | None) -> None:
    """Write a site's public key and its join file, with a new private key if no public key is given."""
    private = ""
    if public_key is None:
        key = certificates.new_key()
        public_key = certificates.site_public(key.public_key())
        private = certificates.site_private(key).decode()
    federation, authority = folder.read(), (folder / "authority.crt").read_text()
    server = f"{federation.host}:{federation.port}"
    join = JoinFile(federation.name, site, server, federation.columns, authority, private)
    write_private(folder / "keys" / f"{site}.pub", public_key)
    write_private(folder / "join" / f"{site}.toml", join.write())


def renew_server(folder: FederationFolder, days: float = certificates.SERVER_DAYS) -> None:
    """Create a new certificate for the server; the sites need not do anything."""
    hosts = dict.fromkeys([folder.read().host, "localhost", LOOPBACK])
    key, certificate = folder / "private/authority.key", folder / "authority.crt"
    authority = certificates.Certified(key.read_bytes(), certificate.read_bytes())
    server = certificates.new_server(authority, list(hosts), days)
    write_private(folder / "private/server.crt", server.certificate)
    write_private(folder / "private/server.key", server.key)


def app_project() -> str:
    """Return the Flower app: the names of the installed apps, and every setting that a run may change."""
    sections: dict[str, dict[str, Any]] = {
        "project": {"name": "fedkmeans-app", "version": __version__, "license": "Apache-2.0"},
        "tool.flwr.app": {"publisher": "fedkmeans"},
        "tool.flwr.app.components": {
            "serverapp": "fedkmeans.flower.server_app:app",
            "clientapp": "fedkmeans.flower.client_app:app",
        },
        "tool.flwr.app.config": to_run_config(RunSettings(n_clusters=8)),
    }
    return "".join(f"[{title}]\n{to_toml(table)}\n" for title, table in sections.items())
