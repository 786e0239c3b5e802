"""How values of each type travel; `fedkmeans.protocol.codec` puts whole records together.

Each type has a *codec*. `write` turns a value into JSON and puts its floats and arrays on a list of numbers.
`read` goes the other way and raises `WireError` for anything that `write` does not make. The codec of a
field follows from its type annotation.
"""

from __future__ import annotations

import math
import numbers
import reprlib
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from fedkmeans._utils.typing import FloatArray
from fedkmeans.errors import ParameterError, WireError

T = TypeVar("T")

# Whole numbers have a smaller absolute value.
LARGEST_INTEGER = 2**64
# Records within records; a bundle of deltas has five levels.
MAX_DEPTH = 16
# Largest shape, also of an array that is empty along one axis.
_LARGEST_ARRAY, _MAX_SIDES = 2**40, 4
_A_NUMBER = "f"  # in the header, in place of a float, which is among the numbers


def brief(value: Any) -> str:
    """Return a short text of one line for any value."""
    return reprlib.repr(value)


class Message:
    """Base of all queries and replies; a field of this type may hold any of its registered subclasses."""

    __slots__ = ()


@dataclass(slots=True)
class NumberReader:
    """The numbers of a message, taken one after the other as read-only views."""

    numbers: FloatArray
    taken: int = 0
    depth: int = 0

    def take(self, shape: tuple[int, ...], where: str) -> FloatArray:
        """Take the next numbers as an array, without allocating memory."""
        size, left = math.prod(shape), len(self.numbers) - self.taken
        if size > left:
            raise WireError(f"{where} should have {size} number(s), but only {left} are left.")
        self.taken += size
        return self.numbers[self.taken - size : self.taken].reshape(shape)


@runtime_checkable
class Codec(Protocol):
    """Writes and reads values of one type."""

    def holds(self, value: Any) -> bool:
        """Whether a value is of this type."""
        ...

    def looks_right(self, data: Any) -> bool:
        """Whether JSON has the outer form of this type, by which one of several types is chosen."""
        ...

    def write(self, value: Any, sink: list[FloatArray]) -> Any:
        """Return JSON for a value of this type, and append its numbers, shape (n,), to the list."""
        ...

    def read(self, data: Any, source: NumberReader, where: str) -> Any:
        """Return the value for JSON of the right form, or raise."""
        ...


