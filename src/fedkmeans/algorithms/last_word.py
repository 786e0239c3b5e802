"""The default algorithm: k-means in which the latest statistics of every client count.

In each round the server sends the centroids C to a few clients. A client makes its local steps and
returns, for each cluster, its weighted sum ω c and its weight ω, with ω the number of its rows in
the cluster. The server keeps the totals S = Σ ω c and W = Σ ω over the *latest* statistics of all
clients, so that a client which is not asked counts with what it sent last, and moves the centroids
to d = S / W (docs/memory.md). With all clients in each round this is pooled k-means.

Clients that have not answered yet count as if they had sent the centroids as they are, so that a
cluster of which little is known moves little (`server_update.remembered_target`).

`last_statistics` (``memory="server"``, the default)
    The server keeps the latest statistics of every client.
`last_deltas` (``memory="client"``)
    Each client keeps its own latest statistics and sends what changed; the server keeps only the
    total. Both give the same numbers as long as no client leaves or loses its state.

It is incremental EM (Neal & Hinton 1998); MIFA (Gu et al. 2021) does the same for gradients.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fedkmeans._utils.typing import ClientId
from fedkmeans.algorithms.latest_statistics import LatestStatistics
from fedkmeans.algorithms.response_log import ResponseLog
from fedkmeans.algorithms.server_update import remembered_target
from fedkmeans.algorithms.state import RunName, State, Target
from fedkmeans.algorithms.wf_kmeans import LocalWork
from fedkmeans.errors import FederationError, FedKMeansWarning, Setting
from fedkmeans.protocol.exchange import Ask, AskTotal, Conversation, NewId, Total
from fedkmeans.protocol.messages import SendDelta, SendStatistics, bytes_to, n_bytes
from fedkmeans.protocol.statistics import ClusterStatistics, RunningTotal

_OFTEN = 5  # the server warns when it has started the total again this many times


@dataclass(frozen=True, slots=True)
class StatisticsOfAll:
    """Each client's latest statistics, changed in place by a round, and their total."""

    latest: LatestStatistics
    total: RunningTotal
    response_log: ResponseLog = field(default_factory=ResponseLog)


@dataclass(frozen=True, slots=True)
class SumOfDeltas:
    """State of `last_deltas`: the total, and which change of each client is part of it.

    Attributes
    ----------
    run, name : str
        Names of the run and of the total, under which clients keep what they sent.
    restarts : int
        How often the total was started again.
    total : RunningTotal
    counted : dict
        For each client that is part of the total, the exchange of its latest change.
    """

    run: str
    name: str
    restarts: int
    total: RunningTotal
    counted: Mapping[ClientId, str]
    response_log: ResponseLog = field(default_factory=ResponseLog)

    def count(self, answer: Total, exchange: str) -> SumOfDeltas:
        """Add the changes of an exchange, and note whose they are."""
        if answer.record.exchanges != {exchange}:
            raise FederationError(
                "A change that was sent in an earlier exchange arrived late and was added to this one. The "
                "federation must drop late replies."
            )
        counted = {**self.counted, **dict.fromkeys(answer.answered, exchange)}
        return replace(self, total=self.total + answer.record.difference, counted=counted)

    def start_again(self) -> SumOfDeltas:
        """Forget the total; every client sends its whole statistics when it is next asked."""
        if self.restarts + 1 == _OFTEN:
            warnings.warn(
                FedKMeansWarning(
                    f"The total of the clients' statistics was started again {_OFTEN} times: clients left "
                    "or lost what they had sent. If this goes on, use ",
                    *(Setting("memory", "server"), "."),
                ),
                stacklevel=2,
            )
        return replace(
            self,
            restarts=self.restarts + 1,
            total=RunningTotal.nothing(*self.total.high.weighted_sum.shape),
            counted={},
            response_log=replace(self.response_log, heard={}),
        )


