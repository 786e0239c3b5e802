"""A site: the only door to a client's data. It receives a query and answers with a record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedkmeans._utils.checks import check_integer
from fedkmeans._utils.dataframes import numeric_frame, ordered_array
from fedkmeans._utils.seeding import generator
from fedkmeans._utils.typing import ClientId, FloatArray
from fedkmeans.client import handlers
from fedkmeans.client.delta_state import DeltaState
from fedkmeans.client.shared_table import SharedTable
from fedkmeans.errors import DataError, ParameterError
from fedkmeans.kernels import AUTO
from fedkmeans.kernels.fingerprint import checksum
from fedkmeans.kernels.sparse import SparseRows, Table, as_table
from fedkmeans.protocol.declaration import Query, Reply


@dataclass(frozen=True, slots=True)
class SitePolicy:
    """What a site insists on, whoever asks.

    Attributes
    ----------
    min_cluster_size : int
        Rows that must stand behind each point or bound sent for an initialisation, for k-FED or
        for FKM's start. With 1, a cluster of one row is sent as that very row. The local centroids
        of later rounds are not held back: the paper's algorithm needs them all.
    """

    min_cluster_size: int = 2

    def __post_init__(self) -> None:
        check_integer("min_cluster_size", self.min_cluster_size)


# Squares of larger numbers overflow, and distances with them.
_LARGEST = 1e150
# Larger whole numbers are not all different in double precision.
_LARGEST_INTEGER = 2.0**53 - 1


def check_data(name: ClientId, X: Table, feature_names: tuple[str, ...] | None) -> Table:
    """Return `X` if it is a table of finite numbers; else say whose column is wrong, and how."""
    who = f"Client {name!r}"
    if X.ndim != 2 or X.shape[1] == 0:
        raise DataError(f"{who}: data must have rows and columns, got shape {X.shape}.")
    if len(X) == 0:
        raise DataError(f"{who} has no rows. Leave the client out or give it data.")
    if X.dtype.kind not in "fiub":
        raise DataError(
            f"{who}: data must be real numbers, got dtype {X.dtype}. Drop or encode other columns."
        )
    if feature_names is not None and len(feature_names) != X.shape[1]:
        raise DataError(f"{who}: {len(feature_names)} column names for {X.shape[1]} columns.")
    if X.dtype.kind != "b":
        _check_range(who, X, feature_names)
    return X


def _check_range(who: str, X: Table, feature_names: tuple[str, ...] | None) -> None:
    limit = _LARGEST if X.dtype.kind == "f" else _LARGEST_INTEGER
    for column, values in _columns_beyond(X, limit):
        bad = np.flatnonzero(~(np.abs(values) <= limit))
        label = column if feature_names is None else repr(feature_names[column])
        found = f"{who}, column {label}: {len(bad)} value(s)"
        where = f"the first in row {int(bad[0])}"
        if np.isfinite(values[bad]).all():
            raise DataError(
                f"{found} beyond {limit:.3g}, too large for exact distances; {where}. Scale the column, or "
                "leave it out if it holds identifiers."
            )
        raise DataError(
            f"{found} missing (NaN) or infinite; {where}. Drop these rows, or fill the values in first."
        )


def _columns_beyond(X: Table, limit: float) -> Iterator[tuple[int, FloatArray]]:
    """Columns with numbers that are larger than a limit or no numbers, as (place, values (n,))."""
    if isinstance(X, SparseRows):
        stored = X.data[X.stored]
        if not len(stored) or _within(stored.min(), stored.max(), limit):
            return
        for column, (numbers, rows) in enumerate(X.by_column()):
            if len(numbers) and not _within(numbers.min(), numbers.max(), limit):
                values = np.zeros(len(X))
                values[rows] = numbers
                yield column, values
        return
    # Whatever is out of range shows in its column's least or largest value, without a copy.
    for column in map(int, np.flatnonzero(~_within(X.min(axis=0), X.max(axis=0), limit))):
        yield column, X[:, column].astype(np.float64)


def _within(least: Any, largest: Any, limit: float) -> Any:
    return (np.abs(np.stack([least, largest]).astype(np.float64)) <= limit).all(axis=0)


def check_weight(name: ClientId, sample_weight: Any, n_rows: int) -> FloatArray | None:
    """Return the weights as an array (n_rows,), or None; refuse what cannot be a weight."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    who = f"Client {name!r}"
    if weight.shape != (n_rows,):
        raise DataError(
            f"{who}: sample_weight must have one entry a row, {n_rows}, got shape {weight.shape}."
        )
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise DataError(f"{who}: sample weights must be finite and not negative.")
    if not weight.any():
        raise DataError(f"{who}: the sample weights add up to zero. Leave the client out.")
    return weight


