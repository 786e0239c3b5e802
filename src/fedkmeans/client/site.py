"""A site: the only access to the data of a client. It receives queries and returns replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedkmeans._utils.checks import check_integer
from fedkmeans._utils.dataframes import numeric_frame, ordered_array
from fedkmeans._utils.seeding import generator
from fedkmeans._utils.typing import ClientId, FloatArray
from fedkmeans.client import handlers
from fedkmeans.client.data_checks import check_data, check_name, check_weight
from fedkmeans.client.delta_state import DeltaState
from fedkmeans.client.shared_table import SharedTable
from fedkmeans.kernels import AUTO
from fedkmeans.kernels.fingerprint import checksum
from fedkmeans.kernels.sparse import Table, as_table
from fedkmeans.protocol.declaration import Query, Reply


@dataclass(frozen=True, slots=True)
class SitePolicy:
    """Limits on what a site sends.

    Attributes
    ----------
    min_cluster_size : int
        Minimum number of rows behind each point or bound that the site sends for an initialization,
        for k-FED or for the start of FKM. With 1, the centroid of a cluster of one row is that row. The
        policy does not apply to local centroids in later rounds: the paper's algorithm needs them all.
    """

    min_cluster_size: int = 2

    def __post_init__(self) -> None:
        check_integer("min_cluster_size", self.min_cluster_size)


class Site:
    """One client with its own data.

    Parameters
    ----------
    name : str
        Name of the client, unique in the federation.
    X : array-like, frame or scipy sparse matrix of shape (n, m)
        Real numbers of any dtype. An array is not copied, and sparse rows remain sparse.
    sample_weight : array-like of shape (n,) or None
        Rows with weight zero are dropped.
    feature_names : tuple of str or None
        If None, the column names of a frame are used.
    policy : SitePolicy
    kernel : {"auto", "numba", "numpy"}
        Kernel for the arithmetic; see `fedkmeans.kernels`.
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
        shared = SharedTable(table, [0, len(table)], weight, [name], kernel)
        self._settle(shared, 0, feature_names, policy)

    def _settle(
        self,
        table: SharedTable,
        index: int,
        feature_names: tuple[str, ...] | None,
        policy: SitePolicy | None,
    ) -> None:
        self.name: ClientId = table.names[index]
        self.table = table
        self.index = index
        self.feature_names = feature_names
        self.policy = policy or SitePolicy()

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
        """Make sites that share one table, in which the rows of each client are contiguous.

        A round of all of them is one call of the kernel. The parameters are those of a single site;
        `starts` contains the first row of each site.
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
        table = SharedTable(X, edges, sample_weight, names, kernel)
        sites = []
        for index in range(len(names)):
            site = cls.__new__(cls)
            site._settle(table, index, feature_names, policy)
            sites.append(site)
        return sites

    @property
    def X(self) -> Table:
        """The rows, shape (n, m)."""
        return self.table.shard(self.index)[0]

    @property
    def sample_weight(self) -> FloatArray | None:
        """The weights of the rows, shape (n,)."""
        return self.table.shard(self.index)[1]

    @property
    def n_samples(self) -> float:
        """The number of rows, or the sum of their weights."""
        return float(self.table.n_samples[self.index])

    @cached_property
    def fingerprint(self) -> int:
        """A checksum of the rows, which seeds the client's random choices.

        It ignores the name, so that renaming clients does not change results. It never leaves the site.
        """
        return checksum(self.X)

    def generator(self, seed: int) -> np.random.Generator:
        """Return a generator seeded with the seed of a query and the fingerprint."""
        return generator(seed, self.fingerprint)

    def answer(self, query: Query) -> Reply:
        """Answer a query about the data."""
        with self.table.lock:
            reply: Reply = handlers.handler_of(query)([self], query, 1)[0]
        return reply

    @property
    def delta_states(self) -> dict[str, dict[str, DeltaState]]:
        """Copies of what the site has sent to running totals, by run and total."""
        i = self.index
        return {
            run: {total: own.state_of(i) for total, own in totals.items() if own.known[i]}
            for run, totals in self.table.delta_states.items()
        }

    def keep_delta(self, run: str, total: str, state: DeltaState) -> None:
        """Restore a state from `delta_states`."""
        self.table.states_of(run, total, state.pending.weighted_sum.shape).load(self.index, state)

    def forget_deltas(self) -> None:
        """Drop what the site has sent to running totals; servers start these totals again."""
        for totals in self.table.delta_states.values():
            for states in totals.values():
                states.known[self.index] = False

    @property
    def overrides_answer(self) -> bool:
        """Whether a subclass overrides `answer`, so that the site must be asked on its own."""
        return type(self).answer is not Site.answer
