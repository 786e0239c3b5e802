"""Totals that remember: three ways to let earlier rounds count, beside the paper's, which forgets.

The paper divides by the weights of one round, so that a round in which cluster j has two stray
points moves c_j as much as one in which it has five hundred. Here the server divides totals that
reach further back: S_j = Σ ω c and W_j = Σ ω over clients *and* rounds, d_j = S_j / W_j.

`forgetting`
    All earlier words count, but less with every round; clients and server keep next to nothing.
`last_statistics`
    The latest word of every client counts; the server keeps one word a client.
`last_deltas`
    The same, but each client keeps its own word and sends what changed; the server keeps the sum
    alone. The numbers are the same as long as nobody leaves or forgets what it said.

Clients that have not spoken yet stand in with the centroids as they are, all clusters alike, so that
a cluster of which little is known moves little.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from fedkmeans._utils.typing import ClientId, FloatArray
from fedkmeans.algorithms.response_log import ResponseLog
from fedkmeans.algorithms.rounds import LocalWork, TargetFinder, weighted_average
from fedkmeans.algorithms.state import State, Target
from fedkmeans.errors import FederationError, FedKMeansWarning, ParameterError, Setting
from fedkmeans.kernels.reference.lloyd import means
from fedkmeans.kernels.weighting import ECHOING
from fedkmeans.protocol.exchange import Ask, AskTotal, Conversation, NewId, Total
from fedkmeans.protocol.messages import SendDelta, SendStatistics, bytes_to, n_bytes
from fedkmeans.protocol.statistics import ClusterStatistics, RunningTotal

MemorySetting: TypeAlias = "float | str | None"

# Below this, what is left of a forgotten total is closer to rounding than to anybody's data.
_FADED = 1e-100
# When beginning anew is no longer an accident.
_OFTEN = 5


@dataclass(frozen=True, slots=True)
class FadingTotal:
    """Memory of `forgetting`."""

    total: ClusterStatistics
    response_log: ResponseLog = field(default_factory=ResponseLog)


@dataclass(frozen=True, slots=True)
class StatisticsOfAll:
    """Memory of `last_statistics`: each client's latest word, and their sum."""

    words: Mapping[ClientId, ClusterStatistics]
    total: RunningTotal
    response_log: ResponseLog = field(default_factory=ResponseLog)

    def keep(self, clients: tuple[ClientId, ...]) -> StatisticsOfAll:
        """Forget the clients that have left."""
        gone = self.words.keys() - set(clients)
        return self.hear(dict.fromkeys(sorted(gone))) if gone else self

    def hear(self, news: Mapping[ClientId, ClusterStatistics | None]) -> StatisticsOfAll:
        """Let new words take the place of old ones; None takes the old one off."""
        words, total = dict(self.words), self.total
        for client in sorted(news):
            old, new = words.pop(client, None), news[client]
            if old is not None:
                total = total.plus(-old)
            if new is not None:
                total = total.plus(new)
                words[client] = new
        return replace(self, words=words, total=total)


@dataclass(frozen=True, slots=True)
class SumOfDeltas:
    """Memory of `last_deltas`: the sum of the latest words, and whose latest change is part of it.

    It has a name, since a client must know to which sum it said what; `counted` holds the exchange
    of each client's latest change, and `begun` counts how often the sum was begun anew.
    """

    run: str
    name: str
    begun: int
    total: RunningTotal
    counted: Mapping[ClientId, str]
    response_log: ResponseLog = field(default_factory=ResponseLog)

    @classmethod
    def empty(cls, run: str, name: str, k: int, m: int) -> SumOfDeltas:
        """Return a sum under a new name, to which everybody will send all they have."""
        return cls(run, name, 0, RunningTotal.nothing(k, m), {})

    def count(self, answer: Total, exchange: str) -> SumOfDeltas:
        """Add the changes of an exchange, and take note of whose they are."""
        if answer.record.exchanges != {exchange}:
            raise FederationError(
                "A change that was sent in an earlier exchange came too late and was added to this one. The "
                "federation must drop late replies."
            )
        counted = {**self.counted, **dict.fromkeys(answer.answered, exchange)}
        return replace(self, total=self.total + answer.record.difference, counted=counted)

    def anew(self) -> SumOfDeltas:
        """Begin again; all must be heard again too."""
        if self.begun + 1 == _OFTEN:
            warnings.warn(
                FedKMeansWarning(
                    f"The sum of the clients' last words was begun anew {_OFTEN} times, because clients "
                    "left or no longer knew what they had said. If this goes on, use ",
                    Setting("memory", "server"),
                    ".",
                ),
                stacklevel=2,
            )
        k, m = self.total.high.weighted_sum.shape
        response_log = replace(self.response_log, heard={})
        return replace(
            self,
            begun=self.begun + 1,
            total=RunningTotal.nothing(k, m),
            counted={},
            response_log=response_log,
        )


