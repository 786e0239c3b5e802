"""Every message between server and clients, declared once.

A *query* is what the server sends, a *reply* what a site sends back. The type of a field says how it
travels, its constraint what is checked when it arrives. Replies that add up have ``__add__``: the server
needs only their sum, so they may be added in one process, over a network or under encryption. Replies that
do not add up (sets of centroids, candidate points) are asked for one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Annotated, Any, TypeAlias

import numpy as np

from fedkmeans._utils.typing import ClientId, FloatArray
from fedkmeans.errors import WireError
from fedkmeans.kernels.base import WeightingRule
from fedkmeans.kernels.weighting import WEIGHTINGS
from fedkmeans.protocol.constraints import Array, Choice, Real, Text, Whole, check_numbers
from fedkmeans.protocol.declaration import Additive, Query, Reply, message
from fedkmeans.protocol.statistics import ClusterStatistics, RunningTotal

ALL_ROWS = 2**53  # no site has more
# Beyond these, a query is no work but an attack or a mistake.
_Steps: TypeAlias = Annotated[int, Whole(1, 10**6)]
_Seed: TypeAlias = Annotated[int, Whole(0, 2**64)]
_Count: TypeAlias = Annotated[int, Whole(1, ALL_ROWS)]
_Centroids: TypeAlias = Annotated[FloatArray, Array(("k", "m"))]

# How a client may cluster its own rows; `fedkmeans.client.local_kmeans` has the functions.
LOCAL_METHODS = ("k-means", "awasthi-sheffet")
EMPTY_CLUSTERS = ("keep", "relocate", "drop")


# --- replies -----------------------------------------------------------------------------------


@message
class LocalModel(Reply):
    """A client's local centroids (k, m) and the weights (k,) its rule gives them."""

    centroids: _Centroids
    weights: Annotated[FloatArray, Array(("k",), least=0)]

    def totals(self) -> ClusterTotals:
        """Return the reply in the form that adds up."""
        weighted = self.weights[:, None] * self.centroids
        return ClusterTotals(weighted, self.weights, self.centroids, 1)


@message
class ClusterTotals(Additive):
    """Sums over clients: Σ ω c (k, m), Σ ω (k,), Σ c (k, m) and the number of clients.

    The plain sum Σ c is there for clusters to which nobody gives any weight.
    """

    weighted_sum: FloatArray
    weight: FloatArray
    plain_sum: FloatArray
    n_clients: int


@message
class StatisticsDelta(Reply):
    """What changed in a client's statistics since those that the server counted.

    A client that no longer knows what was counted sends nothing, and `lost` 1: its next statistics would
    be counted twice. `exchange` repeats that of the query: a difference that comes late must not be counted
    in another exchange.
    """

    difference: ClusterStatistics
    lost: Annotated[int, Whole(0, 1)]
    exchange: str

    def totals(self) -> DeltaTotals:
        """Return the reply in the form that adds up."""
        return DeltaTotals(RunningTotal.of(self.difference), self.lost, frozenset([self.exchange]))

    def check_for(self, query: SendDelta) -> None:
        """Refuse another exchange, huge sums, impossible holders, and a difference that is lost."""
        if self.exchange != query.exchange:
            raise WireError("it belongs to another exchange: it came late, or was sent a second time.")
        check_numbers("weighted_sum", self.difference.weighted_sum)
        if not np.isin(self.difference.holders, (-1, 0, 1)).all():
            raise WireError("holders has changes other than -1, 0 and 1.")
        if self.lost and any(np.any(part) for part in self.difference.parts()):
            raise WireError("it says that what was counted is lost, and yet what has changed.")


@message
class DeltaTotals(Reply):
    """Sums of deltas, in twice double precision so that the total never drifts.

    `exchanges` are those that the parts belong to: there should be one.
    """

    difference: RunningTotal
    lost: int
    exchanges: frozenset[str]

    def __add__(self, other: DeltaTotals) -> DeltaTotals:
        exchanges = self.exchanges | other.exchanges
        return DeltaTotals(self.difference + other.difference, self.lost + other.lost, exchanges)


@message
class ScoreTotals(Additive):
    """Sums from which both forms of the federated score follow."""

    inertia: Annotated[float, Real(0)]
    n_samples: Annotated[float, Real(positive=True)]
    client_scores: Annotated[float, Real(0)]
    n_clients: Annotated[int, Whole(1, 1)]  # of a single reply

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

    def check_for(self, query: Score) -> None:
        """Refuse scores that do not fit each other."""
        if not np.isclose(self.client_scores, self.inertia / self.n_samples, rtol=1e-9, atol=0):
            raise WireError("client_scores is not inertia / n_samples.")


@message
class Description(Reply):
    """A client's columns, its number of rows, and by which kernel it computes."""

    n_samples: _Count
    n_features: _Count
    feature_names: Annotated[tuple[str, ...] | None, Text(10_000)]
    kernel: Annotated[str, Text(100)] = ""

    def check_for(self, query: Describe) -> None:
        """Refuse names that do not fit the columns; the algorithm compares the columns of sites."""
        if self.feature_names is not None and len(self.feature_names) != self.n_features:
            raise WireError(f"{len(self.feature_names)} column names for {self.n_features} columns.")


@message
class Box(Reply):
    """Means of the few smallest and of the few largest values of each column, each of shape (m,).

    A site with too few rows sends +inf as every minimum and -inf as every maximum.
    """

    minimum: Annotated[FloatArray, Array(("m",), finite=False)]
    maximum: Annotated[FloatArray, Array(("m",), finite=False)]

    def check_for(self, query: FindBox) -> None:
        """Refuse bounds that are no numbers, or in the wrong order."""
        if (self.minimum == np.inf).all() and (self.maximum == -np.inf).all():
            return
        check_numbers("minimum", self.minimum)
        check_numbers("maximum", self.maximum)
        if (self.minimum > self.maximum).any():
            raise WireError("minimum is larger than maximum.")


