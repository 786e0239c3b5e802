"""Who was heard when: how far a server must look back, and whom it need not wait for."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from fedkmeans._utils.typing import ClientId
from fedkmeans.errors import FederationError
from fedkmeans.protocol.exchange import some_of

# After so many questions without an answer, a client is not waited for.
_GIVEN_UP = 5


@dataclass(frozen=True, slots=True)
class ResponseLog:
    """In which round each client was last heard, and how many questions it missed since."""

    heard: Mapping[ClientId, int] = field(default_factory=dict)
    missed: Mapping[ClientId, int] = field(default_factory=dict)

    def after(self, round_: int, chosen: tuple[ClientId, ...], answered: tuple[ClientId, ...]) -> ResponseLog:
        """Take note of a round."""
        silent = [client for client in chosen if client not in answered]
        missed = {client: times for client, times in self.missed.items() if client not in answered}
        missed.update({client: missed.get(client, 0) + 1 for client in silent})
        return ResponseLog({**self.heard, **dict.fromkeys(answered, round_)}, missed)

    def window(self, clients: tuple[ClientId, ...], round_: int) -> int | None:
        """How many rounds back all have been heard, `round_` included; None if some never were.

        Clients that are given up are not waited for.
        """
        reachable = self.reachable(clients)
        if not all(client in self.heard for client in reachable):
            return None
        return round_ + 1 - min(self.heard[client] for client in reachable)

    def reachable(self, clients: tuple[ClientId, ...]) -> list[ClientId]:
        """Clients that did not miss the last five questions; raises if there are none."""
        reachable = [client for client in clients if self.missed.get(client, 0) < _GIVEN_UP]
        if not reachable:
            raise FederationError(
                f"Each of the {len(clients)} client(s) ({some_of(clients)}) was asked {_GIVEN_UP} times and "
                "none answered. Check that the sites are running and connected."
            )
        return reachable

    def share(self, clients: tuple[ClientId, ...], known: Container[ClientId]) -> float:
        """Known clients among those that are known or may still answer."""
        n_known = sum(client in known for client in clients)
        awaited = sum(client not in known for client in self.reachable(clients))
        return n_known / (n_known + awaited)
