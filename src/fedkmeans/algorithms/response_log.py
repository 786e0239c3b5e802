"""Log of the rounds in which clients replied, to find the window and unreachable clients."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from fedkmeans._utils.typing import ClientId
from fedkmeans.errors import FederationError
from fedkmeans.protocol.exchange import Clients, some_of

# A client that misses this many queries in a row is considered unreachable.
_GIVEN_UP = 5


@dataclass(frozen=True, slots=True)
class ResponseLog:
    """The round of the latest reply of each client, and the number of queries it has missed since."""

    heard: Mapping[ClientId, int] = field(default_factory=dict)
    missed: Mapping[ClientId, int] = field(default_factory=dict)

    def after(self, round_: int, chosen: Clients, answered: Clients) -> ResponseLog:
        """Return the log after a round."""
        replied = set(answered)
        missed = {client: times for client, times in self.missed.items() if client not in replied}
        missed.update({client: missed.get(client, 0) + 1 for client in chosen if client not in replied})
        return ResponseLog({**self.heard, **dict.fromkeys(answered, round_)}, missed)

    def window(self, clients: Clients, round_: int) -> int | None:
        """Return the number of latest rounds, including `round_`, in which all clients replied.

        Returns None if some client never replied. Unreachable clients are ignored.
        """
        reachable = self.reachable(clients)
        if not all(client in self.heard for client in reachable):
            return None
        return round_ + 1 - min(self.heard[client] for client in reachable)

    def reachable(self, clients: Clients) -> Sequence[ClientId]:
        """Return the clients that did not miss their last five queries; raise if there are none."""
        if not self.missed:
            return clients
        reachable = [client for client in clients if self.missed.get(client, 0) < _GIVEN_UP]
        if not reachable:
            raise FederationError(
                f"Each of the {len(clients)} client(s) ({some_of(clients)}) was asked {_GIVEN_UP} times and "
                "none answered. Check that the sites are running and connected."
            )
        return reachable

    def share(self, clients: Clients, known: Container[ClientId]) -> float:
        """Return the fraction of known clients among those that are known or reachable."""
        n_known = sum(client in known for client in clients)
        awaited = sum(client not in known for client in self.reachable(clients))
        return n_known / (n_known + awaited)
