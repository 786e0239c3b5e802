"""A federation with all sites in this process, for research, tests and local files."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from joblib import effective_n_jobs

from fedkmeans._utils.threads import single_products
from fedkmeans._utils.typing import ClientId, DataArray, FloatArray, IntArray
from fedkmeans.client.handlers import TOTALS, answer_all
from fedkmeans.client.shared_table import SharedTable
from fedkmeans.client.site import Site, SitePolicy
from fedkmeans.errors import DataError, ParameterError
from fedkmeans.kernels import AUTO, choose_kernel
from fedkmeans.kernels.sparse import Table, as_table
from fedkmeans.protocol.declaration import Query, Reply
from fedkmeans.protocol.exchange import Total, add_up, some_of
from fedkmeans.protocol.messages import Bundle, BundleReply, SendStatistics


class InProcess:
    """A federation of sites in this process.

    Parameters
    ----------
    sites : iterable of Site
    n_jobs : int or None
        Number of threads in which sites answer; None means one, -1 means one per core.

    Attributes
    ----------
    clients : tuple of str
        Names of all clients, sorted.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkmeans import InProcess, Site
    >>> a, b = np.random.default_rng(0).normal(size=(2, 50, 3))
    >>> InProcess([Site("north", a), Site("south", b)]).clients
    ('north', 'south')
    """

    def __init__(self, sites: Iterable[Site], n_jobs: int | None = None) -> None:
        self.sites: dict[ClientId, Site] = {}
        for site in sites:
            if site.name in self.sites:
                raise DataError(f"Two clients are called {site.name!r}. Give each client a name of its own.")
            self.sites[site.name] = site
        if not self.sites:
            raise DataError("A federation needs at least one client.")
        if n_jobs is not None and (n_jobs == 0 or not isinstance(n_jobs, numbers.Integral)):
            raise ParameterError(
                f"must be None or a whole number other than 0, got {n_jobs!r}.", parameter="n_jobs"
            )
        self.n_jobs = n_jobs
        self.clients = tuple(sorted(self.sites))
        self._latest: tuple[Any, Any] = None, None  # the latest clients, and what `_find` found for them
        self._choose_kernel()

    def _choose_kernel(self) -> None:
        """Choose the kernel of sites with kernel "auto" by the data of all sites together."""
        tables = {id(site.table): site.table for site in self.sites.values()}
        n_numbers = sum(table.X.size for table in tables.values())
        for table in tables.values():
            table.use_kernel(choose_kernel(table.wanted_kernel, len(self.sites), n_numbers))

    @classmethod
    def from_arrays(
        cls,
        X: Table,
        clients: Sequence[object] | DataArray | None = None,
        sample_weight: FloatArray | None = None,
        feature_names: tuple[str, ...] | None = None,
        *,
        policy: SitePolicy | None = None,
        n_jobs: int | None = None,
        kernel: str = AUTO,
    ) -> InProcess:
        """Split an array into sites by client ids.

        If the rows of each client are contiguous, the data of a site is a view of `X`. Otherwise the
        rows are sorted once, which makes the only copy.

        Parameters
        ----------
        X : ndarray or scipy sparse matrix of shape (n, m)
        clients : array-like of shape (n,) or None
            The client of each row; None means that all rows belong to one client.
        sample_weight : ndarray of shape (n,) or None
        feature_names : tuple of str or None
        policy : SitePolicy or None
            Policy of every site.
        n_jobs : int or None
        kernel : {"auto", "numba", "numpy"}
        """
        X = as_table(X)
        names, starts, order = split_rows(len(X), clients)
        if order is not None:
            X = X[order]
            sample_weight = None if sample_weight is None else sample_weight[order]
        return cls.from_sorted(
            X, names, starts, sample_weight, feature_names, policy=policy, n_jobs=n_jobs, kernel=kernel
        )

    @classmethod
    def from_sorted(
        cls,
        X: Table,
        names: Sequence[ClientId],
        starts: Sequence[int],
        sample_weight: FloatArray | None = None,
        feature_names: tuple[str, ...] | None = None,
        *,
        policy: SitePolicy | None = None,
        n_jobs: int | None = None,
        kernel: str = AUTO,
    ) -> InProcess:
        """Make sites from an array in which the rows of each client are contiguous; see `split_rows`."""
        sites = Site.from_shared_table(X, names, starts, sample_weight, feature_names, policy, kernel)
        return cls(sites, n_jobs)

    def expect(self, n_clusters: int, max_local: int) -> None:
        """Let kernels prepare for the local steps of a fit; this affects only speed."""
        for table in {id(site.table): site.table for site in self.sites.values()}.values():
            table.kernel.expect(table, n_clusters, max_local)

    def remove(self, client: ClientId) -> None:
        """Remove a client for good, also during a fit; memory "server" and "client" drop its statistics."""
        if client not in self.sites:
            raise ParameterError(
                f"There is no client {client!r} to remove; there are {some_of(self.clients)}."
            )
        del self.sites[client]
        self.clients = tuple(sorted(self.sites))

    def ask(self, query: Query, clients: Sequence[ClientId]) -> Mapping[ClientId, Reply]:
        """Return the replies of these clients, except those that have left."""
        table, which, sites = self._find(clients)
        n_threads = effective_n_jobs(self.n_jobs)
        if table is not None and isinstance(query, SendStatistics):
            with single_products(), table.lock:
                return table.statistics(which, query.update, n_threads)
        return answer_all(sites, query, n_threads)

    def total(self, query: Query, clients: Sequence[ClientId]) -> Total:
        """Return the total of the replies of these clients."""
        table, which, sites = self._find(clients)
        if table is not None and isinstance(query, Bundle):
            totals = [self.total(part, clients) for part in query.queries]
            bundle = BundleReply(tuple(total.record for total in totals))
            return Total(bundle, totals[0].answered, tuple(total.received for total in totals))
        n_threads = effective_n_jobs(self.n_jobs)
        if table is None or type(query) not in TOTALS:
            return add_up(answer_all(sites, query, n_threads))
        with single_products(), table.lock:
            return TOTALS[type(query)](table, which, query, n_threads)

    def _find(self, clients: Sequence[ClientId]) -> tuple[SharedTable | None, IntArray, list[Site]]:
        """Return the table that clients share, their indices in it and their sites, sorted by name.

        The table is None if there are several, if a site overrides `answer`, or if all sites have left.
        The latest result is cached, as rounds often have the same clients.
        """
        key = self.clients, tuple(clients)
        latest = self._latest  # another thread may replace it
        if key != latest[0]:
            sites = [self.sites[client] for client in sorted(clients) if client in self.sites]
            tables = {id(site.table): site.table for site in sites}
            together = len(tables) == 1 and not any(site.overrides_answer for site in sites)
            which = np.array([site.index for site in sites], dtype=np.int64)
            latest = self._latest = key, (sites[0].table if together else None, which, sites)
        return latest[1]  # type: ignore[no-any-return]


def split_rows(
    n_rows: int, clients: Sequence[object] | DataArray | None
) -> tuple[list[ClientId], list[int], IntArray | None]:
    """Find the rows of each client.

    Returns
    -------
    names : list of str
    starts : list of int
        First row of each client, after sorting.
    order : ndarray of shape (n_rows,) or None
        Order that sorts the rows by client; None if the rows of each client are already contiguous.
    """
    if clients is None:
        return ["all"], [0], None
    ids = np.asarray(clients, dtype=object)
    if ids.shape != (n_rows,):
        raise DataError(f"clients must name a client for each of the {n_rows} rows, got shape {ids.shape}.")
    missing = pd.isna(ids)
    if missing.any():
        raise DataError(
            f"clients: {int(missing.sum())} row(s) have no client id, the first is row "
            f"{int(np.flatnonzero(missing)[0])}. Name one for each row."
        )
    codes, distinct = pd.factorize(ids)
    names = [str(name) for name in distinct]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"clients: two different ids read {twice!r}. Use ids of one kind.")
    starts = np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1])
    if len(starts) == len(names):  # codes are in order of appearance
        return names, [int(start) for start in starts], None
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(names)))
    return names, [int(start) for start in starts], order
