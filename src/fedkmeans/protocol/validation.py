"""Check messages on arrival: a query before it touches rows, a reply before it counts.

`codec.decode` returns *some* message. Here the message must be one that an honest sender could have sent:
each field satisfies its constraint, and a reply fits its query. Nobody can check whether a site tells the
truth about its rows.
"""

from __future__ import annotations

import typing
from dataclasses import fields
from functools import cache
from typing import Any

from fedkmeans.errors import WireError
from fedkmeans.protocol.constraints import Array, Constraint
from fedkmeans.protocol.declaration import Query, reply_type
from fedkmeans.protocol.field_types import Message
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
    """Refuse a reply that no honest site would have sent.

    Parameters
    ----------
    query : Query
    reply : object
        As `codec.decode` returns it.
    n_features : int or None
        Number of columns of the sites, if it is known already.

    Raises
    ------
    WireError
        With one line that says what is wrong. The caller knows whose reply it is.
    """
    kind: type[Any] = reply_type(type(query))
    if type(reply) is not kind:
        raise WireError(
            f"{type(query).__name__} is answered with {kind.__name__}, the reply is {type(reply).__name__}."
        )
    if isinstance(query, Bundle):
        replies = reply.replies
        if len(replies) != len(query.queries):
            raise WireError(f"{len(replies)} replies to a bundle of {len(query.queries)} queries.")
        for part, answer in zip(query.queries, replies, strict=True):
            check_reply(part, answer, n_features)
        return
    sizes = {} if n_features is None else {"m": n_features}
    _note_sizes(query, sizes)
    _check_fields(reply, sizes)
    reply.check_for(query)


@cache
def _declared(kind: Any) -> dict[str, tuple[Any, tuple[Constraint, ...]]]:
    """Return the type and the constraints of each field."""
    hints = typing.get_type_hints(kind, include_extras=True)
    found = {}
    for field in fields(kind):
        hint = hints[field.name]
        constraints = getattr(hint, "__metadata__", ())
        found[field.name] = (hint.__origin__ if constraints else hint, constraints)
    return found


def _check_fields(message: Any, sizes: dict[str, int]) -> None:
    kind: Any = type(message)
    for name, (hint, constraints) in _declared(kind).items():
        value = getattr(message, name)
        for constraint in constraints:
            constraint.check(name, value, sizes)
        if isinstance(hint, type) and issubclass(hint, Message):
            if type(value) is not hint:
                raise WireError(f"{name} is no {hint.__name__}.")
            _check_fields(value, sizes)


def _note_sizes(query: Any, sizes: dict[str, int]) -> None:
    """Add the sizes of the query's arrays, which the server made itself."""
    kind: Any = type(query)
    for name, (_, constraints) in _declared(kind).items():
        value = getattr(query, name)
        if isinstance(value, Message):
            _note_sizes(value, sizes)
        for constraint in constraints:
            if isinstance(constraint, Array):
                sizes.update(zip(constraint.shape, value.shape, strict=True))
