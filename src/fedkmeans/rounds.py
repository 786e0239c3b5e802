"""The only loop: sample clients, find this round's target, move towards it, look whether to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from fedkmeans import aggregation
from fedkmeans.convergence import Stopping
from fedkmeans.conversation import AskTotal, Conversation, Total
from fedkmeans.errors import ParameterError
from fedkmeans.parameters import check_choice, check_integer, check_real
from fedkmeans.records import LocalUpdate, RoundInfo, Score, ScoreTotals, State, WeightingRule
from fedkmeans.seeding import generator
from fedkmeans.typing import ClientId, FloatArray
from fedkmeans.weighting import find_rule

Observer: TypeAlias = Callable[[State, RoundInfo], None]
TargetFinder: TypeAlias = Callable[
    [State, tuple[ClientId, ...]], Conversation[tuple[FloatArray, tuple[ClientId, ...]]]
]

EMPTY_CLUSTERS = ("keep", "relocate")


@dataclass(frozen=True, slots=True)
class Plan:
    """How a run goes from round to round; the same for every algorithm that has rounds.

    Attributes
    ----------
    seed : int
    clients_per_round : int or None
        Clients sampled in each round; None means all.
    learning_rate, momentum : float
        η in (0, 1] and μ in [0, 1).
    stopping : Stopping
    score_every : int
        Ask for the federated score every so many rounds; 0 means never.
    """

    seed: int
    clients_per_round: int | None = None
    learning_rate: float = 0.01
    momentum: float = 0.8
    stopping: Stopping = field(default_factory=Stopping)
    score_every: int = 0

    def __post_init__(self) -> None:
        if self.clients_per_round is not None:
            check_integer("clients_per_round", self.clients_per_round)
        check_real("learning_rate", self.learning_rate, low=0, high=1, low_open=True)
        check_real("momentum", self.momentum, low=0, high=1, high_open=True)
        check_integer("score_every", self.score_every, least=0)


@dataclass(frozen=True, slots=True)
class LocalWork:
    """What each client does in a round of WF k-means."""

    weighting: str | WeightingRule = "dynamic"
    max_local: int = 5
    tol_local: float = 1e-8
    empty_clusters: str = "keep"

    def __post_init__(self) -> None:
        find_rule(self.weighting)
        check_integer("max_local", self.max_local)
        check_real("tol_local", self.tol_local, low=0, high=float("inf"))
        check_choice("empty_clusters", self.empty_clusters, EMPTY_CLUSTERS)

    def query(self, centroids: FloatArray) -> LocalUpdate:
        """Return what the server sends with these centroids."""
        return LocalUpdate(centroids, self.max_local, self.tol_local, self.weighting, self.empty_clusters)


def weighted_average(
    state: State, chosen: tuple[ClientId, ...], *, work: LocalWork
) -> Conversation[tuple[FloatArray, tuple[ClientId, ...]]]:
    """The target of WF k-means, the weighted average of what the clients return; and who answered."""
    total: Total = yield AskTotal(work.query(state.centroids), chosen)
    return aggregation.target(total.record), total.answered


def sample_clients(
    clients: tuple[ClientId, ...], n: int | None, seed: int, round_: int
) -> tuple[ClientId, ...]:
    """Choose the clients of a round: a pure function of seed and round, the same for all restarts."""
    if n is None or n == len(clients):
        return clients
    if n > len(clients):
        raise ParameterError(
            f"clients_per_round is {n}, but the federation has only {len(clients)} client(s). "
            "Lower it, or leave it out to ask all of them."
        )
    chosen = generator(seed, "participation", round_).choice(len(clients), size=n, replace=False)
    return tuple(clients[index] for index in np.sort(chosen))


def request_score(centroids: FloatArray, clients: tuple[ClientId, ...]) -> Conversation[ScoreTotals]:
    """Ask for the federated score; clients that do not answer are left out."""
    total: Total = yield AskTotal(Score(centroids), clients)
    return total.record  # type: ignore[no-any-return]


def run_rounds(
    state: State,
    plan: Plan,
    clients: tuple[ClientId, ...],
    find_target: TargetFinder,
    observe: Observer,
    restart: int = 0,
) -> Conversation[tuple[State, str]]:
    """Run rounds until a stopping criterion holds.

    Parameters
    ----------
    state : State
        Where to start: fresh, or from an earlier round.
    plan : Plan
    clients : tuple of str
        All clients of the federation, sorted.
    find_target : callable
        Conversation that turns (state, chosen clients) into this round's d^(t) and who answered.
    observe : callable
        Called with (State, RoundInfo) after each round; it watches and does not steer.
    restart : int
        Number of the restart, for the report.

    Returns
    -------
    state : State
    reason : str
        Which criterion ended the run.
    """
    while (reason := plan.stopping.reason(state)) is None:
        chosen = sample_clients(clients, plan.clients_per_round, plan.seed, state.round)
        d, answered = yield from find_target(state, chosen)
        state = aggregation.advance(state, d, plan.learning_rate, plan.momentum, plan.stopping.window)
        score = None
        if plan.score_every and state.round % plan.score_every == 0:
            score = yield from request_score(state.centroids, clients)
        observe(state, RoundInfo(restart, state.round, state.movements[-1], chosen, answered, score))
    return state, reason