@dataclass(slots=True)
class RunName:
    """The name of a fit, under which clients keep what they said; all its restarts share it."""

    name: str = ""

    def settle(self, proposed: str) -> str:
        """Return the name; what is proposed first becomes it."""
        self.name = self.name or proposed
        return self.name


def forgetting(
    state: State,
    clients: tuple[ClientId, ...],
    chosen: tuple[ClientId, ...],
    *,
    work: LocalWork,
    gamma: float,
) -> Conversation[Target]:
    """S ← γ S + Σ ω c, W ← γ W + Σ ω over the clients that answered; d = S / W.

    In round t = 0, 1, … γ is at most 1 - 1/(t + 2): the first rounds are averaged, not forgotten.
    """
    memory: FadingTotal = state.memory or FadingTotal(ClusterStatistics.nothing(*state.centroids.shape))
    query = SendStatistics(work.query(state.centroids))
    answer: Total = yield AskTotal(query, chosen, optional=True)
    total = memory.total * min(gamma, 1 - 1 / (state.round + 2))
    if answer.answered:
        total = total + answer.record
    response_log = memory.response_log.after(state.round, chosen, answer.answered)
    return _target(
        state,
        clients,
        total,
        share=1.0,
        least=_FADED,
        answered=answer.answered,
        sent=bytes_to(chosen, query),
        received=answer.received,
        memory=FadingTotal(total, response_log),
    )


def last_statistics(
    state: State, clients: tuple[ClientId, ...], chosen: tuple[ClientId, ...], *, work: LocalWork
) -> Conversation[Target]:
    """The latest word of every client counts, and the server keeps them."""
    k, m = state.centroids.shape
    memory: StatisticsOfAll = state.memory or StatisticsOfAll({}, RunningTotal.nothing(k, m))
    query = SendStatistics(work.query(state.centroids))
    words: dict[ClientId, ClusterStatistics] = yield Ask(query, chosen, optional=True)
    answered = tuple(sorted(words))
    memory = memory.keep(clients).hear(words)
    memory = replace(memory, response_log=memory.response_log.after(state.round, chosen, answered))
    return _target(
        state,
        clients,
        memory.total.high,
        share=memory.response_log.share(clients, memory.words),
        answered=answered,
        sent=bytes_to(chosen, query),
        received=sum(map(n_bytes, words.values())),
        memory=memory,
    )


def last_deltas(
    state: State,
    clients: tuple[ClientId, ...],
    chosen: tuple[ClientId, ...],
    *,
    work: LocalWork,
    run: RunName,
) -> Conversation[Target]:
    """The latest word of every client counts, and the clients keep them.

    Nobody but a client knows its part of the sum. When a client has left, or no longer knows what
    it said, the sum is therefore begun anew: clients that are not part of it yet stand in with the
    centroids as they are, which loses no ground, and send all they have when they are next asked.
    """
    memory: SumOfDeltas | None = state.memory
    if memory is None:
        # Restarts come here at the same time, so each draws a name for the run and the first one counts.
        name_of_run = run.settle((yield NewId()))
        memory = SumOfDeltas.empty(name_of_run, (yield NewId()), *state.centroids.shape)
    if memory.counted.keys() - set(clients):
        memory = memory.anew()
    answer, exchange, sent, received = yield from _ask_deltas(state, chosen, memory, work)
    if answer.answered and answer.record.lost:
        memory = memory.anew()
        answer, exchange, *more = yield from _ask_deltas(state, chosen, memory, work)
        sent, received = sent + more[0], received + more[1]
        if answer.answered and answer.record.lost:
            raise FederationError(
                "A client says that it lost what was counted of it, although it was told that nothing is. "
                "Check that all sites run the same version."
            )
    if answer.answered:
        memory = memory.count(answer, exchange)
    memory = replace(memory, response_log=memory.response_log.after(state.round, chosen, answer.answered))
    return _target(
        state,
        clients,
        memory.total.high,
        share=memory.response_log.share(clients, memory.counted),
        answered=answer.answered,
        sent=sent,
        received=received,
        memory=memory,
    )


