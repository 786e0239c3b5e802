"""Algorithms as conversations with a federation, written without knowing how messages travel.

An algorithm is a generator: it *yields* what it wants to ask and is *sent* the answers, and it
returns its result. Smaller conversations are joined with ``yield from``; :func:`hold` carries one
out on a federation. Several independent ones (restarts, candidate values of k) can be held
:func:`together`: their questions then share one exchange, which matters where an exchange costs
seconds.

>>> def count_rows(clients):
...     descriptions = yield Ask(Describe(), clients)
...     return sum(description.n_samples for description in descriptions.values())
>>> hold(federation, count_rows(federation.clients))  # doctest: +SKIP
10100
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, TypeVar

from fedkmeans.errors import FederationError
from fedkmeans.records import Bundle, BundleReply, LocalModel, Query, Reply
from fedkmeans.typing import ClientId

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask clients one by one; the answer is a dict of replies by client.

    Silence of all of them ends the conversation, unless it is `optional`.
    """

    query: Query
    clients: tuple[ClientId, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class AskTotal:
    """Ask clients for a reply that adds up; the answer is its `Total` and nothing finer."""

    query: Query
    clients: tuple[ClientId, ...]


@dataclass(frozen=True, slots=True)
class Total:
    """The sum of the replies, and who took part."""

    record: Any
    answered: tuple[ClientId, ...]


Conversation: TypeAlias = Generator[Ask | AskTotal, Any, T]


class Federation(Protocol):
    """What carries queries to clients and brings replies back.

    Clients that do not answer are missing from what is returned; that is no error.
    """

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """Names of all clients, sorted, so that nothing depends on the order they came in."""
        ...

    def ask(self, query: Query, clients: Sequence[ClientId]) -> Mapping[ClientId, Reply]:
        """Send a query to some clients and return the replies that came."""
        ...

    def total(self, query: Query, clients: Sequence[ClientId]) -> Total:
        """Send a query to some clients and return the sum of the replies that came."""
        ...


def add_up(replies: Mapping[ClientId, Reply]) -> Total:
    """Add replies, in the order of the clients' names so that rounding does not depend on arrival."""
    answered = tuple(sorted(replies))
    record: Any = None
    for client in answered:
        part = _additive(replies[client])
        record = part if record is None else _add(record, part)
    return Total(record, answered)


def _additive(reply: Any) -> Any:
    if isinstance(reply, BundleReply):
        return BundleReply(tuple(_additive(part) for part in reply.replies))
    return reply.totals() if isinstance(reply, LocalModel) else reply


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, BundleReply):
        return BundleReply(tuple(_add(a, b) for a, b in zip(left.replies, right.replies, strict=True)))
    return left + right


def hold(federation: Federation, conversation: Conversation[T]) -> T:
    """Carry a conversation out and return its result."""
    answer: Any = None
    while True:
        try:
            request = conversation.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if isinstance(request, AskTotal):
            answer = federation.total(request.query, request.clients)
            nobody = not answer.answered
        else:
            answer = federation.ask(request.query, request.clients)
            nobody = not answer and not request.optional
        if nobody:
            raise FederationError(
                f"None of the {len(request.clients)} clients asked ({_some(request.clients)}) answered "
                f"the query {type(request.query).__name__}. Check that the sites are running and connected."
            )


def _some(clients: Sequence[ClientId]) -> str:
    return ", ".join(clients[:5]) + (", …" if len(clients) > 5 else "")


def together(conversations: Sequence[Conversation[T]]) -> Conversation[list[T]]:
    """Hold several conversations at once; questions to the same clients share an exchange.

    Returns
    -------
    list
        The results, in the order of the conversations.
    """
    results: dict[int, T] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(conversations)))
    while answers:
        requests: dict[int, Ask | AskTotal] = {}
        for index, answer in answers.items():
            try:
                requests[index] = conversations[index].send(answer)
            except StopIteration as end:
                results[index] = end.value
        answers = {}
        for members in _groups(requests):
            answers.update((yield from _share({index: requests[index] for index in members})))
        answers = dict(sorted(answers.items()))
    return [results[index] for index in range(len(conversations))]


def _groups(requests: Mapping[int, Ask | AskTotal]) -> list[list[int]]:
    """Requests that differ in nothing but their query, in order of first appearance."""
    groups: dict[object, list[int]] = {}
    for index, request in requests.items():
        optional = isinstance(request, Ask) and request.optional
        groups.setdefault((type(request), request.clients, optional), []).append(index)
    return list(groups.values())


def _share(requests: Mapping[int, Ask | AskTotal]) -> Conversation[dict[int, Any]]:
    """Ask a group's queries in one exchange and give each member its own part of the answer."""
    first = next(iter(requests.values()))
    if len(requests) == 1:
        return dict.fromkeys(requests, (yield first))
    answer = yield replace(first, query=Bundle(tuple(request.query for request in requests.values())))
    if isinstance(answer, Total):
        parts = answer.record.replies
        return {i: Total(part, answer.answered) for i, part in zip(requests, parts, strict=True)}
    return {
        index: {client: bundle.replies[place] for client, bundle in answer.items()}
        for place, index in enumerate(requests)
    }
