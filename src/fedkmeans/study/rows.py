"""The rows of a study: data sets by name or from files, and the client of each row in a run."""

from __future__ import annotations

import hashlib
import zlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedkmeans._utils.seeding import generator
from fedkmeans._utils.typing import DataArray, IntArray
from fedkmeans.data import atomic_path, load_dataset, partition, read_clients
from fedkmeans.data.clients import data_files
from fedkmeans.errors import StudyError
from fedkmeans.kernels.fingerprint import checksum
from fedkmeans.kernels.sparse import as_table
from fedkmeans.study.plan import DataPlan, Distribution, Plan


class StudyRows(NamedTuple):
    """One data set, with its true labels and its own clients if it has any."""

    X: DataArray  # shape (n, m)
    y: IntArray | None  # shape (n,)
    clients: IntArray | None  # number of the client of each row
    digest: str  # to notice when the rows change


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
    if path is not None and (kept := _kept(path, len(rows.X), plan.n_clients)) is not None:
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
    is_array = isinstance(found, np.ndarray) and found.shape == (n_rows,) and found.dtype.kind == "i"
    return found.astype(np.intp) if is_array and 0 <= found.min() <= found.max() < n_clients else None
