"""A federation of sites at other organisations; Flower's SuperLink passes queries and replies on.

Each exchange pushes one message per site and pulls replies until all have arrived or the time is up. Later
replies are never pulled, and a reply must name its exchange. So no late or repeated reply is taken for an
answer to another query. A reply that does not fit its query does not count, and the log says why.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError

from fedkmeans._utils.checks import check_integer, check_real
from fedkmeans._utils.typing import ClientId
from fedkmeans.errors import FederationError, WireError
from fedkmeans.flower.message import MESSAGE_TYPE, read_content, write_content
from fedkmeans.protocol.codec import decode, encode
from fedkmeans.protocol.declaration import Query, Reply, reply_type
from fedkmeans.protocol.exchange import Total, add_up, new_id, some_of
from fedkmeans.protocol.field_types import brief
from fedkmeans.protocol.messages import Describe
from fedkmeans.protocol.validation import check_reply

log = logging.getLogger(__name__)

# A message lives a little longer than the timeout, because clocks differ.
_SLACK_S = 60.0
# The longest usual time of a call of the SuperLink.
_USUAL_S = 5.0
# Maximum length of texts from a site in messages.
_LONGEST, _LONGEST_NAME = 300, 200
# Errors that Flower raises for an invalid reply, but not for a network failure.
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, AssertionError, DecodeError)
# Pause between two checks for connected sites.
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class WaitPolicy:
    """How long to wait for replies, and for how many.

    Attributes
    ----------
    timeout : float
        Seconds that an exchange waits for replies.
    min_answers : int
        Replies that an exchange needs; until then, the missing sites are asked again.
    wait : float
        Seconds after which an exchange with fewer replies ends the run.
    cool_down : float
        Seconds during which a site that timed out is not asked. Flower takes up to a minute to notice that
        a site is gone.
    poll : float
        Seconds between two checks for replies.
    """

    timeout: float = 600.0
    min_answers: int = 1
    wait: float = 3600.0
    cool_down: float = 60.0
    poll: float = 0.1

    def __post_init__(self) -> None:
        for name, low_open in {"timeout": True, "poll": True, "wait": False, "cool_down": False}.items():
            check_real(name, getattr(self, name), low=0, high=float("inf"), low_open=low_open)
        check_integer("min_answers", self.min_answers)


class Flower:
    """A federation of sites behind a Flower SuperLink.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Of the ServerApp.
    nodes : dict
        Flower's node id of each site. A site whose node is not connected remains a member, and is asked
        again when it is back.
    wait_policy : WaitPolicy or None

    Attributes
    ----------
    silent : dict
        Sites that did not answer in the latest exchange, with the reason.
    """

    def __init__(
        self, grid: Grid, nodes: Mapping[ClientId, int], wait_policy: WaitPolicy | None = None
    ) -> None:
        if not nodes:
            raise FederationError(
                "A federation needs at least one site. Register the keys of the sites first."
            )
        self.grid = grid
        self.nodes = dict(nodes)
        self.wait_policy = wait_policy or WaitPolicy()
        self.silent: dict[ClientId, str] = {}
        self._cool_until: dict[ClientId, float] = {}
        self._n_features: int | None = None
        self._have_names = True
        self._one_by_one = False

    @classmethod
    def meet(cls, grid: Grid, min_sites: int, wait_policy: WaitPolicy | None = None) -> Flower:
        """Return a federation of all connected sites, each under the name that it reports.

        Use it for simulations and tests only: a site could report the name of another. If sites have keys,
        the server knows the node of each site.
        """
        wait_policy = wait_policy or WaitPolicy()
        give_up = time.monotonic() + wait_policy.wait
        while len(nodes := sorted(grid.get_node_ids())) < min_sites:
            if time.monotonic() >= give_up:
                raise FederationError(
                    f"{len(nodes)} site(s) are connected and {min_sites} must be, after "
                    f"{wait_policy.wait:g} s. Start the sites, or ask for fewer (min-sites)."
                )
            time.sleep(_LOOK_S)
        strangers = cls(grid, {str(node): node for node in nodes}, wait_policy)
        strangers._have_names = False
        named: dict[ClientId, int] = {}
        for node, name in strangers._exchange(Describe(), strangers.clients).items():
            if name in named:
                raise FederationError(f"Two sites are called {name!r}. Give each a name of its own.")
            named[name] = strangers.nodes[node]
        if len(named) < min_sites:
            raise FederationError(
                f"{len(named)} site(s) said their name and {min_sites} must. Look at the logs of the "
                "others, or ask for fewer (min-sites)."
            )
        return cls(grid, named, wait_policy)

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """Names of all sites, sorted, including sites that are not connected."""
        return tuple(sorted(self.nodes))

    def ask(self, query: Query, clients: Sequence[ClientId]) -> dict[ClientId, Reply]:
        """Send a query to some sites; missing sites are asked again only if there are too few replies."""
        needed = min(self.wait_policy.min_answers, len(clients))
        replies: dict[ClientId, Reply] = {}
        self.silent = {}
        give_up = time.monotonic() + self.wait_policy.wait
        while True:
            missing = [client for client in clients if client not in replies]
            replies |= self._exchange(query, self._reachable(missing))
            if len(replies) >= needed:
                break
            if time.monotonic() >= give_up:
                reasons = [f"{client}: {reason}" for client, reason in sorted(self.silent.items())]
                raise FederationError(
                    f"{len(replies)} site(s) answered and {needed} must, after {self.wait_policy.wait:g} s; "
                    f"{some_of(reasons)}. "
                    "Bring the sites back and resume the run, or ask for fewer answers (min-answers)."
                )
            time.sleep(_LOOK_S)
        if isinstance(query, Describe):
            widths = {getattr(reply, "n_features", None) for reply in replies.values()}
            self._n_features = widths.pop() if len(widths) == 1 else None
        return {client: replies[client] for client in sorted(replies)}

    def total(self, query: Query, clients: Sequence[ClientId]) -> Total:
        """Send a query to some sites and return the sum of their replies."""
        return add_up(self.ask(query, clients))

    def _reachable(self, clients: Iterable[ClientId]) -> list[ClientId]:
        """Return the sites that are connected and did not time out recently."""
        connected, now = set(self.grid.get_node_ids()), time.monotonic()
        reachable = []
        for client in clients:
            if self.nodes[client] not in connected:
                self.silent[client] = "not connected"
            elif self._cool_until.get(client, 0.0) > now:
                self.silent[client] = "did not answer in time lately"
            else:
                reachable.append(client)
        return reachable

    def _exchange(self, query: Query, clients: Sequence[ClientId]) -> dict[ClientId, Any]:
        """Send a query once and return the replies; from sites without a name, the name that they report."""
        exchange = new_id()
        waiting = self._push(query, exchange, clients)
        replies: dict[ClientId, Any] = {}
        self._one_by_one = False
        until = time.monotonic() + self.wait_policy.timeout
        while waiting and time.monotonic() < until:
            before = time.monotonic()
            found = self._pull(waiting)
            # Flower waits until a SuperLink that is down is back; this time does not count as a timeout.
            until += max(0.0, time.monotonic() - before - _USUAL_S)
            for message in found:
                client = waiting.pop(message.metadata.reply_to_message_id, None)
                if client is None:  # a reply to another message
                    continue
                if message.has_error() and message.error.code == ErrorCode.MESSAGE_UNAVAILABLE:
                    # The message was lost, for instance because the SuperLink restarted.
                    waiting |= self._push(query, exchange, [client])
                    continue
                if message.has_error() and message.error.code == ErrorCode.NODE_UNAVAILABLE:
                    self._note(client, "not connected")  # Flower notices this only after a minute
                    continue
                try:
                    replies[client] = self._read(message, query, exchange, client)
                    self.silent.pop(client, None)
                except WireError as error:
                    if not self._have_names:
                        raise FederationError(f"Node {client} cannot say its name: {error}") from None
                    self._note(client, f"its reply is refused: {error}")
            if waiting:
                time.sleep(self.wait_policy.poll)
        for client in waiting.values():
            self._cool_until[client] = time.monotonic() + self.wait_policy.cool_down
            self._note(client, f"no answer within {self.wait_policy.timeout:g} s")
        return replies

    def _push(self, query: Query, exchange: str, clients: Sequence[ClientId]) -> dict[str, ClientId]:
        """Send a query and return the site of each message."""
        ttl, messages = self.wait_policy.timeout + _SLACK_S, []
        for client in clients:
            name = client if self._have_names else ""
            content = write_content(encode(query.for_client(client)), exchange, name)
            messages.append(Message(content, self.nodes[client], MESSAGE_TYPE, ttl=ttl, group_id=exchange))
        if not messages:
            return {}
        ids = self.grid.push_messages(messages)
        waiting = {message_id: client for client, message_id in zip(clients, ids, strict=False) if message_id}
        for client in set(clients) - set(waiting.values()):
            self._note(client, "the SuperLink took no message for it")
        return waiting

    def _pull(self, waiting: dict[str, ClientId]) -> list[Message]:
        """Return the replies that have arrived, without those that Flower itself cannot read."""
        try:
            if not self._one_by_one:
                return list(self.grid.pull_messages(list(waiting)))
        except _UNREADABLE as error:
            # Replies that were pulled together with it are lost and requested again, now one by one.
            self._one_by_one = True
            log.warning("A reply cannot be read (%s); replies are looked at one by one.", brief(str(error)))
        found: list[Message] = []
        for message_id, client in list(waiting.items()):
            try:
                found += self.grid.pull_messages([message_id])
            except _UNREADABLE as error:
                del waiting[message_id]
                self._note(client, f"its reply cannot be read: {error}")
        return found

    def _read(self, message: Message, query: Query, exchange: str, client: ClientId) -> Any:
        if message.has_error():
            raise WireError(f"error {message.error.code} at the site: {message.error.reason}")
        packed, of_exchange, name = read_content(message.content)
        if of_exchange != exchange:
            raise WireError("it belongs to another exchange.")
        if not self._have_names:
            if not 0 < len(name) <= _LONGEST_NAME:
                raise WireError(f"it should have 1 to {_LONGEST_NAME} characters.")
            return name
        if name != client:
            raise WireError(f"it is signed {name[:50]!r}.")
        query = query.for_client(client)
        reply: Reply = decode(packed, reply_type(type(query)))
        check_reply(query, reply, self._n_features)
        return reply

    def _note(self, client: ClientId, reason: str) -> None:
        reason = "".join(c if c.isprintable() else "?" for c in reason[:_LONGEST])
        self.silent[client] = reason
        log.warning("Site %r: %s", client, reason)
