"""How algorithms ask clients, independent of how messages travel.

An algorithm is a generator. It *yields* a request, is *sent* the answer, and returns its result.
Generators are composed with ``yield from``; :func:`run` runs one on a federation.
:func:`run_concurrently` runs several independent ones (restarts, candidate values of k): their requests
share one exchange, which saves time where an exchange takes seconds.

>>> def count_rows(clients):
...     descriptions = yield Ask(Describe(), clients)
...     return sum(description.n_samples for description in descriptions.values())
>>> run(federation, count_rows(federation.clients))  # doctest: +SKIP
10100
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Protocol, TypeAlias, TypeVar

from fedkmeans._utils.typing import ClientId
from fedkmeans.errors import FederationError
from fedkmeans.protocol.declaration import Query, Reply
from fedkmeans.protocol.field_types import Sizes, register
from fedkmeans.protocol.messages import Bundle, BundleReply, n_bytes

T = TypeVar("T")

Clients: TypeAlias = tuple[ClientId, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask for single replies; the answer is a dict of replies by client.

    It is an error if no client answers, unless the request is `optional`.
    """

    query: Query
    clients: Clients
    optional: bool = False


@dataclass(frozen=True, slots=True)
class AskTotal(Ask):
    """Ask for replies that add up; the answer is their `Total` only."""


@dataclass(frozen=True, slots=True)
class ListClients:
    """Ask who belongs to the federation; the answer is a sorted tuple of names. Sends nothing."""


@dataclass(frozen=True, slots=True)
class NewId:
    """Ask for a new identifier; the answer is a random text of 16 hex digits. Sends nothing.

    An algorithm draws nothing itself, so that with the same answers it does the same again.
    """


@dataclass(frozen=True, slots=True)
class Total:
    """The sum of the replies, who took part, and how many bytes they sent.

    Without any reply `record` is None. For a `Bundle`, `received` holds one number per query.
    """

    record: Any
    answered: Clients
    received: Any = 0


register(Total, record=Reply | None, received=Sizes)

Request: TypeAlias = Ask | ListClients | NewId
Conversation: TypeAlias = Generator[Request, Any, T]


class Federation(Protocol):
    """A transport: it carries queries to clients and returns their replies.

    Clients that do not answer are missing in the result; that is no error. A federation that records
    new identifiers (`NewId`) may have a method `new_id`; transports do not need one.
    """

    @property
    def clients(self) -> Clients:
        """Names of all clients, sorted.

        A client that is offline stays on the list. A client that is removed from it is not asked any
        more, and the server forgets its replies.
        """
        ...

    def ask(self, query: Query, clients: Sequence[ClientId]) -> Mapping[ClientId, Reply]:
        """Send a query to some clients and return their replies.

        Late replies to earlier queries must be dropped. A client needs only `query.for_client(client)`.
        """
        ...

    def total(self, query: Query, clients: Sequence[ClientId]) -> Total:
        """Send a query to some clients and return the sum of the replies that `ask` would return."""
        ...


def add_up(replies: Mapping[ClientId, Reply]) -> Total:
    """Add replies, in the order of the clients' names so that rounding does not depend on arrival."""
    answered = tuple(sorted(replies))
    if not answered:
        return Total(None, ())
    # One reply at a time: a mapping may make them as they are asked for.
    record = reduce(add, (replies[client].totals() for client in answered))
    received = reduce(_add_sizes, (_size(replies[client]) for client in answered))
    return Total(record, answered, received)


def _size(reply: Any) -> Any:
    return tuple(map(_size, reply.replies)) if isinstance(reply, BundleReply) else n_bytes(reply)


def _add_sizes(left: Any, right: Any) -> Any:
    return tuple(map(_add_sizes, left, right)) if isinstance(left, tuple) else left + right


def run(federation: Federation, conversation: Conversation[T]) -> T:
    """Run an algorithm on a federation and return its result."""
    answer: Any = None
    while True:
        try:
            request = conversation.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if isinstance(request, ListClients):
            answer = federation.clients
        elif isinstance(request, NewId):
            answer = getattr(federation, "new_id", new_id)()
        elif isinstance(request, AskTotal):
            answer = federation.total(request.query, request.clients)
            _check_answered(request, answer.answered)
        else:
            answer = federation.ask(request.query, request.clients)
            _check_answered(request, answer)


def new_id() -> str:
    """Return a new identifier: 16 random hex digits."""
    return secrets.token_hex(8)


def _check_answered(request: Ask | AskTotal, answered: Collection[ClientId]) -> None:
    if not answered and not request.optional:
        raise FederationError(
            f"None of the {len(request.clients)} clients asked ({some_of(request.clients)}) answered "
            f"the query {type(request.query).__name__}. Check that the sites are running and connected."
        )


def some_of(clients: Sequence[ClientId]) -> str:
    """Name the first few clients, for a message."""
    return ", ".join(clients[:5]) + (", …" if len(clients) > 5 else "")


def run_concurrently(conversations: Sequence[Conversation[T]]) -> Conversation[list[T]]:
    """Run several algorithms at once; requests to the same clients share an exchange. Return all results."""
    if len(conversations) == 1:
        return [(yield from conversations[0])]
    results: dict[int, T] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(conversations)))
    while answers:
        groups: dict[object, dict[int, Request]] = {}
        for index, answer in sorted(answers.items()):
            try:
                request = conversations[index].send(answer)
            except StopIteration as end:
                results[index] = end.value
            else:
                groups.setdefault(_group_of(request, index), {})[index] = request
        answers = {}
        for group in groups.values():
            answers.update((yield from _share(group)))
    return [results[index] for index in range(len(conversations))]


def _group_of(request: Request, index: int) -> object:
    """Requests that differ only in their query share an exchange; every `NewId` has its own answer."""
    if isinstance(request, Ask):
        return type(request), request.clients, request.optional
    return index if isinstance(request, NewId) else ListClients


def _share(requests: Mapping[int, Request]) -> Conversation[dict[int, Any]]:
    """Send the queries of a group in one exchange and return each member's part of the answer."""
    first = next(iter(requests.values()))
    if len(requests) == 1 or not isinstance(first, Ask):
        return dict.fromkeys(requests, (yield first))
    queries = tuple(request.query for request in requests.values() if isinstance(request, Ask))
    answer = yield replace(first, query=Bundle(queries))
    if isinstance(answer, Total):
        if not answer.answered:
            return dict.fromkeys(requests, answer)
        # A transport that does not count bytes returns 0 for the whole bundle.
        received = answer.received if isinstance(answer.received, tuple) else (0,) * len(requests)
        parts = zip(requests, answer.record.replies, received, strict=True)
        return {index: Total(part, answer.answered, size) for index, part, size in parts}
    return {
        index: {client: bundle.replies[place] for client, bundle in answer.items()}
        for place, index in enumerate(requests)
    }