@message
class CentroidSet(Reply):
    """A client's own k' ≤ k centroids (k', m) and how many rows each stands for (k',)."""

    centroids: Annotated[FloatArray, Array(("k'", "m"))]
    counts: Annotated[FloatArray, Array(("k'",), least=0)]

    def check_for(self, query: LocalClusters) -> None:
        """Refuse more centroids than were asked for."""
        if len(self.centroids) > query.n_clusters:
            raise WireError(f"there are {len(self.centroids)} centroids, {query.n_clusters} were asked for.")


@message
class Candidate(Reply):
    """A place for a new centroid (m,), and the weight with which the server should consider it.

    A client too small to answer without giving a row away sends `weight` 0.
    """

    point: Annotated[FloatArray, Array(("m",))]
    weight: Annotated[float, Real(0)]


@message
class BundleReply(Reply):
    """The replies to a bundle's queries, in their order."""

    replies: tuple[Reply, ...]

    def totals(self) -> BundleReply:
        """Return the replies in the form that adds up."""
        return BundleReply(tuple(reply.totals() for reply in self.replies))

    def __add__(self, other: BundleReply) -> BundleReply:
        return BundleReply(tuple(a + b for a, b in zip(self.replies, other.replies, strict=True)))


# --- queries -----------------------------------------------------------------------------------


@message(reply=LocalModel)
class LocalUpdate(Query):
    """Make up to `max_local` Lloyd steps from `centroids`.

    `weighting` is the name of a rule; in process it may also be the function itself.
    """

    centroids: _Centroids
    max_local: _Steps
    tol_local: Annotated[float, Real(0)]
    weighting: Annotated[str | WeightingRule, Choice(WEIGHTINGS)]
    empty_clusters: Annotated[str, Choice(EMPTY_CLUSTERS)]

    @property
    def steps(self) -> dict[str, Any]:
        """The settings of the local steps, as kernels take them."""
        return {
            "max_local": self.max_local,
            "tol_local": self.tol_local,
            "empty_clusters": self.empty_clusters,
        }


@message(reply=ClusterStatistics)
class SendStatistics(Query):
    """Make an update and send its outcome in a form that can be remembered."""

    update: LocalUpdate


@message(reply=StatisticsDelta)
class SendDelta(Query):
    """Like `SendStatistics`, but send only what changed since the statistics that were counted.

    A client keeps what it sent under `run` and `total`, the names of the fit and of its running total.
    `counted` has, for each client that is asked, the exchange of its latest delta that is part of the total;
    None if it has no part in the total.
    """

    update: LocalUpdate
    run: str
    total: str
    exchange: str  # a name that no other exchange has; the reply repeats it
    counted: Mapping[ClientId, str | None]

    def for_client(self, client: ClientId) -> SendDelta:
        """Return the query without what is counted of others."""
        if client not in self.counted:
            return self
        return replace(self, counted={client: self.counted[client]})


@message(reply=ScoreTotals)
class Score(Query):
    """Say how well these centroids fit your data."""

    centroids: _Centroids


@message(reply=Description)
class Describe(Query):
    """Say which columns you have, and how many rows."""


@message(reply=Box)
class FindBox(Query):
    """Say between which values each column lies, roughly."""


@message(reply=CentroidSet)
class LocalClusters(Query):
    """Cluster your own data.

    A site with more than `max_rows` rows clusters a sample of that size, or of as many rows as its least
    cluster size requires; only the last step uses all rows.
    """

    n_clusters: _Steps
    method: Annotated[str, Choice(LOCAL_METHODS)]
    n_init: _Steps
    max_iter: _Steps
    seed: _Seed
    max_rows: _Count = ALL_ROWS


@message(reply=Candidate)
class DrawPoint(Query):
    """Draw a place where a new centroid may go.

    With `centroids` of shape (0, m) every row is as likely as any other, else a row is drawn with
    probability proportional to its squared distance to the nearest centroid (k-means++). The reply
    never holds the row itself but the mean of `mean_of` rows: `spread` says whether these are the
    drawn row's nearest neighbours (False) or rows drawn at random (True).
    """

    centroids: Annotated[FloatArray, Array(("n", "m"))]
    mean_of: _Steps
    spread: bool
    seed: _Seed


@message(reply=BundleReply)
class Bundle(Query):
    """Several queries that share one exchange."""

    queries: tuple[Query, ...]

    def for_client(self, client: ClientId) -> Bundle:
        """Return the bundle with the part of each query that the client needs."""
        return Bundle(tuple(query.for_client(client) for query in self.queries))


# --- sizes -------------------------------------------------------------------------------------


def n_bytes(value: Any) -> int:
    """Size of what a query or reply carries: arrays as they lie in memory, eight bytes a number."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, Mapping):
        return n_bytes((*value.keys(), *value.values()))
    if isinstance(value, tuple | frozenset):
        return sum(map(n_bytes, value))
    if is_dataclass(value):
        return sum(n_bytes(getattr(value, field.name)) for field in fields(value))
    return 0 if value is None or callable(value) else 8


def bytes_to(clients: Iterable[ClientId], query: Query) -> int:
    """Size of a query that is sent to several clients."""
    clients = tuple(clients)
    if isinstance(query, SendDelta):  # each client gets its own part of `counted`
        texts = "".join([*clients, *(query.counted[client] or "" for client in clients)])
        return len(clients) * n_bytes(replace(query, counted={})) + len(texts.encode())
    return len(clients) * n_bytes(query)
