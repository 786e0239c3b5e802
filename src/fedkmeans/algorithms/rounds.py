"""The loop over rounds: sample clients, compute the target, move the centroids, check for stopping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from fedkmeans._utils.checks import check_choice, check_integer, check_real
from fedkmeans._utils.seeding import generator
from fedkmeans._utils.typing import FloatArray, IntArray
from fedkmeans.algorithms import server_update
from fedkmeans.algorithms.state import RoundInfo, State, Target
from fedkmeans.algorithms.stopping import Stopping
from fedkmeans.errors import FederationError, ParameterError
from fedkmeans.kernels.reference.lloyd import distance_between
from fedkmeans.protocol.exchange import AskTotal, Clients, Conversation, ListClients, Total
from fedkmeans.protocol.messages import Score, ScoreTotals

Observer: TypeAlias = Callable[[State, RoundInfo], None]
# Arguments: the state, all clients and the chosen clients.
TargetFinder: TypeAlias = Callable[[State, Clients, Clients], Conversation[Target]]


@dataclass(frozen=True, slots=True)
class RoundConfig:
    """Settings of a run that all algorithms with rounds share.

    Attributes
    ----------
    seed : int
    clients_per_round : int or None
        Number of clients asked in each round; None means all.
    participation : {"random", "turns"}
        Whether clients are drawn independently in each round (the paper) or take turns in random order.
    learning_rate, momentum : float
        η in (0, 1] and μ in [0, 1).
    stopping : Stopping
    score_every : int
        Number of rounds between requests for the federated score; 0 means never.
    """

    seed: int
    clients_per_round: int | None = None
    learning_rate: float = 0.01
    momentum: float = 0.8
    stopping: Stopping = field(default_factory=Stopping)
    score_every: int = 0
    participation: str = "random"

    def __post_init__(self) -> None:
        check_choice("participation", self.participation, PARTICIPATION)
        if self.clients_per_round is not None:
            check_integer("clients_per_round", self.clients_per_round)
        check_real("learning_rate", self.learning_rate, low=0, high=1, low_open=True)
        check_real("momentum", self.momentum, low=0, high=1, high_open=True)
        check_integer("score_every", self.score_every, least=0)


def at_random(n_clients: int, n: int, seed: int, round_: int) -> IntArray:
    """Draw the clients of a round independently of earlier rounds (the paper)."""
    return generator(seed, "participation", round_).choice(n_clients, size=n, replace=False)


def in_turns(n_clients: int, n: int, seed: int, round_: int) -> IntArray:
    """Cycle through all clients in random order, and in a new one after a client has left."""
    return _order(n_clients, seed)[(round_ * n + np.arange(n)) % n_clients]


@lru_cache(maxsize=8)  # of the runs in progress
def _order(n_clients: int, seed: int) -> IntArray:
    order = generator(seed, "turns").permutation(n_clients)
    order.setflags(write=False)
    return order


PARTICIPATION: dict[str, Callable[[int, int, int, int], IntArray]] = {"random": at_random, "turns": in_turns}


def sample_clients(
    clients: Clients, n: int | None, seed: int, round_: int, participation: str = "random"
) -> Clients:
    """Choose the clients of a round; the choice depends only on seed and round, not on the restart."""
    if n is None or n >= len(clients):
        return clients
    drawn = PARTICIPATION[participation](len(clients), n, seed, round_)
    return tuple(clients[index] for index in np.sort(drawn).tolist())


def check_participation(clients: Clients, n: int | None) -> None:
    """Raise if more clients per round are requested than the federation has."""
    if n is not None and n > len(clients):
        raise ParameterError(
            f"is {n}, but the federation has only {len(clients)} client(s). "
            "Lower it, or leave it out to ask all of them.",
            parameter="clients_per_round",
        )


def remaining(clients: Clients) -> Conversation[Clients]:
    """Return the clients of the run that are still in the federation."""
    members = yield ListClients()
    if members is not clients and members != clients:
        there = set(members)
        left = tuple(client for client in clients if client in there)
        clients = left if len(left) < len(clients) else clients  # the same object, if only others have joined
    if not clients:
        raise FederationError("All clients have left the federation, so there is nobody to ask.")
    return clients


def request_score(centroids: FloatArray, clients: Clients) -> Conversation[ScoreTotals]:
    """Ask for the federated score up to five times, so that a failed request does not lose the run."""
    for optional in (True, True, True, True, False):
        total: Total = yield AskTotal(Score(centroids), clients, optional)
        if total.answered:
            break
    return total.record  # type: ignore[no-any-return]


def run_rounds(
    state: State,
    plan: RoundConfig,
    clients: Clients,
    find_target: TargetFinder,
    observe: Observer,
    restart: int = 0,
) -> Conversation[tuple[State, str]]:
    """Run rounds until a stopping criterion is met.

    Parameters
    ----------
    state : State
        The initial state, or the state after an earlier round.
    plan : RoundConfig
    clients : tuple of str
        The clients of the run, sorted. Clients that leave the federation during the run are dropped.
    find_target : callable
        Conversation that computes the `Target` of a round from (state, all clients, chosen clients).
    observe : callable
        Called with (State, RoundInfo) after each round; it has no effect on the run.
    restart : int
        Index of the restart, for `RoundInfo`.

    Returns
    -------
    state : State
    reason : str
        The criterion that stopped the run.
    """
    while (reason := plan.stopping.reason(state)) is None:
        clients = yield from remaining(clients)
        chosen = sample_clients(clients, plan.clients_per_round, plan.seed, state.round, plan.participation)
        found = yield from find_target(state, clients, chosen)
        keep = plan.stopping.look_back(found.window)
        state = server_update.advance(state, found, plan.learning_rate, plan.momentum, keep)
        score = None
        if plan.score_every and state.round % plan.score_every == 0:
            score = (yield AskTotal(Score(state.centroids), clients, optional=True)).record
        # Only rounds with replies are among the movements; momentum moves the centroids without them, too.
        answered = found.answered
        movement = state.movements[-1] if answered else distance_between(state.centroids, state.previous)
        report = (answered, found.estimate, score, found.sent, found.received)
        observe(state, RoundInfo(restart, state.round, movement, chosen, *report))
    return state, reason
