"""Partition the rows of one data set among clients, to study federated clustering.

Every partitioner returns `clients`, the client number of each row, like `groups` in scikit-learn. Each
row belongs to exactly one client, and no client is empty. The same generator state gives the same clients.
"""

import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from fedkmeans._utils.typing import DataArray, IntArray
from fedkmeans.data.wording import listing, one_line
from fedkmeans.errors import DataError, ParameterError

# For larger values all shares are equal in double precision, and the sampler overflows near 1e308.
_LARGEST_ALPHA = 1e12


def iid(n_samples: int, n_clients: int, rng: np.random.Generator) -> IntArray:
    """Shuffle the rows and split them into chunks whose sizes differ by at most one.

    Parameters
    ----------
    n_samples, n_clients : int
        Numbers of rows and of clients; ``1 <= n_clients <= n_samples``.
    rng : numpy.random.Generator

    Returns
    -------
    clients : ndarray of shape (n_samples,)
        Client number of each row, 0 to ``n_clients - 1``.
    """
    return rng.permutation(_even(n_samples, _checked(n_clients, n_samples)))


def clustered(X: DataArray, n_clients: int, rng: np.random.Generator) -> IntArray:
    """Give each client one cluster: the paper's non-IID distribution.

    The clusters are those of k-means with k = `n_clients`, k-means++ initialization, 5 restarts and at
    most 5 steps. If k-means leaves a cluster empty (for instance because rows repeat), that client gets
    one random row of the largest client.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        The data; passed to scikit-learn unchanged.
    n_clients : int
    rng : numpy.random.Generator

    Returns
    -------
    clients : ndarray of shape (n_samples,)
    """
    n_clients = _checked(n_clients, len(X))
    return _fill_empty(_cluster(X, n_clients, rng), n_clients, rng)


