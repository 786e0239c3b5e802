"""The tuples of arrays that compiled functions take; see `buffers` for those they only write to."""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np


class Csr(NamedTuple):
    """Sparse rows, which compiled code takes in place of an array (n, m).

    The numbers of row p are data[e] in the columns indices[e], for e from indptr[p] up to indptr[p + 1].
    """

    data: Any
    indices: Any
    indptr: Any


class ClientData(NamedTuple):
    """The rows of all clients: client i has those from starts[i] up to starts[i + 1]."""

    X: Any  # array (n, m) or Csr
    weight: Any  # (n,); length zero means ones, where a function says so
    starts: Any  # (N + 1,)


class StepSettings(NamedTuple):
    """How local steps are made: at most so many, until the movement is smaller, without empty clusters."""

    max_local: int
    tol_local: float
    drop: bool


LocalResults = namedtuple("LocalResults", "means status counts last_counts inertia received_inertia")


def new_results(n_clients, k, m, inertia=False):
    """Arrays for the results of the local steps of N clients; without inertia, these have length zero."""
    n_inertia = n_clients if inertia else 0
    return LocalResults(
        means=np.empty((n_clients, k, m)),  # local centroids, only valid where not `AS_RECEIVED`
        status=np.zeros((n_clients, k), dtype=np.int8),
        counts=np.zeros((n_clients, k)),  # weights of the clusters in the first step
        last_counts=np.zeros((n_clients, k)),  # in the last step
        inertia=np.zeros((n_inertia, k)),  # as in a `LocalSummary`
        received_inertia=np.zeros(n_inertia),
    )


class Copies(NamedTuple):
    """Copies of all rows as bytes; see `copies`. Lengths are in units of spacing / FINER."""

    filled: Any  # (N,), whether the rows of a client have been copied
    rows: Any  # (n, m), the nearest of 256 evenly spaced numbers, counted from 0
    squares: Any  # (n,), their squared lengths, integers
    misses: Any  # (n,), upper bound of the distance between a row and its copy
    lowest: float  # of the 256 numbers
    spacing: float


class CentroidCopies(NamedTuple):
    """The same for the received centroids."""

    rows: Any  # (k, m)
    squares: Any  # (k,)
    misses: Any  # (k,)


Bounds = namedtuple(
    "Bounds",
    "labels final before upper lower sums reach results probes probe_clusters answered depends n_moves "
    "past_centroids past_errors last_query",
)


def new_bounds(n, n_clients, k, m, with_gram, n_past):
    """Bounds and answers of N clients with n rows in all, in one run.

    `lower` and `sums` have an array (k, n_i) for each client, from the k-fold of its first row on.
    """
    n_steps, n_probes = (n, n_clients) if with_gram else (0, 0)
    return Bounds(
        labels=np.zeros(n, dtype=np.int32),  # of the first local step
        final=np.zeros(n, dtype=np.int32),  # of the last local step
        before=np.zeros(n, dtype=np.int32),  # first labels of the previous answer
        upper=np.empty(n),  # upper bound of the distance of each row to its own centroid
        lower=np.empty(n * k),  # lower bounds of the distances to the centroids; infinity for a row's own
        sums=np.empty(n_steps * k),  # T (see `gram`)
        reach=np.empty(n_steps),  # upper bound of the squared distance to the local centroid in all steps
        results=new_results(n_clients, k, m),
        probes=np.empty((n_probes, m)),  # the mean of one cluster after the first step
        probe_clusters=np.zeros(n_clients, dtype=np.int64),  # which cluster
        answered=np.zeros(n_clients, dtype=np.int64),  # the setting number of the last answer, 0 if none
        depends=np.zeros(n_clients, dtype=np.bool_),  # whether it depends on more than the first labels
        n_moves=np.full(n_clients, -1),  # rows that moved in T since it was summed, -1 if out of date
        # The centroids of the last S queries, query t at place t mod S, and how far these are from the
        # centroids in double precision.
        past_centroids=np.empty((n_past, k, m), dtype=np.float32),
        past_errors=np.empty((n_past, k)),
        last_query=np.full(n_clients, -1),  # the last query of each client, -1 if there was none
    )


class Grams(NamedTuple):
    """The Gram matrices of all clients, one after the other in `pool`."""

    pool: Any  # (Σ n_i²,)
    offsets: Any  # (N,), where each matrix begins
    lengths: Any  # (n,), squared lengths of the centred rows
    scales: Any  # (N,), see `Gram`; 0 means that the matrix is not computed yet
    errors: Any  # (N,)


class Gram(NamedTuple):
    """The Gram matrix of one client's centred rows."""

    products: Any  # (n, n)
    lengths: Any  # (n,), squared lengths of the rows
    scale: float  # squares were divided by it
    error: float  # see `gram_error`


# One client's rows, and its part of `Bounds` without n and N in the shapes. `first` are the labels of the
# first step, `sums` (k, n) is T for them.
Client = namedtuple("Client", "X weight first final lower reach sums means status counts last_counts probe")


class GramDraws(NamedTuple):
    """All random numbers of the starts of A clients."""

    n_clusters: Any  # (A,)
    n_trials: Any  # (A,)
    firsts: Any  # (A, n_init), the first row of each start
    uniforms: Any  # (A, n_init, k, n_trials), in [0, 1)


class GramResult(NamedTuple):
    """k-means of A clients; k is the largest number of clusters of any of them."""

    centroids: Any  # (A, k, m), of the best start
    counts: Any  # (A, k)
    done: Any  # (A,), whether these are valid; see `gram_lloyd`
