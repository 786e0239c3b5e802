"""Complete fits, from the first query to the final score: one conversation per algorithm."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

from fedkmeans._utils.seeding import derive_seed
from fedkmeans._utils.typing import ClientId, DataArray, FloatArray
from fedkmeans.algorithms.fkm import fkm_start
from fedkmeans.algorithms.forgetting import forgetting
from fedkmeans.algorithms.initialization import draw_clients, find_initializer
from fedkmeans.algorithms.kfed import VARIANTS, kfed_exchange
from fedkmeans.algorithms.last_word import last_deltas, last_statistics
from fedkmeans.algorithms.rounds import (
    Observer,
    RoundConfig,
    TargetFinder,
    check_participation,
    remaining,
    request_score,
    run_rounds,
    sample_clients,
)
from fedkmeans.algorithms.state import RoundInfo, State
from fedkmeans.algorithms.wf_kmeans import LocalWork, weighted_average
from fedkmeans.errors import DataError, FedKMeansWarning, ParameterError, Setting
from fedkmeans.kernels.weighting import ECHOING
from fedkmeans.protocol.exchange import Ask, Clients, Conversation, run_concurrently
from fedkmeans.protocol.messages import Describe, Description, LocalClusters, ScoreTotals


@dataclass(frozen=True, slots=True)
class Schema:
    """The data format that all clients of a federation share.

    `kernel` names the clients' kernels ("numba+numpy"); `sizes` maps each client to its number of rows.
    """

    n_samples: int
    n_features: int
    feature_names: tuple[str, ...] | None
    kernel: str = ""
    sizes: Mapping[ClientId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of a fit: the centroids (k, m), number of rounds and score of the best restart."""

    centroids: FloatArray
    n_rounds: int
    reason: str
    score: ScoreTotals
    restart: int = 0


# Scores that differ by less are considered equal, so that rounding does not select the restart.
_SAME_SCORE = 1e-12

MemorySetting: TypeAlias = "float | str | None"


def agree_on_schema(clients: Clients, n_clusters: int) -> Conversation[Schema]:
    """Ask all clients for their columns; raise if these differ or if there are fewer rows than clusters."""
    replies: dict[ClientId, Description] = yield Ask(Describe(), clients)
    # The reference is a client with column names, if there is one.
    first = min(replies, key=lambda name: (replies[name].feature_names is None, name))
    for other in sorted(replies):
        _check_columns(first, replies[first], other, replies[other])
    n_samples = sum(reply.n_samples for reply in replies.values())
    # At least two rows: the centroid of a single row is the row itself.
    if n_samples < max(2, n_clusters):
        largest = max(replies, key=lambda name: replies[name].n_samples)
        raise DataError(
            "The clients have ",
            Setting(f"n_samples={n_samples} row(s)", typed=f"{n_samples} row{'s' * (n_samples != 1)}"),
            f" in all (most has {largest!r}, {replies[largest].n_samples}), too few for ",
            Setting("n_clusters", n_clusters),
            ". Ask for fewer clusters or bring more rows; two rows are the least.",
        )
    kernels = "+".join(sorted({reply.kernel for reply in replies.values()} - {""}))
    sizes = {name: replies[name].n_samples for name in sorted(replies)}
    return Schema(n_samples, replies[first].n_features, replies[first].feature_names, kernels, sizes)


def _check_columns(one: ClientId, a: Description, other: ClientId, b: Description) -> None:
    names, others = a.feature_names, b.feature_names
    if names is not None and others is not None and names != others:
        only_one = [name for name in names if name not in others]
        only_other = [name for name in others if name not in names]
        where = f"only {one!r} has {only_one}, only {other!r} has {only_other}"
        if not only_one and not only_other:
            where = f"{other!r} has {list(others)}, {one!r} {list(names)}"
        raise DataError(
            f"Clients {one!r} and {other!r} have different columns: {where}. "
            "Give all clients the same columns in the same order."
        )
    if a.n_features != b.n_features:
        raise DataError(
            f"Client {other!r} has {b.n_features} columns, client {one!r} has {a.n_features}. "
            "Give all clients the same columns."
        )


def wf_kmeans(
    n_clusters: int,
    schema: Schema,
    clients: Clients,
    plan: RoundConfig,
    find_target: TargetFinder,
    init: str | DataArray,
    max_clients: int,
    max_rows: int,
    n_init: int,
    observe: Observer,
) -> Conversation[Fitted]:
    """Weighted federated k-means (Algorithm 1 of the paper, or with memory); restarts share exchanges.

    At most `max_clients` clients take part in the initialization, k-FED with at most `max_rows` rows of each.
    """
    initialize = find_initializer(init, n_clusters, schema.n_features, max_rows)
    if n_init > 1 and not isinstance(init, str):
        message = ("gives the centroids, so ", Setting("n_init", n_init), " would repeat one run; 1 is used.")
        warnings.warn(FedKMeansWarning(*message, parameter="init"), stacklevel=2)
        n_init = 1

    def start(seed: int) -> Conversation[FloatArray]:
        some = draw_clients(clients, schema.sizes, max_clients, seed)
        return initialize(n_clusters, schema.n_features, some, seed)

    return (yield from _restarts(start, find_target, clients, plan, n_init, observe))


