"""The rows of a study: data sets by name or from files, and the client of each row in a run."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedkmeans._utils.seeding import generator
from fedkmeans._utils.typing import DataArray, IntArray
from fedkmeans.data import atomic_path, load_dataset, partition, read_clients
from fedkmeans.data.clients import data_files
from fedkmeans.errors import StudyError
from fedkmeans.kernels.fingerprint import checksum
from fedkmeans.kernels.sparse import as_table
from fedkmeans.study.plan import DataPlan, Distribution, Plan


@dataclass(frozen=True, slots=True)
class StudyRows:
    """One data set.

    Attributes
    ----------
    X : ndarray of shape (n, m)
    y : ndarray of shape (n,) or None
        True labels, if there are any.
    clients : ndarray of shape (n,) or None
        Client number of each row, if the data has clients of its own.
    digest : str
        Checksum of the rows, to notice when they change.
    """

    X: DataArray
    y: IntArray | None
    clients: IntArray | None
    digest: str


def load_rows(data: DataPlan, folder: Path) -> StudyRows:
    """Read a data set, or take it from a cache; files are relative to `folder`."""
    if data.load is not None:
        return _load_built_in(data.load)
    found = [path.stat() for path in data_files([folder / file for file in data.files]) if path.exists()]
    return _load_files(data, folder, tuple((stat.st_mtime_ns, stat.st_size) for stat in found))


@lru_cache(maxsize=2)
def _load_built_in(name: str) -> StudyRows:
    found = load_dataset(name)
    return StudyRows(found.X, found.y, found.clients, _digest(found.X))


@lru_cache(maxsize=2)
def _load_files(data: DataPlan, folder: Path, stamps: tuple[tuple[int, int], ...]) -> StudyRows:
    """Read the files; `stamps` makes the cache notice a change."""
    tables = read_clients([folder / file for file in data.files], **dict(data.reading))
    X = np.concatenate([table.X for table in tables])
    clients = np.repeat(np.arange(len(tables)), [len(table.X) for table in tables])
    labels = [table.labels for table in tables if table.labels is not None]
    y = np.unique(np.concatenate(labels), return_inverse=True)[1] if labels else None
    # Clients and labels can change while the rows stay the same.
    others = clients if y is None else np.concatenate([clients, y])
    return StudyRows(X, y, clients, f"{_digest(X)}-{zlib.crc32(others.astype('<i8').tobytes()):08x}")


def _digest(X: DataArray) -> str:
    return f"{X.shape[0]}x{X.shape[1]}-{checksum(as_table(X)):08x}"


def clients_of(
    plan: Plan, data: DataPlan, rows: StudyRows, how: Distribution, run: int, cache: Path | None
) -> IntArray:
    """Return the client number of each row in that run, shape (n,).

    All algorithms of a run get the same clients. Distributing rows can take longer than the run itself
    (non-IID in the paper is based on a k-means), so it is done once and kept in the folder `cache`.
    """
    if how.rule is None:
        if rows.clients is None:
            raise StudyError(
                f"{data.name} does not come divided among clients; say distributions, as "
                'distributions = ["iid", "non-iid"]'
            )
        return rows.clients
    text = repr((rows.digest, how.rule, how.options, plan.n_clients, plan.seed, run))
    path = None if cache is None else cache / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npy"
    kept = None if path is None else _kept(path, len(rows.X), plan.n_clients)
    if kept is not None:
        return kept
    rng = generator(plan.seed, "deal", how.rule, run)
    clients = partition(how.rule, rows.X, rows.y, plan.n_clients, rng, **dict(how.options))
    # A worker on another machine may not have the folder.
    if path is not None and path.parent.is_dir():
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.save(file, clients.astype(np.int32), allow_pickle=False)
    return clients


def _kept(path: Path, n_rows: int, n_clients: int) -> IntArray | None:
    """Return the clients from the file, or None if it is missing or damaged."""
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):  # NumPy raises all of these for damaged files
        return None
    if not isinstance(found, np.ndarray) or found.shape != (n_rows,) or found.dtype.kind != "i":
        return None
    if found.min() < 0 or found.max() >= n_clients:
        return None
    return found.astype(np.intp)