def check_name(name: ClientId) -> None:
    """Refuse what cannot be a client's name."""
    if not isinstance(name, str) or not name:
        raise ParameterError(f"A client's name must be a text that is not empty, got {name!r}.")


class Site:
    """One client with its own data.

    Parameters
    ----------
    name : str
        Unique in the federation.
    X : array-like, frame or scipy sparse matrix of shape (n, m)
        Real numbers of any dtype; an array is kept as it is, not copied. Sparse rows stay sparse.
    sample_weight : array-like of shape (n,) or None
        Rows of weight zero are left out.
    feature_names : tuple of str or None
        Taken from a frame where not given.
    policy : SitePolicy
    kernel : {"auto", "numba", "numpy"}
        Who does the arithmetic; see `fedkmeans.kernels`.
    """

    def __init__(
        self,
        name: ClientId,
        X: Any,
        sample_weight: Any = None,
        feature_names: tuple[str, ...] | None = None,
        policy: SitePolicy | None = None,
        kernel: str = AUTO,
    ) -> None:
        frame = numeric_frame(X)
        if frame is not None:
            X, feature_names = ordered_array(frame), feature_names or tuple(map(str, frame.columns))
        check_name(name)
        table = check_data(name, as_table(X), feature_names)
        weight = check_weight(name, sample_weight, len(table))
        if weight is not None and not (weight > 0).all():
            table, weight = table[weight > 0], weight[weight > 0]
        self._settle(name, SharedTable(table, [0, len(table)], weight, kernel), 0, feature_names, policy)

    def _settle(
        self,
        name: ClientId,
        table: SharedTable,
        index: int,
        feature_names: tuple[str, ...] | None,
        policy: SitePolicy | None,
    ) -> None:
        self.name = name
        self.table = table
        self.index = index
        self.feature_names = feature_names
        self.policy = policy or SitePolicy()
        self.delta_states: dict[str, dict[str, DeltaState]] = {}  # by run and total

    @classmethod
    def from_shared_table(
        cls,
        X: Table,
        names: Sequence[ClientId],
        starts: Sequence[int],
        sample_weight: FloatArray | None = None,
        feature_names: tuple[str, ...] | None = None,
        policy: SitePolicy | None = None,
        kernel: str = AUTO,
    ) -> list[Site]:
        """Make sites whose rows lie in one table, one client's after the other's.

        A round of them is one call of the kernel. Parameters are as for a single site; `starts` holds
        the first row of each.
        """
        X = as_table(X)
        edges = np.array([*starts, len(X)])
        for name, start, stop in zip(names, edges[:-1], edges[1:], strict=True):
            check_name(name)
            check_data(name, X[start:stop], feature_names)
            check_weight(name, None if sample_weight is None else sample_weight[start:stop], stop - start)
        if sample_weight is not None and not (sample_weight > 0).all():
            held = sample_weight > 0
            edges = np.concatenate([[0], np.cumsum(held)])[edges]
            X, sample_weight = X[held], sample_weight[held]
        table = SharedTable(X, edges, sample_weight, kernel)
        sites = []
        for index, name in enumerate(names):
            site = cls.__new__(cls)
            site._settle(name, table, index, feature_names, policy)
            sites.append(site)
        return sites

    @property
    def X(self) -> Table:
        """The rows, shape (n, m)."""
        return self.table.X(self.index)

    @property
    def sample_weight(self) -> FloatArray | None:
        """The weights of the rows, shape (n,)."""
        return self.table.sample_weight(self.index)

    @property
    def n_samples(self) -> float:
        """How many rows there are, or how much they weigh."""
        return float(self.table.n_samples[self.index])

    @cached_property
    def fingerprint(self) -> int:
        """A number that depends on the rows alone, from which the client's random choices follow.

        Not the name: renaming clients must not change a result. It never leaves the site.
        """
        return checksum(self.X)

    def generator(self, seed: int) -> np.random.Generator:
        """Return the client's own generator under the seed of a query."""
        return generator(seed, self.fingerprint)

    def answer(self, query: Query) -> Reply:
        """Answer a query about the data."""
        return handlers.answer_together([self], query, 1)[self.name]

    @property
    def overrides_answer(self) -> bool:
        """Whether it is of a kind that answers differently, and must be asked by itself."""
        return type(self).answer is not Site.answer