def fkm(
    n_clusters: int,
    clients: Clients,
    plan: RoundConfig,
    find_target: TargetFinder,
    n_init: int,
    observe: Observer,
) -> Conversation[Fitted]:
    """FKM of Garst & Reinders; `plan` should have learning rate 1 and momentum 0."""
    # The initialization is also a round: it uses only `clients_per_round` clients.
    first = sample_clients(clients, plan.clients_per_round, derive_seed(plan.seed, "FKM start"), 0)
    start = partial(fkm_start, n_clusters, first)
    return (yield from _restarts(start, find_target, clients, plan, n_init, observe))


def _restarts(
    start: Callable[[int], Conversation[FloatArray]],
    find_target: TargetFinder,
    clients: Clients,
    plan: RoundConfig,
    n_init: int,
    observe: Observer,
) -> Conversation[Fitted]:
    """Run from `n_init` initializations and keep the fit with the lowest score per sample."""
    check_participation(clients, plan.clients_per_round)

    def once(restart: int) -> Conversation[Fitted]:
        centroids = yield from start(derive_seed(plan.seed, "restart", restart))
        start_state = State.start(centroids)
        state, reason = yield from run_rounds(start_state, plan, clients, find_target, observe, restart)
        score = yield from request_score(state.centroids, (yield from remaining(clients)))
        return Fitted(state.centroids, state.round, reason, score, restart)

    return best_fit((yield from run_concurrently([once(restart) for restart in range(n_init)])))


def find_memory(memory: MemorySetting, work: LocalWork, look_ahead: float = 0.0) -> TargetFinder:
    """Return the function that computes the target of a round with this memory.

    `memory` says where the latest statistics of each client are stored, "server" or "client"; or it is γ in
    (0, 1), or None (the paper). Some settings of `work` cannot be combined with memory.
    """
    if memory is None:
        return partial(weighted_average, work=work)
    if isinstance(work.weighting, str) and work.weighting in ECHOING:
        paper = f"memory=None: FederatedKMeans.paper(weighting={work.weighting!r})"
        raise ParameterError(
            f"{work.weighting!r} does not go with memory: it gives weight to clusters in which a client has "
            "no points, and an old position of the centroid would count for many rounds.",
            parameter="weighting",
            remedy=("Use 'dynamic', or ", Setting(paper, typed="--algorithm wf"), "."),
        )
    if work.empty_clusters != "keep":
        raise ParameterError(
            f"{work.empty_clusters!r} does not go with memory: a cluster without rows has no weight that "
            "could move it.",
            parameter="empty_clusters",
            remedy=("Use 'keep', or ", Setting("memory", None, typed="--algorithm wf"), "."),
        )
    if isinstance(memory, str) and memory == "server":
        return partial(last_statistics, work=work, look_ahead=look_ahead)
    if isinstance(memory, str) and memory == "client":
        return partial(last_deltas, work=work, run_names=[], look_ahead=look_ahead)
    if isinstance(memory, float | np.floating) and 0 < memory < 1:
        return partial(forgetting, work=work, gamma=float(memory))
    raise ParameterError(
        "must be None (each round for itself), 'server' or 'client' (where the latest statistics of each "
        "client are kept), or a number between 0 and 1 (how much of the totals a round keeps); got "
        f"{memory!r}.",
        parameter="memory",
    )


def best_fit(fits: Sequence[Fitted]) -> Fitted:
    """Return the fit with the lowest score per sample; the first one if scores differ only by rounding."""
    lowest = min(fit.score.per_sample for fit in fits)
    return next(fit for fit in fits if fit.score.per_sample <= lowest * (1 + _SAME_SCORE))


def kfed(
    n_clusters: int,
    clients: Clients,
    seed: int,
    method: str,
    clients_per_round: int | None,
    n_local_clusters: int | None,
    n_init: int,
    n_init_local: int,
    max_iter: int,
    observe: Observer,
) -> Conversation[Fitted]:
    """k-FED with the clients sampled for its single round; `method` is one of `VARIANTS`."""
    check_participation(clients, clients_per_round)
    chosen = sample_clients(clients, clients_per_round, seed, 0)
    # The theory of the published variant assumes clients with few of the clusters, k' ≤ √k; with k' = k the
    # server would only use the centroids of one client.
    few = math.ceil(math.sqrt(n_clusters)) if method == VARIANTS["published"] else n_clusters
    n_local = n_local_clusters or few
    if n_local > n_clusters:
        message = (f"is {n_local}, more than ", Setting("n_clusters", n_clusters), ". Lower it.")
        raise ParameterError(*message, parameter="n_local_clusters")
    query = LocalClusters(n_local, method, n_init_local, max_iter, seed)
    found = yield from kfed_exchange(query, n_clusters, chosen, n_init)
    score = yield from request_score(found.d, clients)
    nowhere = float("nan")  # there are no previous centroids
    report = (found.answered, found.estimate, score, found.sent, found.received)
    observe(State(found.d, found.d, 1, (nowhere,)), RoundInfo(0, 1, nowhere, chosen, *report))
    return Fitted(found.d, 1, "one shot", score)
