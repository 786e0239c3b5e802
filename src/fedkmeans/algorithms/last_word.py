"""The default algorithm: k-means in which the latest statistics of every client count.

In each round the server sends the centroids C to some of the clients. A client runs its local steps
and returns, for each cluster, the weighted sum ω c and the weight ω, where ω is the number of its
rows in the cluster. The server computes the totals S = Σ ω c and W = Σ ω over the *latest* statistics
of all clients, including those not asked in this round, and moves the centroids to d = S / W
(docs/memory.md). If all clients are asked in each round, this is pooled k-means.

Clients that have not replied yet count as if they had sent the current centroids. A cluster with few
known statistics therefore moves little (`server_update.remembered_target`). Later, `look_ahead` corrects d
for the age of the statistics.

`last_statistics` (``memory="server"``, the default)
    The server stores the latest statistics of every client.
`last_deltas` (``memory="client"``)
    Each client stores its own latest statistics and sends deltas; the server stores only the total.
    Both give the same results as long as no client leaves or loses its state.

The algorithm is incremental EM (Neal & Hinton 1998); MIFA (Gu et al. 2021) is its analogue for gradients.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from fedkmeans._utils.typing import ClientId
from fedkmeans.algorithms.latest_statistics import LatestStatistics
from fedkmeans.algorithms.look_ahead import LookAhead
from fedkmeans.algorithms.response_log import ResponseLog
from fedkmeans.algorithms.server_update import HELD, remembered_target
from fedkmeans.algorithms.state import State, Target
from fedkmeans.algorithms.wf_kmeans import LocalWork
from fedkmeans.errors import FederationError, FedKMeansWarning, Setting
from fedkmeans.protocol.exchange import Ask, AskTotal, Clients, Conversation, NewId, Total
from fedkmeans.protocol.messages import SendDelta, SendStatistics, bytes_to, n_bytes
from fedkmeans.protocol.statistics import ClusterStatistics, RunningTotal

_OFTEN = 5  # the server warns when it has restarted the total this many times


@dataclass(frozen=True, slots=True)
class StatisticsOfAll:
    """Memory of `last_statistics`: the latest statistics and their total.

    All but the total is updated in place.
    """

    latest: LatestStatistics
    total: RunningTotal
    response_log: ResponseLog
    look_ahead: LookAhead


@dataclass(frozen=True, slots=True)
class SumOfDeltas:
    """Memory of `last_deltas`: the total, and the latest delta of each client included in it.

    Clients store their delta states under `run` and `name`, the names of the run and of the total.
    `counted`, the response log and look-ahead are updated in place.
    """

    run: str
    name: str
    restarts: int  # how often the total was restarted
    total: RunningTotal
    counted: dict[ClientId, str]  # the exchange of the latest delta of each client in the total
    response_log: ResponseLog
    look_ahead: LookAhead

    def start_again(self) -> SumOfDeltas:
        """Reset the total; every client sends its full statistics when it is next asked."""
        if self.restarts + 1 == _OFTEN:
            message = (
                f"The total of the clients' statistics was started again {_OFTEN} times: clients left or "
                "lost what they had sent. If this goes on, use "
            )
            warnings.warn(FedKMeansWarning(message, Setting("memory", "server"), "."), stacklevel=2)
        self.response_log.forget_replies()
        self.look_ahead.start_again()
        nothing = RunningTotal.nothing(*self.total.high.weighted_sum.shape)
        return replace(self, restarts=self.restarts + 1, total=nothing, counted={})


def last_statistics(
    state: State, clients: Clients, chosen: Clients, *, work: LocalWork, look_ahead: float = 0.0
) -> Conversation[Target]:
    """Run one round in which the server stores the latest statistics of every client."""
    k, m = state.centroids.shape
    memory: StatisticsOfAll = state.memory or StatisticsOfAll(
        LatestStatistics(clients, k, m),
        RunningTotal.nothing(k, m),
        ResponseLog(state.round),
        LookAhead(look_ahead),
    )
    memory.response_log.check_round(state.round)
    query = SendStatistics(work.query(state.centroids))
    statistics: Mapping[ClientId, ClusterStatistics] = yield Ask(query, chosen, optional=True)
    answered = tuple(sorted(statistics))
    memory.latest.keep(clients)  # forget clients that have left
    memory.latest.replace(statistics)
    received = len(answered) * n_bytes(ClusterStatistics.nothing(k, m))
    known, memory = memory.latest.known, replace(memory, total=memory.latest.total())
    return _target(state, clients, chosen, answered, bytes_to(chosen, query), received, known, memory)


def last_deltas(
    state: State,
    clients: Clients,
    chosen: Clients,
    *,
    work: LocalWork,
    run_names: list[str],
    look_ahead: float = 0.0,
) -> Conversation[Target]:
    """Run one round in which each client stores its latest statistics and sends a delta.

    Only the client knows its contribution to the total. If a client leaves or loses its state, the
    server therefore restarts the total. Until they are next asked, clients count as if they had sent
    the current centroids, so that the progress so far is preserved.

    Clients store their delta states under the name of the run. Restarts run concurrently and share the list
    `run_names`: each adds a name, and the first one is used by all.
    """
    memory: SumOfDeltas | None = state.memory
    if memory is None:
        run_names.append((yield NewId()))
        total = RunningTotal.nothing(*state.centroids.shape)
        logs = ResponseLog(state.round), LookAhead(look_ahead)
        memory = SumOfDeltas(run_names[0], (yield NewId()), 0, total, {}, *logs)
    memory.response_log.check_round(state.round)
    if clients is not memory.response_log.clients and memory.counted.keys() - set(clients):
        memory = memory.start_again()
    sent = received = 0
    for _ in range(2):
        exchange: str = yield NewId()
        counted = {client: memory.counted.get(client) for client in chosen}
        query = SendDelta(work.query(state.centroids), memory.run, memory.name, exchange, counted)
        answer: Total = yield AskTotal(query, chosen, optional=True)
        sent, received = sent + bytes_to(chosen, query), received + answer.received
        if not answer.answered or not answer.record.lost:
            break
        memory = memory.start_again()
    else:
        raise FederationError(
            "A client says that it lost what was counted of it, although it was told that nothing is. "
            "Check that all sites run the same version."
        )
    if answer.answered:
        if answer.record.exchanges != {exchange}:
            raise FederationError(
                "A change that was sent in an earlier exchange arrived late and was added to this one. The "
                "federation must drop late replies."
            )
        memory.counted.update(dict.fromkeys(answer.answered, exchange))
        memory = replace(memory, total=memory.total + answer.record.difference)
    return _target(state, clients, chosen, answer.answered, sent, received, memory.counted, memory)


def _target(
    state: State,
    clients: Clients,
    chosen: Clients,
    answered: Clients,
    sent: int,
    received: int,
    known: Collection[ClientId],
    memory: StatisticsOfAll | SumOfDeltas,
) -> Target:
    """Compute d = S / W, moved ahead, and update the response log."""
    response_log, look_ahead, total = memory.response_log, memory.look_ahead, memory.total.high
    if clients is not response_log.clients:
        look_ahead.start_again()
    response_log.record(clients, chosen, answered)
    window, estimate = response_log.window(), total.mean_inertia
    d = remembered_target(total, state.centroids, response_log.share(known))
    if answered:
        d = look_ahead.move(d, total.holders >= HELD, response_log.mean_age(), window, estimate)
    else:
        d = look_ahead.keep(d)
    return Target(
        d=d,
        answered=answered,
        sent=sent,
        received=received,
        memory=memory,
        estimate=estimate,
        window=window,
    )
