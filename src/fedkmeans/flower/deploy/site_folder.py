"""The folder of a site: its rows, its name and policy, and the deltas it has sent.

Flower starts a new process for every message. The rows are therefore stored as an array that is mapped
and not read. A small file beside it is the client's memory of a running total (`client.delta_state`).
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap

from fedkmeans.client.delta_state import DeltaState
from fedkmeans.client.site import Site, SitePolicy
from fedkmeans.errors import DataError, WireError
from fedkmeans.flower.deploy.files import private_path, write_private
from fedkmeans.kernels import AUTO
from fedkmeans.kernels.sparse import SparseRows
from fedkmeans.protocol.codec import PREFIX_SIZE, decode, encode, from_bytes, size_in_bytes, to_bytes
from fedkmeans.protocol.field_types import register

log = logging.getLogger(__name__)

ROWS_FILE, ABOUT_FILE, DELTA_FILE = "rows.npy", "site.json", "deltas.bin"


@dataclass(frozen=True, slots=True)
class KeptDelta:
    """A site's state for one total of one run, as it is written to disk."""

    run: str
    total: str
    state: DeltaState


register(KeptDelta)


def prepare(folder: Path, site: Site) -> None:
    """Write a site's rows, name and policy to a folder, for `open_site`; earlier deltas are deleted.

    The folder is created if it does not exist, readable only by its owner. The site must have dense rows and
    no weights.
    """
    if isinstance(site.X, SparseRows) or site.sample_weight is not None:
        raise DataError(f"Client {site.name!r}: only tables without weights can be kept for a federation.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / DELTA_FILE).unlink(missing_ok=True)
    with private_path(folder / ROWS_FILE) as temporary, temporary.open("wb") as file:
        np.save(file, np.ascontiguousarray(site.X), allow_pickle=False)
    about = {
        "name": site.name,
        "feature_names": site.feature_names,
        "min_cluster_size": site.policy.min_cluster_size,
        "kernel": site.table.wanted_kernel,
    }
    write_private(folder / ABOUT_FILE, json.dumps(about, indent=2) + "\n")


def open_site(folder: Path) -> Site:
    """Open a folder that `prepare` wrote; the rows stay on disk until they are used."""
    try:
        about: dict[str, Any] = json.loads((folder / ABOUT_FILE).read_text(encoding="utf-8"))
        X = open_memmap(folder / ROWS_FILE, mode="r")  # accepts no archives and no pickle
        names = about["feature_names"]
        site = Site(
            about["name"],
            X,
            feature_names=None if names is None else tuple(names),
            policy=SitePolicy(about["min_cluster_size"]),
            kernel=about.get("kernel", AUTO),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"The site's folder {str(folder)!r} cannot be read ({error}). "
            "Join again with: fedkmeans site join"
        ) from error
    _recall(folder, site)
    return site


def keep(folder: Path, site: Site) -> None:
    """Write the deltas of a site atomically, if there are any."""
    said = [
        to_bytes(encode(KeptDelta(run, total, state)))
        for run, totals in site.delta_states.items()
        for total, state in totals.items()
    ]
    if said:
        write_private(folder / DELTA_FILE, b"".join(said))


def _recall(folder: Path, site: Site) -> None:
    """Restore the deltas of a site. If they are damaged, it has none, and its next reply says so."""
    path = folder / DELTA_FILE
    data = path.read_bytes() if path.exists() else b""
    try:
        while data:
            size = size_in_bytes(data[:PREFIX_SIZE])
            said: KeptDelta = decode(from_bytes(data[:size]), KeptDelta, max_header=None)
            site.keep_delta(said.run, said.total, said.state)
            data = data[size:]
    except WireError as error:
        site.forget_deltas()
        log.warning("%s is damaged (%s); the run will ask for all that this site has to say.", path, error)
