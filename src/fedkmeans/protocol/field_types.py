"""How the fields of records travel; `fedkmeans.protocol.codec` puts whole records together.

The annotation of a field determines its `FieldType`. `FieldType.write` turns a value into JSON and puts its
floats and arrays on a list of numbers. `FieldType.read` goes the other way and raises `WireError` for
anything that `write` does not make. `fedkmeans.protocol.validation` checks the constraints of ``Annotated``.
"""

from __future__ import annotations

import math
import numbers
import reprlib
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np

from fedkmeans._utils.typing import FloatArray
from fedkmeans.errors import ParameterError, WireError

_Kind = TypeVar("_Kind", bound=type)

brief = reprlib.repr  # a short text of one line for any value

# Whole numbers have a smaller absolute value.
LARGEST_INTEGER = 2**64
# Records within records; a bundle of deltas has five levels.
MAX_DEPTH = 16
# Largest shape, also of an array that is empty along one axis.
_LARGEST_ARRAY, _MAX_SIDES = 2**40, 4
_A_NUMBER = "f"  # in the header, in place of a float, which is among the numbers


class Message:
    """Base of all queries and replies; a field of this type may hold any of its registered subclasses."""

    __slots__ = ()


class Sizes(int):
    """Type of a field with a number of bytes, or a tuple of sizes, one for each part of a bundle."""


# Every type that may travel, by name, and types of fields whose annotation leaves them open.
REGISTRY: dict[str, type] = {}
_HINTS: dict[type, Mapping[str, Any]] = {}


def register(kind: _Kind, **hints: Any) -> _Kind:
    """Let a dataclass travel; `hints` are types of fields whose annotation leaves them open."""
    if REGISTRY.setdefault(kind.__name__, kind) is not kind:
        raise TypeError(f"there are two kinds of record called {kind.__name__}")
    _HINTS[kind] = hints
    return kind


@dataclass(slots=True)
class NumberReader:
    """The numbers of a message, taken one after the other as read-only views."""

    numbers: FloatArray
    taken: int = 0
    depth: int = 0

    def take(self, shape: list[Any], where: str) -> FloatArray:
        """Take the next numbers as an array, without allocating memory."""
        if len(shape) > _MAX_SIDES or not all(type(side) is int and side >= 0 for side in shape):
            raise WireError(f"{where} has {brief(shape)} for a shape.")
        if math.prod(max(1, side) for side in shape) > _LARGEST_ARRAY:
            raise WireError(f"{where} has the shape {brief(shape)}, which is too large for any array.")
        size, left = math.prod(shape), len(self.numbers) - self.taken
        if size > left:
            raise WireError(f"{where} should have {size} number(s), but only {left} are left.")
        self.taken += size
        return self.numbers[self.taken - size : self.taken].reshape(shape)


