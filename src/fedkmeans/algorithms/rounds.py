"""The only loop: sample clients, find this round's target, move towards it, look whether to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from fedkmeans._utils.checks import check_choice, check_integer, check_real
from fedkmeans._utils.seeding import generator
from fedkmeans._utils.typing import ClientId, FloatArray, IntArray
from fedkmeans.algorithms import server_update
from fedkmeans.algorithms.state import RoundInfo, State, Target
from fedkmeans.algorithms.stopping import Stopping
from fedkmeans.errors import FederationError, ParameterError
from fedkmeans.kernels.reference.lloyd import distance_between
from fedkmeans.protocol.exchange import AskTotal, Conversation, ListClients, Total
from fedkmeans.protocol.messages import Score, ScoreTotals

Observer: TypeAlias = Callable[[State, RoundInfo], None]
# From the state, all clients and the chosen ones.
TargetFinder: TypeAlias = Callable[[State, tuple[ClientId, ...], tuple[ClientId, ...]], Conversation[Target]]

# Rounds whose clients are drawn together.
_AT_A_TIME = 8


@dataclass(frozen=True, slots=True)
class RoundConfig:
    """How a run goes from round to round; the same for every algorithm that has rounds.

    Attributes
    ----------
    seed : int
    clients_per_round : int or None
        Clients asked in each round; None means all.
    participation : {"random", "turns"}
        Whether they are drawn anew in each round (the paper), or take turns in a random order.
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
    participation: str = "random"

    def __post_init__(self) -> None:
        check_choice("participation", self.participation, PARTICIPATION)
        if self.clients_per_round is not None:
            check_integer("clients_per_round", self.clients_per_round)
        check_real("learning_rate", self.learning_rate, low=0, high=1, low_open=True)
        check_real("momentum", self.momentum, low=0, high=1, high_open=True)
        check_integer("score_every", self.score_every, least=0)


def at_random(n_clients: int, n: int, seed: int, round_: int) -> IntArray:
    """Draw the clients of a round whoever came before (the paper)."""
    return generator(seed, "participation", round_).choice(n_clients, size=n, replace=False)


def in_turns(n_clients: int, n: int, seed: int, round_: int) -> IntArray:
    """Go round a circle of all clients: none is asked again before every other one was.

    When a client leaves, the circle is drawn anew.
    """
    order = generator(seed, "turns").permutation(n_clients)
    return order[(round_ * n + np.arange(n)) % n_clients]


PARTICIPATION: dict[str, Callable[[int, int, int, int], IntArray]] = {
    "random": at_random,
    "turns": in_turns,
}


def sample_clients(
    clients: tuple[ClientId, ...], n: int | None, seed: int, round_: int, participation: str = "random"
) -> tuple[ClientId, ...]:
    """Choose the clients of a round: a pure function of seed and round, the same for all restarts."""
    if n is None or n >= len(clients):
        return clients
    drawn = _draw(participation, len(clients), n, seed, round_ // _AT_A_TIME)
    return tuple(clients[index] for index in drawn[round_ % _AT_A_TIME].tolist())


@lru_cache(maxsize=1)
def _draw(participation: str, n_clients: int, n: int, seed: int, block: int) -> list[IntArray]:
    """Places of the chosen clients in several rounds.

    Between two rounds, all that is needed to draw has left the processor's caches: rounds in a row take
    a fraction of the time.
    """
    rounds = range(block * _AT_A_TIME, (block + 1) * _AT_A_TIME)
    draw = PARTICIPATION[participation]
    return [np.sort(draw(n_clients, n, seed, round_)).astype(np.int32) for round_ in rounds]


def check_participation(clients: tuple[ClientId, ...], n: int | None) -> None:
    """Refuse to ask more clients in a round than there are."""
    if n is not None and n > len(clients):
        raise ParameterError(
            f"is {n}, but the federation has only {len(clients)} client(s). "
            "Lower it, or leave it out to ask all of them.",
            parameter="clients_per_round",
        )


def remaining(clients: tuple[ClientId, ...]) -> Conversation[tuple[ClientId, ...]]:
    """Those of the run's clients that still belong to the federation."""
    members = yield ListClients()
    if members == clients:  # as nearly always
        return clients
    there = set(members)
    left = tuple(client for client in clients if client in there)
    if not left:
        raise FederationError("All clients have left the federation, so there is nobody to ask.")
    return left


def try_score(centroids: FloatArray, clients: tuple[ClientId, ...]) -> Conversation[ScoreTotals | None]:
    """Ask for the federated score; clients that do not answer are left out, None if nobody does."""
    total: Total = yield AskTotal(Score(centroids), clients, optional=True)
    return total.record  # type: ignore[no-any-return]


def request_score(centroids: FloatArray, clients: tuple[ClientId, ...]) -> Conversation[ScoreTotals]:
    """Ask for the federated score, up to five times: it would be a pity to lose a whole run for it."""
    for _ in range(4):
        score = yield from try_score(centroids, clients)
        if score is not None:
            return score
    total: Total = yield AskTotal(Score(centroids), clients)
    return total.record  # type: ignore[no-any-return]


def _length(state: State) -> float:
    """How far a round without an answer moved the centroids, by momentum alone."""
    return distance_between(state.centroids, state.previous)


def run_rounds(
    state: State,
    plan: RoundConfig,
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
        The clients of the run, sorted; those that leave the federation are dropped on the way.
    find_target : callable
        Conversation that turns (state, all clients, chosen clients) into this round's `Target`.
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
        clients = yield from remaining(clients)
        chosen = sample_clients(clients, plan.clients_per_round, plan.seed, state.round, plan.participation)
        found = yield from find_target(state, clients, chosen)
        keep = plan.stopping.look_back(found.window)
        state = server_update.advance(state, found, plan.learning_rate, plan.momentum, keep)
        score = None
        if plan.score_every and state.round % plan.score_every == 0:
            score = yield from try_score(state.centroids, clients)
        observe(
            state,
            RoundInfo(
                restart=restart,
                round=state.round,
                movement=state.movements[-1] if found.answered else _length(state),
                asked=chosen,
                answered=found.answered,
                estimate=found.estimate,
                score=score,
                sent=found.sent,
                received=found.received,
            ),
        )
    return state, reason
