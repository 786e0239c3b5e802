"""A site: the only door to a client's data. It receives a query and answers with a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedkmeans import records
from fedkmeans.checksums import checksum
from fedkmeans.conversation import Total, add_up
from fedkmeans.errors import DataError, FederationError, ParameterError
from fedkmeans.frames import numeric_frame, ordered_array
from fedkmeans.kernels import AUTO, Outcome
from fedkmeans.last_word import Spoken, speak
from fedkmeans.lloyd import distances_to_own, double_block
from fedkmeans.local_clustering import local_clusters
from fedkmeans.parameters import check_integer
from fedkmeans.records import LocalSummary, LocalUpdate, Query, Reply
from fedkmeans.seeding import generator
from fedkmeans.shards import Shards
from fedkmeans.sparse_rows import SparseRows, Table, as_table
from fedkmeans.threads import in_threads
from fedkmeans.typing import ClientId, DataArray, FloatArray
from fedkmeans.weighting import USES_INERTIA, needs_inertia, weights_for
from fedkmeans.words import Word


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


# Runs for which a site keeps in mind what it said; one may begin while another is being finished.
RUNS_KEPT = 4
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
        self._settle(name, Shards(table, [0, len(table)], weight, kernel), 0, feature_names, policy)

    def _settle(
        self,
        name: ClientId,
        shards: Shards,
        index: int,
        feature_names: tuple[str, ...] | None,
        policy: SitePolicy | None,
    ) -> None:
        self.name = name
        self.shards = shards
        self.index = index
        self.feature_names = feature_names
        self.policy = policy or SitePolicy()
        self.spoken: dict[str, dict[str, Spoken]] = {}  # by run and total

    @classmethod
    def neighbours(
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
        shards = Shards(X, edges, sample_weight, kernel)
        sites = []
        for index, name in enumerate(names):
            site = cls.__new__(cls)
            site._settle(name, shards, index, feature_names, policy)
            sites.append(site)
        return sites

    @property
    def X(self) -> Table:
        """The rows, shape (n, m)."""
        return self.shards.X(self.index)

    @property
    def sample_weight(self) -> FloatArray | None:
        """The weights of the rows, shape (n,)."""
        return self.shards.sample_weight(self.index)

    @property
    def n_samples(self) -> float:
        """How many rows there are, or how much they weigh."""
        return float(self.shards.n_samples[self.index])

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
        return _answer_together([self], query, 1)[self.name]

    @property
    def in_its_own_way(self) -> bool:
        """Whether it is of a kind that answers differently, and must be asked by itself."""
        return type(self).answer is not Site.answer


def answer_all(sites: Sequence[Site], query: Query, n_threads: int = 1) -> dict[ClientId, Reply]:
    """Let several sites answer the same query, each with what of it is addressed to it."""
    alike = [site for site in sites if not site.in_its_own_way]
    replies = _answer_together(alike, query, n_threads)
    others = [site for site in sites if site.in_its_own_way]
    return replies | {site.name: site.answer(records.addressed(query, site.name)) for site in others}


def _answer_together(sites: Sequence[Site], query: Query, n_threads: int) -> dict[ClientId, Reply]:
    """Local steps of sites that are neighbours are one call of the kernel."""
    if isinstance(query, records.Bundle):
        answers = [_answer_together(sites, part, n_threads) for part in query.queries]
        return {
            site.name: records.BundleReply(tuple(answer[site.name] for answer in answers)) for site in sites
        }
    if type(query) in _LOCAL_WORK:
        update, inertia, say = _LOCAL_WORK[type(query)]
        return {
            site.name: say(site, records.addressed(query, site.name), local)
            for site, local in _local_work(sites, update(query), inertia(query), n_threads)
        }
    answer = _ANSWERS[type(query)]
    replies = in_threads(answer, [(site, query) for site in sites], n_threads)
    return {site.name: reply for site, reply in zip(sites, replies, strict=True)}


def total_of(sites: Sequence[Site], query: Query, n_threads: int = 1) -> Total:
    """What `add_up(answer_all(…))` returns, without replies of single sites where they are not needed."""
    if any(site.in_its_own_way for site in sites):
        return add_up(answer_all(sites, query, n_threads))
    if isinstance(query, records.Bundle):
        totals = [total_of(sites, part, n_threads) for part in query.queries]
        bundle = records.BundleReply(tuple(total.record for total in totals))
        return Total(bundle, totals[0].answered, tuple(total.received for total in totals))
    neighbours = len({id(site.shards) for site in sites}) == 1
    if not (neighbours and isinstance(query, LocalUpdate) and isinstance(query.weighting, str)):
        return add_up(answer_all(sites, query, n_threads))
    sites = sorted(sites, key=lambda site: site.name)
    shards, which = sites[0].shards, np.array([site.index for site in sites])
    k, m = query.centroids.shape
    weighted_sum, weight, plain_sum = np.zeros((k, m)), np.zeros(k), np.zeros((k, m))
    with shards.lock:
        for some in shards.portions(which, query):
            outcome = shards.local_steps(some, query, query.weighting in USES_INERTIA, n_threads)
            weights = weights_for(query.weighting, _summary(outcome, shards.n_samples[some]))
            outcome.add_to(weights, weighted_sum, plain_sum)
            for own in weights:  # one after the other, as records are added
                weight += own
    record = records.ClusterTotals(weighted_sum, weight, plain_sum, len(sites))
    size = weighted_sum.nbytes + weight.nbytes  # of a `LocalModel`
    return Total(record, tuple(site.name for site in sites), len(sites) * size)


def _local_work(
    sites: Sequence[Site], update: LocalUpdate, inertia: bool, n_threads: int
) -> list[tuple[Site, LocalSummary]]:
    """Local steps of sites, neighbours together."""
    groups: dict[int, list[Site]] = {}
    for site in sites:
        groups.setdefault(id(site.shards), []).append(site)
    inner, outer = (n_threads, 1) if len(groups) < n_threads else (1, n_threads)

    def work(group: list[Site]) -> list[tuple[Site, LocalSummary]]:
        shards, which = group[0].shards, np.array([site.index for site in group])
        outcome = shards.local_steps(which, update, inertia, inner)
        return [(site, _summary(outcome, site.n_samples, place)) for place, site in enumerate(group)]

    with ExitStack() as held:
        # All locks first, in one order for everybody, and none in the threads: a thread that waits for
        # a lock would keep another from working whose owner waits for a thread.
        for _, group in sorted(groups.items()):
            held.enter_context(group[0].shards.lock)
        pairs = in_threads(work, [(group,) for group in groups.values()], outer)
    return [pair for some in pairs for pair in some]


def _summary(outcome: Outcome, n_samples: Any, place: int | None = None) -> LocalSummary:
    """The summary of one client, or of all at once: then without centroids, with one row a client."""
    which: Any = slice(None) if place is None else place
    missing = np.broadcast_to(np.nan, outcome.counts.shape)
    return LocalSummary(
        centroids=np.empty(0) if place is None else outcome.centroids(place),
        counts=outcome.counts[which],
        last_counts=outcome.last_counts[which],
        inertia=(missing if outcome.inertia is None else outcome.inertia)[which],
        n_samples=n_samples,
        received_inertia=float("nan")
        if place is None or outcome.received_inertia is None
        else float(outcome.received_inertia[place]),
    )


def _model(site: Site, query: LocalUpdate, local: LocalSummary) -> records.LocalModel:
    return records.LocalModel(local.centroids, weights_for(query.weighting, local))


def _word(site: Site, query: records.SendWord, local: LocalSummary) -> Word:
    weight = weights_for(query.update.weighting, local)
    if (weight[(local.counts == 0) & (local.last_counts == 0)] > 0).any():
        raise ParameterError(
            f"Client {site.name!r}: the weighting rule gives weight to a cluster in which the client has no "
            "points; this cannot be remembered. Return 0 there (where counts is 0), or use memory=None."
        )
    return Word(
        weighted_sum=weight[:, None] * local.centroids,
        weight=weight,
        holders=(weight > 0).astype(np.float64),
        inertia=local.received_inertia,
        n_samples=local.n_samples,
    )


def _change(site: Site, query: records.SendChange, local: LocalSummary) -> records.Change:
    if site.name not in query.counted:
        raise FederationError(
            f"Client {site.name!r} was asked for what changed, but the query speaks only of "
            f"{', '.join(sorted(query.counted)[:5])}. The federation must know its sites by their own names."
        )
    word = _word(site, records.SendWord(query.update), local)
    totals = site.spoken.pop(query.run, {})
    change, spoken = speak(totals.get(query.total), word, query.exchange, query.counted[site.name])
    if spoken is not None:
        totals[query.total] = spoken
    site.spoken[query.run] = totals  # at the end: the run that was silent longest comes first
    while len(site.spoken) > RUNS_KEPT:
        site.spoken.pop(next(iter(site.spoken)))
    return change


# Queries that begin with local steps: the steps, whether inertia is needed, and what to say of them.
_LOCAL_WORK: dict[type, tuple[Callable[[Any], LocalUpdate], Callable[[Any], bool], Callable[..., Reply]]] = {
    LocalUpdate: (lambda query: query, lambda query: needs_inertia(query.weighting), _model),
    records.SendWord: (lambda query: query.update, lambda query: True, _word),
    records.SendChange: (lambda query: query.update, lambda query: True, _change),
}


def _score(site: Site, query: records.Score) -> records.ScoreTotals:
    inertia = site.shards.kernel.inertia(site.X, query.centroids, site.sample_weight)
    return records.ScoreTotals.of(inertia, site.n_samples)


def _describe(site: Site, query: records.Describe) -> records.Description:
    return records.Description(len(site.X), site.X.shape[1], site.feature_names, site.shards.kernel_name)


def _find_box(site: Site, query: records.FindBox) -> records.Box:
    # Not the outermost value, which is somebody's, but the mean of the outermost few.
    few = site.policy.min_cluster_size
    n, m = site.X.shape
    if n < few:
        return records.Box(np.full(m, np.inf), np.full(m, -np.inf))  # bounds that bound nothing
    box = np.empty((2, m))
    for j, numbers in enumerate(_outer_numbers(site.X, few)):
        ordered = np.partition(numbers, sorted({few - 1, len(numbers) - few}))
        for side, outermost in enumerate((ordered[:few], ordered[len(numbers) - few :])):
            box[side, j] = np.sort(outermost).mean(dtype=np.float64)  # sorted: rounded in one way only
    return records.Box(box[0], box[1])


def _outer_numbers(X: Table, few: int) -> Iterator[DataArray]:
    """For each column numbers among which are its `few` least and its `few` largest."""
    if not isinstance(X, SparseRows):
        yield from X.T
        return
    for numbers, _ in X.by_column():
        # No more zeros than could be among them.
        n_zeros = min(few, len(X) - len(numbers))
        yield np.concatenate([numbers, np.zeros(n_zeros, dtype=numbers.dtype)])


def _cluster(site: Site, query: records.LocalClusters) -> records.CentroidSet:
    return local_clusters(
        site.X,
        query.n_clusters,
        query.method,
        site.generator(query.seed),
        n_init=query.n_init,
        max_iter=query.max_iter,
        min_cluster_size=site.policy.min_cluster_size,
        kernel=site.shards.kernel,
        sample_weight=site.sample_weight,
    )


def _draw(site: Site, query: records.DrawPoint) -> records.Candidate:
    n, m = site.X.shape
    if n < site.policy.min_cluster_size:
        return records.Candidate(np.zeros(m), 0.0)
    potential = np.ones(n) if site.sample_weight is None else site.sample_weight
    if len(query.centroids):
        nearest = site.shards.kernel.assign(site.X, query.centroids)
        potential = potential * distances_to_own(site.X, query.centroids, nearest)
    total = float(potential.sum())
    if total == 0:  # every row is a centroid already
        return records.Candidate(np.zeros(m), 0.0)
    rng = site.generator(query.seed)
    mean_of = min(n, max(query.mean_of, site.policy.min_cluster_size))
    if query.spread:
        rows = rng.choice(n, size=mean_of, replace=False)
    else:
        drawn = double_block(site.X, np.array([rng.choice(n, p=potential / total)]))
        to_drawn = distances_to_own(site.X, drawn, np.zeros(n, dtype=np.intp))
        rows = np.argsort(to_drawn, kind="stable")[:mean_of]
    return records.Candidate(double_block(site.X, rows).mean(axis=0), total)


_ANSWERS: dict[type, Callable[[Site, Any], Reply]] = {
    records.Score: _score,
    records.Describe: _describe,
    records.FindBox: _find_box,
    records.LocalClusters: _cluster,
    records.DrawPoint: _draw,
}
