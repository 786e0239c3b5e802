"""Add sites to a federation and remove them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedkmeans.errors import ParameterError
from fedkmeans.flower.deploy import services
from fedkmeans.flower.deploy.folder import CONNECTION, FederationFolder, write_site


def add_sites(
    folder: FederationFolder, sites: Sequence[str], public_keys: Mapping[str, bytes] | None = None
) -> bool:
    """Create join files for more sites; returns whether the server already knows the sites.

    A running server knows them immediately, a stopped server when it starts. Current runs continue without
    them. `public_keys` has the keys of sites that created their own pair.
    """
    public_keys = public_keys or {}
    for site in sites:
        if (folder / "keys" / f"{site}.pub").exists():
            # A new site must not be mistaken for an earlier site with the same name.
            raise ParameterError(f"there is, or was, a site {site!r}; choose another name")
    for site in set(public_keys) - set(sites):
        raise ParameterError(f"a key is given for {site!r}, which is not being added; name it with --site")
    federation = folder.read()
    federation = replace(federation, sites=(*federation.sites, *sites))
    for site in sites:
        write_site(folder, site, public_keys.get(site))
    folder.write(federation)
    if not services.is_up(folder):
        return False
    services.register_sites(folder)
    return True


def remove_site(folder: FederationFolder, site: str) -> None:
    """Revoke a site's key: the site is disconnected and cannot return with this key.

    Its public key stays in the folder, so that its name is not used again.
    """
    federation, nodes = folder.read(), folder.nodes()
    if site not in federation.sites:
        raise ParameterError(f"there is no site {site!r}; there are {', '.join(federation.sites)}")
    rest = replace(federation, sites=tuple(name for name in federation.sites if name != site))
    if site in nodes:
        services.flwr(folder, "supernode", "unregister", str(nodes[site]), CONNECTION)
        del nodes[site]
        folder.keep_nodes(nodes)
    (folder / "join" / f"{site}.toml").unlink(missing_ok=True)
    folder.write(rest)