@dataclass(frozen=True, slots=True)
class _Plain:
    """Text, booleans, whole numbers and None as JSON; floats among the numbers."""

    kind: type

    def holds(self, value: Any) -> bool:
        if self.kind in (int, float):
            wanted = numbers.Integral if self.kind is int else numbers.Real
            return isinstance(value, wanted) and not isinstance(value, bool)
        return isinstance(value, np.bool_ | bool if self.kind is bool else self.kind)

    def looks_right(self, data: Any) -> bool:
        return data == _A_NUMBER if self.kind is float else type(data) is self.kind

    def write(self, value: Any, sink: list[FloatArray]) -> Any:
        if self.kind is float:
            sink.append(np.array([value], dtype=np.float64))
            return _A_NUMBER
        value = None if value is None else self.kind(value)
        problem = self._problem(value)
        if problem:
            raise ParameterError(f"{brief(value)} cannot be sent: {problem}.")
        return value

    def read(self, data: Any, source: NumberReader, where: str) -> Any:
        if self.kind is float:
            return float(source.take((1,), where)[0])
        problem = self._problem(data)
        if problem:
            raise WireError(f"{where} is {brief(data)}: {problem}.")
        return data

    def _problem(self, value: Any) -> str:
        if self.kind is int and not abs(value) < LARGEST_INTEGER:
            return "whole numbers must be below 2**64"
        if self.kind is str and not value.isascii() and not _is_unicode(value):
            return "it is no valid text (Unicode)"
        return ""


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Array:
    """Arrays of float64: the header has the shape."""

    def holds(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def looks_right(self, data: Any) -> bool:
        return isinstance(data, list)

    def write(self, value: Any, sink: list[FloatArray]) -> Any:
        sink.append(np.ascontiguousarray(value, dtype=np.float64).ravel())
        return list(value.shape)

    def read(self, data: Any, source: NumberReader, where: str) -> FloatArray:
        if len(data) > _MAX_SIDES or not all(type(side) is int and side >= 0 for side in data):
            raise WireError(f"{where} has {brief(data)} for a shape.")
        if math.prod(max(1, side) for side in data) > _LARGEST_ARRAY:
            raise WireError(f"{where} has the shape {brief(data)}, which is too large for any array.")
        return source.take(tuple(data), where)


@dataclass(frozen=True, slots=True)
class _Several:
    """Tuples of any length and sets of texts; JSON has them as lists, sets in order."""

    each: Codec
    kind: type

    def holds(self, value: Any) -> bool:
        return isinstance(value, self.kind)

    def looks_right(self, data: Any) -> bool:
        return isinstance(data, list)

    def write(self, value: Any, sink: list[FloatArray]) -> Any:
        parts = sorted(value) if self.kind is frozenset else value
        return [write(self.each, part, sink) for part in parts]

    def read(self, data: Any, source: NumberReader, where: str) -> Any:
        parts = [read(self.each, part, source, f"{where}[{place}]") for place, part in enumerate(data)]
        found = self.kind(parts)
        if len(found) < len(parts):
            raise WireError(f"{where} names something twice.")
        return found


@dataclass(frozen=True, slots=True)
class _Table:
    """Mappings from texts."""

    each: Codec

    def holds(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def looks_right(self, data: Any) -> bool:
        return isinstance(data, dict)

    def write(self, value: Any, sink: list[FloatArray]) -> Any:
        return {write(_TEXT, key, sink): write(self.each, part, sink) for key, part in value.items()}

    def read(self, data: Any, source: NumberReader, where: str) -> Any:
        return {
            read(_TEXT, key, source, f"a key of {where}"): read(
                self.each, part, source, f"{where}[{brief(key)}]"
            )
            for key, part in data.items()
        }


@dataclass(frozen=True, slots=True)
class _AnyOf:
    """One of several types whose JSON differs in form."""

    options: tuple[Codec, ...]

    def holds(self, value: Any) -> bool:
        return any(option.holds(value) for option in self.options)

    def looks_right(self, data: Any) -> bool:
        return any(option.looks_right(data) for option in self.options)

    def write(self, value: Any, sink: list[FloatArray]) -> Any:
        return next(option for option in self.options if option.holds(value)).write(value, sink)

    def read(self, data: Any, source: NumberReader, where: str) -> Any:
        option = next(option for option in self.options if option.looks_right(data))
        return option.read(data, source, where)


@dataclass(frozen=True, slots=True)
class Sizes:
    """A number of bytes, or a tuple of sizes, one for each part of a bundle."""

    def holds(self, value: Any) -> bool:
        """Whether it is a number, or a tuple of what may be sizes."""
        return isinstance(value, tuple) or _WHOLE.holds(value)

    def looks_right(self, data: Any) -> bool:
        """Whether it is a number or a list."""
        return isinstance(data, list) or _WHOLE.looks_right(data)

    def write(self, value: Any, sink: list[FloatArray]) -> Any:
        """Return numbers in lists."""
        if isinstance(value, tuple):
            return [write(self, part, sink) for part in value]
        return _WHOLE.write(value, sink)

    def read(self, data: Any, source: NumberReader, where: str) -> Any:
        """Return numbers in tuples."""
        if not isinstance(data, list):
            return _WHOLE.read(data, source, where)
        return _deeper(source, lambda: tuple(read(self, part, source, where) for part in data))


@dataclass(frozen=True, slots=True)
class Records:
    """Records of some kinds; JSON is ``{kind: {field: …}}``."""

    kinds: tuple[type, ...]

    def holds(self, value: Any) -> bool:
        """Whether it is a record of one of the kinds."""
        return isinstance(value, self.kinds) and REGISTRY.get(type(value).__name__) is type(value)

    def looks_right(self, data: Any) -> bool:
        """Whether it is a JSON object."""
        return isinstance(data, dict)

    def write(self, value: Any, sink: list[FloatArray]) -> Any:
        """Return the record's kind and fields."""
        kind: type = type(value)
        return {
            kind.__name__: {
                name: write(codec, getattr(value, name), sink) for name, codec in fields_of(kind).items()
            }
        }

    def read(self, data: Any, source: NumberReader, where: str) -> Any:
        """Return a record of one of the kinds, with exactly its fields."""
        if len(data) != 1:
            raise WireError(f"{where} should have one kind, it has {len(data)}.")
        ((name, values),) = data.items()
        kind: Any = REGISTRY.get(name)
        if kind is None:
            raise WireError(f"{where} is of the unknown kind {brief(name)}.")
        if not issubclass(kind, self.kinds):
            wanted = " or ".join(one.__name__ for one in self.kinds)
            raise WireError(f"{where} is of the kind {name}, expected {brief_text(wanted)}.")
        codecs = fields_of(kind)
        if not isinstance(values, dict) or values.keys() != codecs.keys():
            raise WireError(f"{name} should have the fields {list(codecs)}, it has {brief(values)}.")
        return _deeper(
            source,
            lambda: kind(
                **{key: read(codec, values[key], source, f"{name}.{key}") for key, codec in codecs.items()}
            ),
        )


def brief_text(text: str) -> str:
    """Cut a text that is too long for a message."""
    return text if len(text) <= 200 else text[:200] + "…"


def _deeper(source: NumberReader, work: Callable[[], T]) -> T:
    if source.depth == MAX_DEPTH:
        raise WireError(f"it has more than {MAX_DEPTH} records within each other.")
    source.depth += 1
    found = work()
    source.depth -= 1
    return found


def write(codec: Codec, value: Any, sink: list[FloatArray]) -> Any:
    """Write a value, if the codec holds it."""
    if not codec.holds(value):
        if callable(value):
            raise ParameterError(
                "A weighting given as a function cannot be sent to sites. Use a rule by name, which all "
                "sites must know: see fedkmeans.kernels.weighting."
            )
        raise ParameterError(f"{brief(value)} ({type(value).__name__}) cannot be sent at this place.")
    return codec.write(value, sink)


def read(codec: Codec, data: Any, source: NumberReader, where: str) -> Any:
    """Read a value, if the JSON looks right."""
    if not codec.looks_right(data):
        raise WireError(f"{where} is {brief(data)}, which has the wrong type.")
    return codec.read(data, source, where)


_TEXT, _WHOLE = _Plain(str), _Plain(int)


# Every type that may travel, by name, and what is known of its fields beside their annotations.
REGISTRY: dict[str, type] = {}
_HINTS: dict[type, Mapping[str, Any]] = {}


def register(kind: type, **hints: Any) -> None:
    """Let a dataclass travel; `hints` are types or codecs of fields whose annotation leaves them open."""
    if REGISTRY.setdefault(kind.__name__, kind) is not kind:
        raise TypeError(f"there are two kinds of record called {kind.__name__}")
    _HINTS[kind] = hints


@cache
def fields_of(kind: Any) -> dict[str, Codec]:
    """The codecs of a record's fields, by name and in order."""
    hints = {**typing.get_type_hints(kind), **_HINTS[kind]}
    return {name: codec_of(hint) for name, hint in hints.items()}


# Types that are not made of others. An array is recognised by the alias that annotates it: what the alias
# is made of differs between versions of Python and NumPy.
_BY_TYPE: dict[Any, Codec] = {
    FloatArray: _Array(),
    **{kind: _Plain(kind) for kind in (str, bool, int, float, types.NoneType)},
}
# Types made of others, by origin: each makes a codec from the type's arguments, or None if it cannot.
_BY_ORIGIN: dict[Any, Callable[..., Codec | None]] = {
    types.UnionType: lambda *options: _codec_of_union(options),
    typing.Union: lambda *options: _codec_of_union(options),
    tuple: lambda each, *more: _Several(codec_of(each), tuple) if more == (...,) else None,
    frozenset: lambda each: _Several(codec_of(each), frozenset),
    Mapping: lambda key, each: _Table(codec_of(each)) if key is str else None,
}


def codec_of(hint: Any) -> Codec:
    """Return the codec for the type of a field, or the codec itself; raise TypeError if there is none."""
    if isinstance(hint, Codec) and not isinstance(hint, type):
        return hint
    if _is_record(hint):
        return Records((hint,))
    make = _BY_ORIGIN.get(typing.get_origin(hint))
    codec = _BY_TYPE.get(hint) if make is None else make(*typing.get_args(hint))
    if codec is None:
        raise TypeError(f"there is no way to send a value of type {hint}")
    return codec


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and (REGISTRY.get(hint.__name__) is hint or issubclass(hint, Message))


def _codec_of_union(options: tuple[Any, ...]) -> Codec:
    """Leave functions out, because they cannot travel; records of several kinds share a codec."""
    kinds = tuple(one for one in options if _is_record(one))
    others = [one for one in options if one not in kinds and typing.get_origin(one) is not Callable]
    codecs = [codec_of(one) for one in others] + ([Records(kinds)] if kinds else [])
    return codecs[0] if len(codecs) == 1 else _AnyOf(tuple(codecs))
