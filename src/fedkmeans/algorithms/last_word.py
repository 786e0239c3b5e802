"""The default algorithm: k-means in which the latest statistics of every client count.

In each round the server sends the centroids C to some of the clients. A client runs its local steps
and returns, for each cluster, the weighted sum ω c and the weight ω, where ω is the number of its
rows in the cluster. The server computes the totals S = Σ ω c and W = Σ ω over the *latest* statistics
of all clients, including those not asked in this round, and moves the centroids to d = S / W
(docs/memory.md). If all clients are asked in each round, this is pooled k-means.

Clients that have not replied yet count as if they had sent the current centroids. A cluster with few
known statistics therefore moves little (`server_update.remembered_target`).

`last_statistics` (``memory="server"``, the default)
    The server stores the latest statistics of every client.
`last_deltas` (``memory="client"``)
    Each client stores its own latest statistics and sends deltas; the server stores only the total.
    Both give the same results as long as no client leaves or loses its state.

The algorithm is incremental EM (Neal & Hinton 1998); MIFA (Gu et al. 2021) is its analogue for gradients.
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

_OFTEN = 5  # the server warns when it has restarted the total this many times


@dataclass(frozen=True, slots=True)
class StatisticsOfAll:
    """Memory of `last_statistics`: the latest statistics, updated in place, and their total."""

    latest: LatestStatistics
    total: RunningTotal
    response_log: ResponseLog = field(default_factory=ResponseLog)


@dataclass(frozen=True, slots=True)
class SumOfDeltas:
    """Memory of `last_deltas`: the total, and the latest delta of each client included in it.

    Attributes
    ----------
    run, name : str
        Names of the run and of the total, under which clients store their delta states.
    restarts : int
        Number of times the total was restarted.
    total : RunningTotal
    counted : dict
        For each client included in the total, the exchange of its latest delta.
    """

    run: str
    name: str
    restarts: int
    total: RunningTotal
    counted: Mapping[ClientId, str]
    response_log: ResponseLog = field(default_factory=ResponseLog)

    def count(self, answer: Total, exchange: str) -> SumOfDeltas:
        """Add the deltas of an exchange to the total and record which clients sent them."""
        if answer.record.exchanges != {exchange}:
            raise FederationError(
                "A change that was sent in an earlier exchange arrived late and was added to this one. The "
                "federation must drop late replies."
            )
        counted = {**self.counted, **dict.fromkeys(answer.answered, exchange)}
        return replace(self, total=self.total + answer.record.difference, counted=counted)

    def start_again(self) -> SumOfDeltas:
        """Reset the total; every client sends its full statistics when it is next asked."""
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
    """Run one round in which the server stores the latest statistics of every client."""
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
    """Run one round in which each client stores its latest statistics and sends a delta.

    Only the client knows its contribution to the total. If a client leaves or loses its state, the
    server therefore restarts the total. Until they are next asked, clients count as if they had sent
    the current centroids, so that the progress so far is preserved.
    """
    memory: SumOfDeltas | None = state.memory
    if memory is None:
        # Restarts run concurrently: each proposes a name for the run, and the first one is used.
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
    """Ask for deltas; return the reply, the name of the exchange and the number of bytes sent."""
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
    """Compute d = S / W and update the response log."""
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
