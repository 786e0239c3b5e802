"""Log of the rounds in which clients replied, to find the window and unreachable clients."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from fedkmeans._utils.typing import ClientId
from fedkmeans.errors import FederationError
from fedkmeans.protocol.exchange import Clients, some_of

# A client that misses this many queries in a row is considered unreachable.
_GIVEN_UP = 5


class ResponseLog:
    """The round of the latest reply of each client, and the number of queries it has missed since.

    The log is updated in place. A round takes time only for the clients that are asked and for those that
    have missed queries, however many clients there are.

    Parameters
    ----------
    round_ : int
        The first round.

    Attributes
    ----------
    clients : tuple of str
        The clients of the latest round, including those that were not asked.
    heard : dict
        The round of the latest reply of each of these clients, the oldest reply first.
    missed : dict
        The number of queries that a client has missed since its latest reply, if there are any.
    """

    def __init__(self, round_: int = 0) -> None:
        self._round = round_
        self.clients: Clients = ()
        self.heard: OrderedDict[ClientId, int] = OrderedDict()
        self._sum = 0  # of these rounds
        self.missed: dict[ClientId, int] = {}

    def check_round(self, round_: int) -> None:
        """Raise unless this is the next round: what is updated in place has no earlier state."""
        if round_ != self._round:
            raise FederationError(
                f"The state of round {round_} is not the latest one of its run, which is at round "
                f"{self._round}. With memory only the latest state can go on; run the fit again."
            )

    def record(self, clients: Clients, chosen: Clients, answered: Clients) -> None:
        """Add a round in which some of the clients were chosen and some of those answered."""
        if clients is not self.clients:  # clients may have left
            self.clients, there = clients, set(clients)
            for client in (self.heard.keys() | self.missed.keys()) - there:
                self._sum -= self.heard.pop(client, 0)
                self.missed.pop(client, None)
        for client in answered:
            self.missed.pop(client, None)
            self._sum += self._round - self.heard.get(client, 0)
            self.heard[client] = self._round
            self.heard.move_to_end(client)
        for client in set(chosen).difference(answered):
            self.missed[client] = self.missed.get(client, 0) + 1
        self._round += 1

    def window(self) -> int | None:
        """Return the number of latest rounds in which all clients replied.

        Returns None if some client never replied. Unreachable clients are ignored.
        """
        given_up = self._unreachable()
        if len(self.clients) > len(self.heard) + sum(client not in self.heard for client in given_up):
            return None
        return self._round - next(round_ for client, round_ in self.heard.items() if client not in given_up)

    def mean_age(self) -> float:
        """Return the mean number of rounds since the latest replies of the clients that can be reached."""
        lost = [self.heard[client] for client in self._unreachable() if client in self.heard]
        n = len(self.heard) - len(lost)
        return self._round - 1 - (self._sum - sum(lost)) / n if n else 0.0

    def forget_replies(self) -> None:
        """Forget all replies, but not who has missed queries."""
        self.heard.clear()
        self._sum = 0

    def share(self, known: Collection[ClientId]) -> float:
        """Return the fraction of known clients among those that are known or reachable."""
        lost = sum(client not in known for client in self._unreachable())
        return len(known) / (len(self.clients) - lost)

    def _unreachable(self) -> set[ClientId]:
        """Return the clients that missed their last five queries; raise if these are all clients."""
        found = {client for client, times in self.missed.items() if times >= _GIVEN_UP}
        if len(found) == len(self.clients):
            raise FederationError(
                f"Each of the {len(self.clients)} client(s) ({some_of(self.clients)}) was asked {_GIVEN_UP} "
                "times and none answered. Check that the sites are running and connected."
            )
        return found
