"""The tuples of arrays that compiled functions take; see `buffers` for those they only write to."""

from __future__ import annotations

from typing import Any, NamedTuple


class Csr(NamedTuple):
    """Sparse rows, which compiled code takes in place of an array (n, m).

    The numbers of row p are data[e] in the columns indices[e], for e from indptr[p] up to indptr[p + 1].
    """

    data: Any
    indices: Any
    indptr: Any


class ClientData(NamedTuple):
    """The rows of all clients: client i has those from starts[i] up to starts[i + 1].

    Attributes
    ----------
    X : ndarray of shape (n, m) or Csr
    weight : ndarray of shape (n,)
        Length zero means ones, where a function says so.
    starts : ndarray of shape (N + 1,)
    """

    X: Any
    weight: Any
    starts: Any


class StepSettings(NamedTuple):
    """How local steps are made: at most so many, until the movement is smaller, without empty clusters."""

    max_local: int
    tol_local: float
    drop: bool


class LocalResults(NamedTuple):
    """Results of the local steps of clients.

    Attributes
    ----------
    means, status : ndarray of shape (N, k, m) and (N, k)
        Local centroids; only valid where the status is not `AS_RECEIVED`.
    counts, last_counts : ndarray of shape (N, k)
        Weights of the clusters in the first and in the last step.
    inertia, received_inertia : ndarray of shape (N, k) and (N,)
        As in a `LocalSummary`; length zero if they are not wanted.
    """

    means: Any
    status: Any
    counts: Any
    last_counts: Any
    inertia: Any
    received_inertia: Any


class RowCopies(NamedTuple):
    """Coarse copies of all rows as bytes, which are faster to read, and how single precision is scaled.

    Attributes
    ----------
    shift : ndarray of shape (m,)
        Subtracted from rows and centroids for single precision; of the data's precision.
    factor : number
        Then multiplied to them; of the data's precision, and a power of two.
    filled : ndarray of shape (N,)
        Whether the rows of a client have been copied.
    coarse, coarse_squares : ndarray of shape (n, m), bytes, and (n,), integers
        The nearest of 256 evenly spaced numbers, counted from 0, and the squared lengths of such rows.
    misses : ndarray of shape (n,), single precision
        Upper bound of the distance between a row and its coarse copy, in units of spacing/FINER.
    lowest, spacing : float
        The lowest of the 256 numbers, and their spacing.
    """

    shift: Any
    factor: Any
    filled: Any
    coarse: Any
    coarse_squares: Any
    misses: Any
    lowest: float
    spacing: float


class NearCentroids(NamedTuple):
    """Centroids in the form that distances to the rows of a `RowCopies` need.

    Attributes
    ----------
    scaled, squares : ndarray of shape (k, m) and (k,), single precision
        Shifted and scaled, and their squared lengths.
    lengths : ndarray of shape (k,)
    coarse, coarse_squares : ndarray of shape (k, m) and (k,), integers
        For coarse rows, in units of spacing/FINER, and their squared lengths.
    misses : ndarray of shape (k,)
        Upper bound of the distance between a centroid and its coarse copy, in the same units.
    """

    scaled: Any
    squares: Any
    lengths: Any
    coarse: Any
    coarse_squares: Any
    misses: Any


class Bounds(NamedTuple):
    """Bounds and answers of all clients in one run; the rows of client i start at starts[i].

    Attributes
    ----------
    labels, final : ndarray of shape (n,)
        Labels of the first and of the last local step.
    before : ndarray of shape (n,)
        First labels of the previous answer.
    upper : ndarray of shape (n,)
        Upper bound of the distance of each row to its own centroid.
    lower, sums : ndarray of shape (n * k,)
        For each client, from start * k on, an array (k, n_i): lower bounds of the distances to the
        centroids (infinity for a row's own), and T (see `gram`).
    reach : ndarray of shape (n,)
        Upper bound of the squared distance of each row to its local centroid in all steps.
    results : LocalResults
    probes, probe_clusters : ndarray of shape (N, m) and (N,)
        The mean of one cluster after the first step, and which cluster.
    answered : ndarray of shape (N,)
        The setting number of the last answer, 0 if there was none.
    depends : ndarray of shape (N,)
        Whether the last answer depends on more than the first labels.
    n_moves : ndarray of shape (N,)
        Rows that changed their cluster in T since it was summed, -1 if T is not up to date.
    past_centroids : ndarray of shape (S, k, m), single precision
        The centroids of the last S queries, query t at place t mod S, scaled as in `NearCentroids`.
    last_query : ndarray of shape (N,)
        The last query of each client, -1 if there was none.
    """

    labels: Any
    final: Any
    before: Any
    upper: Any
    lower: Any
    sums: Any
    reach: Any
    results: LocalResults
    probes: Any
    probe_clusters: Any
    answered: Any
    depends: Any
    n_moves: Any
    past_centroids: Any
    last_query: Any


class Grams(NamedTuple):
    """The Gram matrices of all clients, one after the other in `pool`.

    Attributes
    ----------
    pool : ndarray of shape (Σ n_i²,)
    offsets : ndarray of shape (N,)
        Where each matrix begins.
    lengths : ndarray of shape (n,)
        Squared lengths of the centred rows.
    scales, errors : ndarray of shape (N,)
        See `Gram`; a scale of 0 means that the matrix is not computed yet.
    """

    pool: Any
    offsets: Any
    lengths: Any
    scales: Any
    errors: Any


class Gram(NamedTuple):
    """The Gram matrix of one client's centred rows.

    Attributes
    ----------
    products : ndarray of shape (n, n)
    lengths : ndarray of shape (n,)
        Squared lengths of the rows.
    scale : float
        Squares were divided by it.
    error : float
        See `gram_error`.
    """

    products: Any
    lengths: Any
    scale: float
    error: float


class Client(NamedTuple):
    """One client's rows, and its part of `Bounds`: n and N are left out of the shapes there.

    `first` are the labels of the first step, `sums` (k, n) is T for them.
    """

    X: Any
    weight: Any
    first: Any
    final: Any
    lower: Any
    reach: Any
    sums: Any
    means: Any
    status: Any
    counts: Any
    last_counts: Any
    probe: Any


class GramDraws(NamedTuple):
    """All random numbers of the starts of A clients.

    Attributes
    ----------
    n_clusters, n_trials : ndarray of shape (A,)
    uniforms : ndarray of shape (A, n_init, k, n_trials)
        Numbers in [0, 1).
    """

    n_clusters: Any
    n_trials: Any
    uniforms: Any


class GramBuffers(NamedTuple):
    """Buffers for clients with up to n rows: `products` (n * n,), `rows` (n * m,), `closest` (2 * n,)."""

    products: Any
    rows: Any
    closest: Any


class GramResult(NamedTuple):
    """k-means of A clients; k is the largest number of clusters of any of them.

    Attributes
    ----------
    chosen : ndarray of shape (A, n_init, k)
        The rows that are the first centroids of each start.
    centroids, counts : ndarray of shape (A, k, m) and (A, k)
        Of the best start.
    done : ndarray of shape (A,)
        Whether these are valid; see `gram_lloyd`.
    """

    chosen: Any
    centroids: Any
    counts: Any
    done: Any