def last_statistics(
    state: State, clients: tuple[ClientId, ...], chosen: tuple[ClientId, ...], *, work: LocalWork
) -> Conversation[Target]:
    """One round in which the server keeps the latest statistics of every client."""
    k, m = state.centroids.shape
    memory: StatisticsOfAll = state.memory or StatisticsOfAll(
        LatestStatistics(clients, k, m, state.round), RunningTotal.nothing(k, m)
    )
    memory.latest.check_round(state.round)
    query = SendStatistics(work.query(state.centroids))
    statistics: Mapping[ClientId, ClusterStatistics] = yield Ask(query, chosen, optional=True)
    answered = tuple(sorted(statistics))
    memory.latest.keep(clients)  # forget clients that have left
    memory.latest.replace(statistics)
    return _target(
        state,
        clients,
        chosen,
        answered,
        sent=bytes_to(chosen, query),
        received=len(answered) * n_bytes(ClusterStatistics.nothing(k, m)),
        known=memory.latest.known,
        memory=replace(memory, total=memory.latest.total()),
    )


def last_deltas(
    state: State,
    clients: tuple[ClientId, ...],
    chosen: tuple[ClientId, ...],
    *,
    work: LocalWork,
    run: RunName,
) -> Conversation[Target]:
    """One round in which each client keeps its latest statistics and sends what changed.

    Only a client knows its part of the total. If a client has left, or has lost what it sent, the
    server therefore starts the total again: until they are next asked, clients count as if they had
    sent the centroids as they are, so that the progress so far is kept.
    """
    memory: SumOfDeltas | None = state.memory
    if memory is None:
        # Restarts run at the same time: each proposes a name for the run, and the first one counts.
        run_name = run.settle((yield NewId()))
        memory = SumOfDeltas(run_name, (yield NewId()), 0, RunningTotal.nothing(*state.centroids.shape), {})
    if memory.counted.keys() - set(clients):
        memory = memory.start_again()
    answer, exchange, sent = yield from _ask_deltas(state, chosen, memory, work)
    received = answer.received
    if answer.answered and answer.record.lost:
        memory = memory.start_again()
        answer, exchange, sent_again = yield from _ask_deltas(state, chosen, memory, work)
        sent, received = sent + sent_again, received + answer.received
        if answer.answered and answer.record.lost:
            raise FederationError(
                "A client says that it lost what was counted of it, although it was told that nothing is. "
                "Check that all sites run the same version."
            )
    if answer.answered:
        memory = memory.count(answer, exchange)
    return _target(
        state, clients, chosen, answer.answered, sent, received, known=memory.counted, memory=memory
    )


def _ask_deltas(
    state: State, chosen: tuple[ClientId, ...], memory: SumOfDeltas, work: LocalWork
) -> Conversation[tuple[Total, str, int]]:
    """Ask for changes; returns the answer, the name of the exchange, and the bytes sent."""
    exchange: str = yield NewId()
    counted = {client: memory.counted.get(client) for client in chosen}
    query = SendDelta(work.query(state.centroids), memory.run, memory.name, exchange, counted)
    answer: Total = yield AskTotal(query, chosen, optional=True)
    return answer, exchange, bytes_to(chosen, query)


def _target(
    state: State,
    clients: tuple[ClientId, ...],
    chosen: tuple[ClientId, ...],
    answered: tuple[ClientId, ...],
    sent: int,
    received: int,
    known: Mapping[ClientId, object],
    memory: StatisticsOfAll | SumOfDeltas,
) -> Target:
    """Move to d = S / W, and note who answered."""
    response_log = memory.response_log.after(state.round, chosen, answered)
    total = memory.total.high
    return Target(
        d=remembered_target(total, state.centroids, response_log.share(clients, known)),
        answered=answered,
        sent=sent,
        received=received,
        memory=replace(memory, response_log=response_log),
        estimate=total.mean_inertia,
        window=response_log.window(clients, state.round),
    )
