"""How a message is declared: one dataclass says how it travels, what is checked and what answers it.

`CONTRIBUTING.md` has an example. What a site does with a query is a function with the decorator of
`fedkmeans.client.handlers`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast, dataclass_transform, overload

from fedkmeans._utils.typing import ClientId
from fedkmeans.protocol.field_types import Message, register

_M = TypeVar("_M", bound=Message)

_REPLY_TYPES: dict[type, type] = {}


class Query(Message):
    """What the server sends."""

    __slots__ = ()

    def for_client(self, client: ClientId) -> Query:
        """Return the part of the query that one client needs to see."""
        return self


class Reply(Message):
    """What a client sends back. Replies that add up have ``__add__``."""

    __slots__ = ()

    def totals(self) -> Any:
        """Return the reply in the form that adds up."""
        return self

    def check_for(self, query: Any) -> None:
        """Raise `WireError` if the fields do not fit each other or the query; the fields are checked."""

    def __add__(self, other: Any) -> Any:
        raise TypeError(f"{type(self).__name__} does not add up; use Ask in place of AskTotal.")


class Additive(Reply):
    """A reply whose fields are added one by one."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        names = (field.name for field in fields(cast(Any, self)))
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in names))


@overload
def message(kind: type[_M]) -> type[_M]: ...
@overload
def message(*, reply: type[Reply]) -> Callable[[type[_M]], type[_M]]: ...
@dataclass_transform(frozen_default=True)
def message(kind: type | None = None, *, reply: type | None = None) -> Any:
    """Turn a subclass of `Query` or `Reply` into a frozen dataclass that can travel.

    Annotate fields with a constraint where more than the type is checked on arrival. `reply` is, for a
    query, the type of its reply.
    """

    def declare(kind: type) -> type:
        kind = register(dataclass(frozen=True, slots=True)(kind))
        if reply is not None:
            _REPLY_TYPES[kind] = reply
        return kind

    return declare if kind is None else declare(kind)


def reply_type(kind: type[Query]) -> type[Reply]:
    """Return the type of the reply to a kind of query."""
    return _REPLY_TYPES[kind]