def _ask_deltas(
    state: State, chosen: tuple[ClientId, ...], memory: SumOfDeltas, work: LocalWork
) -> Conversation[tuple[Total, str, int, int]]:
    """Ask for changes; returns the answer, the name of the exchange, and the bytes both ways."""
    exchange: str = yield NewId()
    counted = {client: memory.counted.get(client) for client in chosen}
    query = SendDelta(work.query(state.centroids), memory.run, memory.name, exchange, counted)
    answer: Total = yield AskTotal(query, chosen, optional=True)
    return answer, exchange, bytes_to(chosen, query), answer.received


def _target(
    state: State,
    clients: tuple[ClientId, ...],
    total: ClusterStatistics,
    *,
    share: float,
    least: float = 0.5,
    answered: tuple[ClientId, ...],
    sent: int,
    received: int,
    memory: Any,
) -> Target:
    return Target(
        d=target(total, state.centroids, share, least),
        answered=answered,
        sent=sent,
        received=received,
        memory=memory,
        estimate=total.inertia / total.n_samples if total.n_samples > 0 else float("nan"),
        window=memory.response_log.window(clients, state.round),
    )


def target(total: ClusterStatistics, centroids: FloatArray, share: float, least: float = 0.5) -> FloatArray:
    """d_j = (S_j + w c_j) / (W_j + w); a cluster that nobody holds stays where it is.

    Clients that are not known are taken to weigh as much as the others do on average, spread evenly
    over the clusters: w = (1/f - 1) Σ_j W_j / k if a share f is known. Their word is the centroids as
    they are, not as they were at first: so clients that never answer slow the way down, but do not
    change where it leads.

    Parameters
    ----------
    total : Word
        Sums over the clients that are known.
    centroids : ndarray of shape (k, m)
        C^(t).
    share : float
        f, known clients among all.
    least : float
        Clusters with fewer holders count as empty.

    Returns
    -------
    ndarray of shape (k, m)
    """
    held = total.holders >= least
    weight = np.where(held, total.weight, 0.0)
    weighted_sum = np.where(held[:, None], total.weighted_sum, 0.0)
    w = (1 / share - 1) * weight.sum() / len(weight) if share else 0.0
    return means(weighted_sum + w * centroids, weight + w, otherwise=centroids)


def find_memory(memory: MemorySetting, work: LocalWork) -> TargetFinder:
    """Return the way to aggregate with this memory; raise if the work does not go with it.

    Parameters
    ----------
    memory : {"server", "client"} or float or None
        Where each client's last word is kept, or γ in (0, 1), or nothing (the paper).
    work : LocalWork
    """
    if memory is None:
        return partial(weighted_average, work=work)
    if isinstance(work.weighting, str) and work.weighting in ECHOING:
        raise ParameterError(
            f"{work.weighting!r} does not go with memory: it gives weight to clusters in which a "
            "client has no points, and the client would go on voting for the place where the centroid was "
            "when it was last asked.",
            parameter="weighting",
            remedy=(
                "Use 'dynamic', or ",
                Setting(
                    f"memory=None: FederatedKMeans.paper(weighting={work.weighting!r})",
                    typed="--algorithm wf",
                ),
                ".",
            ),
        )
    if work.empty_clusters != "keep":
        raise ParameterError(
            f"{work.empty_clusters!r} does not go with memory: a cluster that no client holds "
            "stays where it is, since no weight stands behind a new place.",
            parameter="empty_clusters",
            remedy=("Use 'keep', or ", Setting("memory", None, typed="--algorithm wf"), "."),
        )
    if isinstance(memory, str) and memory == "server":
        return partial(last_statistics, work=work)
    if isinstance(memory, str) and memory == "client":
        return partial(last_deltas, work=work, run=RunName())
    if isinstance(memory, float | np.floating) and 0 < memory < 1:
        return partial(forgetting, work=work, gamma=float(memory))
    raise ParameterError(
        "must be None (each round for itself), 'server' or 'client' (where each client's last word is "
        f"kept), or a number between 0 and 1 (how much of the totals a round keeps); got {memory!r}.",
        parameter="memory",
    )