def half_iid(X: DataArray, n_clients: int, rng: np.random.Generator) -> IntArray:
    """Partition a random half of the rows with :func:`iid` and the rest with :func:`clustered`.

    Client i gets chunk i of the first half and cluster i of the second. With fewer than two rows per
    client, the second half has as many clusters as rows, and each empty client gets one row of the
    largest client.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    n_clients : int
    rng : numpy.random.Generator

    Returns
    -------
    clients : ndarray of shape (n_samples,)
    """
    n_samples = len(X)
    n_clients = _checked(n_clients, n_samples)
    order = rng.permutation(n_samples)
    dealt, rest = order[: n_samples // 2], order[n_samples // 2 :]
    clients = np.empty(n_samples, dtype=np.intp)
    clients[dealt] = rng.permutation(_even(len(dealt), n_clients))
    clients[rest] = _cluster(X[rest], min(n_clients, len(rest)), rng)
    return _fill_empty(clients, n_clients, rng)


def label_mix(y: DataArray, n_clients: int, p: float, rng: np.random.Generator) -> IntArray:
    """Take a share `p` of each client's rows from one class, and the others at random.

    The sizes of clients differ by at most one row. Client i prefers class ``i % n_classes``. If a class
    has too few rows for the clients that prefer it, they share its rows in proportion to their demand,
    and get random rows of all classes instead.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        True labels.
    n_clients : int
    p : float
        Share of the preferred class, 0 (all at random) to 1.
    rng : numpy.random.Generator

    Returns
    -------
    clients : ndarray of shape (n_samples,)
    """
    y = _checked_labels(y)
    n_clients = _checked(n_clients, len(y))
    if not 0 <= p <= 1:
        raise ParameterError(
            f"must lie between 0 and 1, got {p}; it is the share of one class in a client", parameter="p"
        )
    classes, y_index = np.unique(y, return_inverse=True)
    sizes = np.bincount(_even(len(y), n_clients), minlength=n_clients)
    wanted = np.rint(p * sizes).astype(np.intp)
    clients = np.full(len(y), -1, dtype=np.intp)
    for c in range(min(len(classes), n_clients)):
        members = np.arange(c, n_clients, len(classes))
        rows = rng.permutation(np.flatnonzero(y_index == c))
        asked = int(wanted[members].sum())
        given = wanted[members] if asked <= len(rows) else wanted[members] * len(rows) // asked
        clients[rows[: given.sum()]] = np.repeat(members, given)
    still = sizes - np.bincount(clients[clients >= 0], minlength=n_clients)
    clients[rng.permutation(np.flatnonzero(clients < 0))] = np.repeat(np.arange(n_clients), still)
    return clients


def dirichlet(y: DataArray, n_clients: int, alpha: float, rng: np.random.Generator) -> IntArray:
    """Split each class among the clients in proportions drawn from a Dirichlet distribution.

    A client that gets no row from any class gets one random row of the largest client.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        True labels.
    n_clients : int
    alpha : float
        Concentration, above 0: small values give most of a class to few clients, large values make
        clients similar.
    rng : numpy.random.Generator

    Returns
    -------
    clients : ndarray of shape (n_samples,)
    """
    y = _checked_labels(y)
    n_clients = _checked(n_clients, len(y))
    if not (alpha > 0 and np.isfinite(alpha)):
        raise ParameterError(
            f"must be a finite number above 0, got {alpha}; 0.1 is uneven, 100 nearly even", parameter="alpha"
        )
    concentration = np.full(n_clients, min(alpha, _LARGEST_ALPHA))
    clients = np.empty(len(y), dtype=np.intp)
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        cuts = np.rint(np.cumsum(rng.dirichlet(concentration))[:-1] * len(rows)).astype(np.intp)
        for client, share in enumerate(np.split(rows, cuts)):
            clients[share] = client
    return _fill_empty(clients, n_clients, rng)


def by_column(values: DataArray | Sequence[Any]) -> tuple[IntArray, tuple[str, ...]]:
    """Convert a column with the client of each row to client numbers, in sorted order of the names.

    Parameters
    ----------
    values : array-like of shape (n_samples,)
        Name or number of each row's client.

    Returns
    -------
    clients : ndarray of shape (n_samples,)
        Position of each row's client in `names`.
    names : tuple of str
        The unique values, as text.

    Raises
    ------
    DataError
        The column is empty, not one-dimensional, or has rows that name no client.
    """
    column = np.asarray(values)
    if column.ndim != 1 or not len(column):
        raise DataError(f"the client column must hold one value per row, got shape {column.shape}")
    absent = column != column  # NaN and NaT are the values that differ from themselves
    if column.dtype.kind == "O":
        absent = absent | [value is None for value in column]
        column = column.astype(str)  # mixed types cannot be sorted
    if absent.any():
        raise DataError(
            f"the client column names no client in {absent.sum()} rows (the first is row "
            f"{np.flatnonzero(absent)[0]}); fill it in or remove these rows"
        )
    names, clients = np.unique(column, return_inverse=True)
    return clients.astype(np.intp, copy=False), tuple(str(name) for name in names.tolist())


@dataclass(frozen=True)
class Partitioner:
    """A function that partitions rows, what it takes (n_samples, X or y), and its options."""

    run: Callable[..., IntArray]
    takes: str
    options: tuple[str, ...] = ()


PARTITIONERS: dict[str, Partitioner] = {
    "iid": Partitioner(iid, "n_samples"),
    "half-iid": Partitioner(half_iid, "X"),
    "non-iid": Partitioner(clustered, "X"),  # the paper's name for it
    "clustered": Partitioner(clustered, "X"),
    "label-mix": Partitioner(label_mix, "y", ("p",)),
    "dirichlet": Partitioner(dirichlet, "y", ("alpha",)),
}


def partition(
    name: str,
    X: DataArray,
    y: DataArray | None,
    n_clients: int,
    rng: np.random.Generator,
    **options: float,
) -> IntArray:
    """Partition the rows of `X` among clients.

    Parameters
    ----------
    name : str
        A key of `PARTITIONERS`; underscores may replace hyphens.
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,) or None
        True labels; needed by ``label-mix`` and ``dirichlet``.
    n_clients : int
    rng : numpy.random.Generator
    **options : float
        ``p`` for ``label-mix``, ``alpha`` for ``dirichlet``.

    Returns
    -------
    clients : ndarray of shape (n_samples,)
    """
    partitioner = PARTITIONERS.get(name.replace("_", "-"))
    if partitioner is None:
        raise ParameterError(f"unknown partitioner {name!r}; choose one of {listing(PARTITIONERS)}")
    for option in partitioner.options:
        if option not in options:
            raise ParameterError(f"{name} needs {option} (--{option}); give it a value")
    for option in options:
        if option not in partitioner.options:
            raise ParameterError(f"{name} takes no {option} (--{option}); leave it out")
    if partitioner.takes == "y":
        if y is None:
            raise ParameterError(f"partitioner {name!r} deals rows out by their labels; give the labels y")
        if len(y) != len(X):
            raise DataError(f"y has {len(y)} labels and X has {len(X)} rows; give one label per row")
    rows = {"n_samples": len(X), "X": X, "y": y}[partitioner.takes]
    return partitioner.run(rows, n_clients, rng=rng, **options)


def _checked(n_clients: int, n_samples: int) -> int:
    try:
        n_clients = operator.index(n_clients)
    except TypeError:
        raise ParameterError(f"must be a whole number, got {n_clients!r}", parameter="n_clients") from None
    if not 1 <= n_clients <= n_samples:
        raise ParameterError(
            f"must lie between 1 and the number of rows, {n_samples}, got {n_clients}; "
            "a client needs at least one row",
            parameter="n_clients",
        )
    return n_clients


def _checked_labels(y: DataArray) -> DataArray:
    y = np.asarray(y)
    if y.ndim != 1:
        raise DataError(f"y must hold one label per row, got an array of shape {y.shape}")
    return y


def _even(n_samples: int, n_clients: int) -> IntArray:
    return np.arange(n_samples, dtype=np.intp) * n_clients // max(n_samples, 1)


def _cluster(X: DataArray, n_clusters: int, rng: np.random.Generator) -> IntArray:
    seed = int(rng.integers(2**31))
    kmeans = KMeans(n_clusters=n_clusters, init="k-means++", n_init=5, max_iter=5, random_state=seed)
    with warnings.catch_warnings():
        # Five steps need not converge, and _fill_empty handles repeated rows.
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            with np.errstate(over="raise"):
                labels: IntArray = kmeans.fit_predict(X).astype(np.intp)
        except FloatingPointError as error:
            raise DataError(
                "X cannot be clustered: the squares of its largest values overflow; make its scale smaller"
            ) from error
        except ValueError as error:
            raise DataError(f"X cannot be clustered: {one_line(error)}; give finite numbers only") from error
    return labels


def _fill_empty(clients: IntArray, n_clients: int, rng: np.random.Generator) -> IntArray:
    sizes = np.bincount(clients, minlength=n_clients)
    for empty in np.flatnonzero(sizes == 0):
        largest = sizes.argmax()
        clients[rng.choice(np.flatnonzero(clients == largest))] = empty
        sizes[largest] -= 1
        sizes[empty] += 1
    return clients
