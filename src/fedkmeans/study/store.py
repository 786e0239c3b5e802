"""The store of finished runs: a SQLite file with one row per run.

Each record is added in a transaction: after a crash, or ``kill -9``, the file has every record that was
added before, and no partial one. Keys are unique.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from fedkmeans._utils.typing import FloatArray
from fedkmeans.errors import StudyError

_VERSION = 1
_TABLE = "CREATE TABLE IF NOT EXISTS runs (key TEXT PRIMARY KEY, record TEXT NOT NULL, centroids BLOB) STRICT"
_PATIENCE_S = 60.0  # while another process writes


@dataclass(frozen=True, slots=True)
class Record:
    """A finished run.

    Attributes
    ----------
    key : str
        See `key_of`.
    facts : dict
        Numbers, texts, and lists of them.
    centroids : ndarray of shape (k, m), single precision, or None
        Only of the first run, to look at.
    """

    key: str
    facts: Mapping[str, Any]
    centroids: FloatArray | None = None


class Store:
    """The records in a folder, which is created when the first record is written."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "runs.sqlite"

    def make_folder(self, name: str = "") -> Path:
        """Create the store's folder, or that of this name in it, and return its absolute path."""
        folder = self.folder.absolute() / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StudyError(
                f"cannot make folder {str(folder)!r}: {error.strerror}; choose another place with --store"
            ) from error
        return folder

    def add(self, record: Record) -> bool:
        """Add a record; return False, and change nothing, if there is one with the same key."""
        self.make_folder()
        packed = BytesIO()
        if record.centroids is not None:
            np.save(packed, np.asarray(record.centroids, dtype=np.float32), allow_pickle=False)
        row = (record.key, json.dumps(record.facts, sort_keys=True), packed.getvalue() or None)
        with self._open() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")  # table, version and record in one transaction
            if self._is_new(connection):
                connection.execute(_TABLE)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            return connection.execute("INSERT OR IGNORE INTO runs VALUES (?, ?, ?)", row).rowcount == 1

    def keys(self) -> set[str]:
        """Return the keys of all records."""
        return {key for (key,) in self._select("SELECT key FROM runs")}

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return all records by key, without centroids."""
        return {key: json.loads(text) for key, text in self._select("SELECT key, record FROM runs")}

    def centroids(self) -> dict[str, FloatArray]:
        """Return the recorded centroids by key."""
        found = self._select("SELECT key, centroids FROM runs WHERE centroids IS NOT NULL")
        return {key: np.load(BytesIO(blob), allow_pickle=False) for key, blob in found}

    def _select(self, query: str) -> list[Any]:
        if not self.path.exists():
            return []
        with self._open() as connection:
            return [] if self._is_new(connection) else connection.execute(query).fetchall()

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        """Return whether the file has no table yet, as when a process died before its first record."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > _VERSION:
            raise StudyError(
                f"{str(self.path)!r} was written by a newer fedkmeans (format {version}, this one knows "
                f"{_VERSION}); update fedkmeans"
            )
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if (version or tables) and "runs" not in tables:
            raise StudyError(f"{str(self.path)!r} holds no runs of a study; choose another folder")
        return bool(version == 0)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=_PATIENCE_S)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise StudyError(
                f"cannot use {str(self.path)!r}: {error}; see whether it is a study's file, may be written "
                "to, and has room on its disk"
            ) from error
