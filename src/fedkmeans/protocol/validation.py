"""Check messages on arrival: a query before it touches rows, a reply before it counts.

`codec.decode` returns *some* message. Here the message must be one that an honest sender could have sent:
each field satisfies its constraint, and a reply fits its query. Nobody can check whether a site tells the
truth about its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedkmeans.errors import WireError
from fedkmeans.protocol.constraints import Array
from fedkmeans.protocol.declaration import Query, reply_type
from fedkmeans.protocol.field_types import Message, fields_of
from fedkmeans.protocol.messages import Bundle


def check_query(query: Query, n_features: int) -> None:
    """Raise `WireError`, in one line, unless a site with so many columns can answer the query."""
    if isinstance(query, Bundle):
        for part in query.queries:
            check_query(part, n_features)
        return
    try:
        _check_fields(query, {"m": n_features})
    except WireError as error:
        raise WireError(f"the query's {error}") from None


def check_reply(query: Query, reply: Any, n_features: int | None) -> None:
    """Raise `WireError`, in one line, for a reply that no honest site would have sent.

    `reply` is what `codec.decode` returned. `n_features` is None while the number of columns is not known.
    """
    kind: type[Any] = reply_type(type(query))
    if type(reply) is not kind:
        raise WireError(
            f"{type(query).__name__} is answered with {kind.__name__}, the reply is {type(reply).__name__}."
        )
    if isinstance(query, Bundle):
        if len(reply.replies) != len(query.queries):
            raise WireError(f"{len(reply.replies)} replies to a bundle of {len(query.queries)} queries.")
        for part, answer in zip(query.queries, reply.replies, strict=True):
            check_reply(part, answer, n_features)
        return
    sizes = {} if n_features is None else {"m": n_features}
    # The server made the query itself: only the sizes of its arrays matter.
    for _, value, constraint in _constraints(query):
        if isinstance(constraint, Array):
            sizes.update(zip(constraint.shape, value.shape, strict=True))
    _check_fields(reply, sizes)
    reply.check_for(query)


def _check_fields(message: Message, sizes: dict[str, int]) -> None:
    for name, value, constraint in _constraints(message):
        constraint.check(name, value, sizes)


def _constraints(message: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, value and constraint of each field, also of messages within the message."""
    kind: Any = type(message)
    for name, field in fields_of(kind).items():
        value = getattr(message, name)
        for constraint in field.constraints:
            yield name, value, constraint
        if field.kind is Message:
            (wanted,) = field.records
            if type(value) is not wanted:
                raise WireError(f"{name} is no {wanted.__name__}.")
            yield from _constraints(value)
