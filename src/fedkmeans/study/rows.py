"""The rows of a study: data sets by name or from files, and who has which rows in a run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedkmeans.checksums import checksum
from fedkmeans.data import atomic_path, load_dataset, partition, read_clients
from fedkmeans.errors import StudyError
from fedkmeans.seeding import generator
from fedkmeans.sparse_rows import as_table
from fedkmeans.study.plan import DataPlan, Distribution, Plan
from fedkmeans.typing import DataArray, IntArray


@dataclass(frozen=True, slots=True)
class StudyRows:
    """One data set as it is clustered.

    Attributes
    ----------
    X : ndarray of shape (n, m)
    y : ndarray of shape (n,) or None
        True labels, where there are any.
    clients : ndarray of shape (n,) or None
        Client number of each row, where the data comes divided.
    digest : str
        Follows from the rows, so that it shows when they are others.
    """

    X: DataArray
    y: IntArray | None
    clients: IntArray | None
    digest: str


@lru_cache(maxsize=2)
def load_rows(data: DataPlan, folder: Path) -> StudyRows:
    """Read a data set; `folder` is the plan's, where its files are looked for."""
    y: IntArray | None
    clients: IntArray | None
    if data.load is not None:
        found = load_dataset(data.load)
        X, y, clients = found.X, found.y, found.clients
    else:
        tables = read_clients([folder / file for file in data.files], **dict(data.reading))
        X = np.concatenate([table.X for table in tables])
        clients = np.repeat(np.arange(len(tables)), [len(table.X) for table in tables])
        labels = [table.labels for table in tables if table.labels is not None]
        y = np.unique(np.concatenate(labels), return_inverse=True)[1] if labels else None
    return StudyRows(X, y, clients, f"{X.shape[0]}x{X.shape[1]}-{checksum(as_table(X)):08x}")


def clients_of(
    plan: Plan, data: DataPlan, rows: StudyRows, dealt: Distribution, run: int, cache: Path | None
) -> IntArray:
    """Client number of each row in that run, shape (n,).

    All algorithms of a run find the same clients. Dealing out can take longer than a run (the paper's
    non-IID is a k-means of its own), so that it is done once and kept in the folder `cache`.
    """
    if dealt.rule is None:
        if rows.clients is None:
            raise StudyError(
                f"{data.name} does not come divided among clients; say distributions, as "
                'distributions = ["iid", "non-iid"]'
            )
        return rows.clients
    text = repr((rows.digest, dealt.rule, dealt.options, plan.n_clients, plan.seed, run))
    path = None if cache is None else cache / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npy"
    if path is not None and path.exists():
        kept: IntArray = np.load(path, allow_pickle=False).astype(np.intp)
        return kept
    rng = generator(plan.seed, "deal", dealt.rule, run)
    clients = partition(dealt.rule, rows.X, rows.y, plan.n_clients, rng, **dict(dealt.options))
    # A worker on another machine may not have the folder; it deals out by itself.
    if path is not None and path.parent.is_dir():
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.save(file, clients.astype(np.int32), allow_pickle=False)
    return clients