# For each kind of field: the types of its values, and the type of its JSON.
_FORMS: dict[type, tuple[Any, Any]] = {
    str: (str, str),
    bool: ((bool, np.bool_), bool),
    int: (numbers.Integral, int),
    Sizes: (numbers.Integral, int),  # or a tuple
    float: (numbers.Real, str),
    np.ndarray: (np.ndarray, list),
    tuple: (tuple, list),
    frozenset: (frozenset, list),
    Mapping: (Mapping, dict),
    Message: (object, dict),  # records
}


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of a field."""

    kind: type  # a key of `_FORMS`
    each: FieldType | None = None  # of the entries of a tuple, a frozenset or a mapping from texts
    records: tuple[type, ...] = ()  # which records are allowed
    optional: bool = False  # whether the value may be None
    constraints: tuple[Any, ...] = ()  # what is checked on arrival, see `fedkmeans.protocol.constraints`

    def write(self, value: Any, sink: list[FloatArray]) -> Any:
        """Return JSON for a value, and append its numbers, shape (n,), to the list."""
        if value is None and self.optional:
            return None
        if self.kind is Sizes and isinstance(value, tuple):
            return [self.write(part, sink) for part in value]
        if not self._holds(value):
            if callable(value):
                raise ParameterError(
                    "A weighting given as a function cannot be sent to sites. Use a rule by name, which all "
                    "sites must know: see fedkmeans.kernels.weighting."
                )
            raise ParameterError(f"{brief(value)} ({type(value).__name__}) cannot be sent at this place.")
        if self.kind is Message:
            record: Any = type(value)
            fields = fields_of(record).items()
            written = {name: field.write(getattr(value, name), sink) for name, field in fields}
            return {record.__name__: written}
        if self.kind is np.ndarray:
            sink.append(np.ascontiguousarray(value, dtype=np.float64).ravel())
            return list(value.shape)
        if self.kind is float:
            sink.append(np.array([value], dtype=np.float64))
            return _A_NUMBER
        if self.each is None:
            value = self.kind(value)
            problem = _problem(value)
            if problem:
                raise ParameterError(f"{brief(value)} cannot be sent: {problem}.")
            return value
        if self.kind is Mapping:
            return {_TEXT.write(key, sink): self.each.write(part, sink) for key, part in value.items()}
        return [self.each.write(part, sink) for part in (sorted(value) if self.kind is frozenset else value)]

    def _holds(self, value: Any) -> bool:
        if self.kind is Message:
            return isinstance(value, self.records) and REGISTRY.get(type(value).__name__) is type(value)
        return isinstance(value, _FORMS[self.kind][0]) and (self.kind is bool or not isinstance(value, bool))

    def read(self, data: Any, source: NumberReader, where: str) -> Any:
        """Return the value for JSON, or raise."""
        if data is None and self.optional:
            return None
        if self.kind is Sizes and type(data) is list:
            return tuple(self.read(part, source, where) for part in data)
        if type(data) is not _FORMS[self.kind][1] or (self.kind is float and data != _A_NUMBER):
            raise WireError(f"{where} is {brief(data)}, which has the wrong type.")
        if self.kind is Message:
            return self._read_record(data, source, where)
        if self.kind is np.ndarray:
            return source.take(data, where)
        if self.kind is float:
            return float(source.take([1], where)[0])
        if self.each is None:
            problem = _problem(data)
            if problem:
                raise WireError(f"{where} is {brief(data)}: {problem}.")
            return data
        pairs: Any = data.items() if self.kind is Mapping else enumerate(data)
        parts = {key: self.each.read(part, source, f"{where}[{key!r:.50}]") for key, part in pairs}
        if self.kind is Mapping:
            return {_TEXT.read(key, source, f"a key of {where}"): part for key, part in parts.items()}
        found = self.kind(parts.values())
        if len(found) < len(parts):
            raise WireError(f"{where} names something twice.")
        return found

    def _read_record(self, data: dict[str, Any], source: NumberReader, where: str) -> Any:
        """Return a record of one of the kinds, with exactly its fields."""
        if len(data) != 1:
            raise WireError(f"{where} should have one kind, it has {len(data)}.")
        ((name, values),) = data.items()
        kind: Any = REGISTRY.get(name)
        if kind is None:
            raise WireError(f"{where} is of the unknown kind {brief(name)}.")
        if not issubclass(kind, self.records):
            wanted = textwrap.shorten(" or ".join(one.__name__ for one in self.records), 200, placeholder="…")
            raise WireError(f"{where} is of the kind {name}, expected {wanted}.")
        fields = fields_of(kind)
        if not isinstance(values, dict) or values.keys() != fields.keys():
            raise WireError(f"{name} should have the fields {list(fields)}, it has {brief(values)}.")
        source.depth += 1
        if source.depth > MAX_DEPTH:
            raise WireError(f"it has more than {MAX_DEPTH} records within each other.")
        found = {key: field.read(values[key], source, f"{name}.{key}") for key, field in fields.items()}
        source.depth -= 1
        return kind(**found)


_TEXT = FieldType(str)


def _problem(value: str | int) -> str:
    """Why a text or a whole number cannot travel."""
    if not isinstance(value, str):
        return "" if abs(value) < LARGEST_INTEGER else "whole numbers must be below 2**64"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "it is no valid text (Unicode)"
    return ""


@cache
def fields_of(kind: Any) -> dict[str, FieldType]:
    """The types of a record's fields, by name and in order."""
    hints = {**typing.get_type_hints(kind, include_extras=True), **_HINTS[kind]}
    return {name: field_type(hint) for name, hint in hints.items()}


def field_type(hint: Any) -> FieldType:
    """Return the type of a field from its annotation; raise TypeError if its values cannot travel.

    Records of several kinds may share a field, and None may stand for no value. A function cannot travel; its
    type is left out.
    """
    constraints = getattr(hint, "__metadata__", ())
    if constraints:
        hint = hint.__origin__
    is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    options = typing.get_args(hint) if is_union else (hint,)
    kept = [one for one in options if typing.get_origin(one) is not Callable and one is not types.NoneType]
    optional = types.NoneType in options
    if all(map(_is_record, kept)):
        return FieldType(Message, None, tuple(kept), optional, constraints)
    origin, arguments = typing.get_origin(kept[0]), typing.get_args(kept[0])
    kind, each = kept[0], None
    if kind == FloatArray:  # what this alias is made of differs between versions of Python and NumPy
        kind = np.ndarray
    elif origin is Mapping and arguments[0] is str:
        kind, each = origin, field_type(arguments[1])
    elif origin is frozenset or (origin is tuple and arguments[1:] == (...,)):
        kind, each = origin, field_type(arguments[0])
    elif kind not in (str, bool, int, float, Sizes):
        kind = None
    if kind is None or len(kept) > 1:
        raise TypeError(f"there is no way to send a value of type {hint}")
    return FieldType(kind, each, (), optional, constraints)


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and (REGISTRY.get(hint.__name__) is hint or issubclass(hint, Message))
