"""What travels between server and sites: small frozen records, and nothing else.

A *query* is what the server sends, a *reply* what a site sends back. Replies that add up have
``__add__``; the server needs only their sum, so they may be added in one process, over a network
or under encryption. Replies that do not add up (sets of centroids, candidate points) say so by
having none, and must be gathered one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from fedkmeans._utils.typing import ClientId, FloatArray
from fedkmeans.kernels.base import WeightingRule
from fedkmeans.protocol.statistics import ClusterStatistics, RunningTotal

# --- queries -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocalUpdate:
    """Make up to `max_local` Lloyd steps from `centroids`; answered with a `LocalModel`.

    `weighting` is the name of a rule; in process it may also be the function itself.
    """

    centroids: FloatArray
    max_local: int
    tol_local: float
    weighting: str | WeightingRule
    empty_clusters: str


@dataclass(frozen=True, slots=True)
class SendStatistics:
    """Make an update and say what came of it in a form that can be remembered: a `ClusterStatistics`."""

    update: LocalUpdate


@dataclass(frozen=True, slots=True)
class SendDelta:
    """Like `SendStatistics`, but answered with what changed since: a `StatisticsDelta`.

    Attributes
    ----------
    update : LocalUpdate
    run, total : str
        Names of the fit and of its running total, under which a client keeps what it said.
    exchange : str
        A name that no other exchange has; the reply repeats it.
    counted : dict
        For each client that is asked, the exchange of its latest change that is part of the total;
        None if it has no part in the total.
    """

    update: LocalUpdate
    run: str
    total: str
    exchange: str
    counted: Mapping[ClientId, str | None]


@dataclass(frozen=True, slots=True)
class Score:
    """How well do these centroids fit your data? Answered with `ScoreTotals`."""

    centroids: FloatArray


@dataclass(frozen=True, slots=True)
class Describe:
    """What columns do you hold, and how many rows? Answered with a `Description`."""


@dataclass(frozen=True, slots=True)
class FindBox:
    """Between which values does each column lie, roughly? Answered with a `Box`."""


# How a client may cluster its own rows; `fedkmeans.client.local_kmeans` has the functions.
LOCAL_METHODS = ("k-means", "awasthi-sheffet")


@dataclass(frozen=True, slots=True)
class LocalClusters:
    """Cluster your own data; answered with a `CentroidSet`.

    `method` names one of the local clusterings of `fedkmeans.kernels.reference.kmeans`.
    """

    n_clusters: int
    method: str
    n_init: int
    max_iter: int
    seed: int


@dataclass(frozen=True, slots=True)
class DrawPoint:
    """Draw a place where a new centroid may go; answered with a `Candidate`.

    With `centroids` of shape (0, m) every row is as likely as any other, else a row is drawn with
    probability proportional to its squared distance to the nearest centroid (k-means++). The reply
    never holds the row itself but the mean of `mean_of` rows: `spread` says whether these are the
    drawn row's nearest neighbours (False) or rows drawn at random (True).
    """

    centroids: FloatArray
    mean_of: int
    spread: bool
    seed: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """Several queries that share one exchange; answered with a `BundleReply`."""

    queries: tuple[Query, ...]


Query: TypeAlias = (
    "LocalUpdate | SendStatistics | SendDelta | Score | Describe | FindBox | LocalClusters | DrawPoint "
    "| Bundle"
)


def addressed(query: Query, client: ClientId) -> Query:
    """Return what of a query one client needs to see: nothing that is meant for others only."""
    if isinstance(query, Bundle):
        return Bundle(tuple(addressed(part, client) for part in query.queries))
    if isinstance(query, SendDelta) and client in query.counted:
        return replace(query, counted={client: query.counted[client]})
    return query


# --- replies -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A client's local centroids (k, m) and the weights (k,) its rule gives them."""

    centroids: FloatArray
    weights: FloatArray

    def totals(self) -> ClusterTotals:
        """Bring the reply into the form that adds up."""
        weighted = self.weights[:, None] * self.centroids
        return ClusterTotals(weighted, self.weights, self.centroids, 1)


@dataclass(frozen=True, slots=True)
class ClusterTotals:
    """Sums over clients: Σ ω c (k, m), Σ ω (k,), Σ c (k, m) and the number of clients.

    The plain sum Σ c is there for clusters to which nobody gives any weight.
    """

    weighted_sum: FloatArray
    weight: FloatArray
    plain_sum: FloatArray
    n_clients: int

    def __add__(self, other: ClusterTotals) -> ClusterTotals:
        return ClusterTotals(
            self.weighted_sum + other.weighted_sum,
            self.weight + other.weight,
            self.plain_sum + other.plain_sum,
            self.n_clients + other.n_clients,
        )


@dataclass(frozen=True, slots=True)
class StatisticsDelta:
    """What is new in a client's word since the one that was counted, and whether that one is lost.

    A client that no longer knows what was counted sends nothing, and `lost` 1: its next word would
    be counted twice.

    Attributes
    ----------
    difference : Word
    lost : int
    exchange : str
        Of the query: a difference that comes late must not be counted in another exchange.
    """

    difference: ClusterStatistics
    lost: int
    exchange: str

    def totals(self) -> DeltaTotals:
        """Bring the reply into the form that adds up."""
        return DeltaTotals(RunningTotal.of(self.difference), self.lost, frozenset([self.exchange]))


@dataclass(frozen=True, slots=True)
class DeltaTotals:
    """Sums of changes, in twice double precision so that the total never drifts.

    `exchanges` are those that the parts belong to: there should be one.
    """

    difference: RunningTotal
    lost: int
    exchanges: frozenset[str]

    def __add__(self, other: DeltaTotals) -> DeltaTotals:
        return DeltaTotals(
            self.difference + other.difference, self.lost + other.lost, self.exchanges | other.exchanges
        )


@dataclass(frozen=True, slots=True)
class ScoreTotals:
    """Sums from which both forms of the federated score follow."""

    inertia: float
    n_samples: float
    client_scores: float
    n_clients: int

    @classmethod
    def of(cls, inertia: float, n_samples: float) -> ScoreTotals:
        """One client's share."""
        return cls(inertia, n_samples, inertia / n_samples, 1)

    @property
    def per_sample(self) -> float:
        """Mean squared distance over all rows: the metric in the paper's tables."""
        return self.inertia / self.n_samples

    @property
    def per_client(self) -> float:
        """Unweighted mean of the clients' own scores: the paper's ``RequestScore``."""
        return self.client_scores / self.n_clients

    def __add__(self, other: ScoreTotals) -> ScoreTotals:
        return ScoreTotals(
            self.inertia + other.inertia,
            self.n_samples + other.n_samples,
            self.client_scores + other.client_scores,
            self.n_clients + other.n_clients,
        )


@dataclass(frozen=True, slots=True)
class Description:
    """A client's columns, its number of rows, and by which kernel it computes."""

    n_samples: int
    n_features: int
    feature_names: tuple[str, ...] | None
    kernel: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """Means of the few smallest and of the few largest values of each column, each of shape (m,)."""

    minimum: FloatArray
    maximum: FloatArray


@dataclass(frozen=True, slots=True)
class CentroidSet:
    """A client's own k' ≤ k centroids (k', m) and how many rows each stands for (k',)."""

    centroids: FloatArray
    counts: FloatArray


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place for a new centroid (m,), and the weight with which the server should consider it.

    A client too small to answer without giving a row away sends `weight` 0.
    """

    point: FloatArray
    weight: float


@dataclass(frozen=True, slots=True)
class BundleReply:
    """The replies to a bundle's queries, in their order."""

    replies: tuple[Reply, ...]


Reply: TypeAlias = (
    "LocalModel | ClusterTotals | ClusterStatistics | StatisticsDelta | DeltaTotals | ScoreTotals "
    "| Description | Box | CentroidSet | Candidate | BundleReply"
)


def n_bytes(value: Any) -> int:
    """Size of what a query or reply carries: arrays as they lie in memory, eight bytes a number."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, int | float):
        return 8
    if isinstance(value, Mapping):
        return sum(n_bytes(key) + n_bytes(entry) for key, entry in value.items())
    if isinstance(value, tuple | frozenset):
        return sum(map(n_bytes, value))
    if is_dataclass(value):
        return sum(n_bytes(getattr(value, field.name)) for field in fields(value))
    return 0 if value is None or callable(value) else 8


def bytes_to(clients: Iterable[ClientId], query: Query) -> int:
    """Size of a query that is sent to several clients."""
    clients = tuple(clients)
    if isinstance(query, SendDelta):
        shared = n_bytes(replace(query, counted={}))
        return sum(shared + n_bytes({client: query.counted[client]}) for client in clients)
    return len(clients) * n_bytes(query)
