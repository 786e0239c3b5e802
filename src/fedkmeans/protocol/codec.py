"""Encode records as one text and one vector of numbers, and decode them without trusting the sender.

The text is JSON with the structure, names, whole numbers and shapes. The vector has every float and every
array in the order of the fields, so that no digit is lost. Decoding returns a record that could have been
sent, or raises a `WireError` of one line. It never executes anything and allocates no memory because a
message claims a size.

>>> from fedkmeans.protocol.messages import ScoreTotals
>>> encode(ScoreTotals.of(3.0, 2.0)).header
'{"v":3,"record":{"ScoreTotals":{"inertia":"f","n_samples":"f","client_scores":"f","n_clients":1}}}'
>>> decode(encode(ScoreTotals.of(3.0, 2.0)), ScoreTotals).per_sample
1.5
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from fedkmeans._utils.typing import FloatArray
from fedkmeans.errors import WireError
from fedkmeans.protocol.field_types import FieldType, Message, NumberReader, brief

WIRE_VERSION = 3
# Characters of a header: a few hundred are common, and the names of 100,000 columns fit.
MAX_HEADER = 2**22

MAGIC = b"FKMW"
_PREFIX = struct.Struct("<4sIQ")  # the magic, bytes of the header, how many numbers
_CHECK = struct.Struct("<I")
PREFIX_SIZE = _PREFIX.size


@dataclass(frozen=True, slots=True)
class Packed:
    """An encoded record: JSON in ASCII, and numbers in double precision, shape (n,)."""

    header: str
    numbers: FloatArray


def encode(record: Any) -> Packed:
    """Encode a record.

    Raises
    ------
    ParameterError
        It contains a value that cannot be sent, for instance a function as weighting rule.
    """
    sink: list[FloatArray] = []
    written = FieldType(Message, records=(type(record),)).write(record, sink)
    header = json.dumps({"v": WIRE_VERSION, "record": written}, separators=(",", ":"), allow_nan=False)
    return Packed(header, np.concatenate(sink) if sink else np.empty(0))


def decode(packed: Packed, expected: type | tuple[type, ...], max_header: int | None = MAX_HEADER) -> Any:
    """Decode a record from somebody else.

    Parameters
    ----------
    packed : Packed
    expected : type or tuple of types
        Allowed types.
    max_header : int or None
        Largest number of characters of the header; None for files of this process.

    Returns
    -------
    record
        Its arrays are read-only.

    Raises
    ------
    WireError
        It is not such a record. No other exception is raised.
    """
    kinds = expected if isinstance(expected, tuple) else (expected,)
    source = NumberReader(_checked(packed.numbers))
    try:
        tree = _parse(packed.header, max_header)
        record = FieldType(Message, records=kinds).read(tree, source, "the message")
    except RecursionError:
        raise WireError("the header is too deeply nested.") from None
    left = len(source.numbers) - source.taken
    if left:
        raise WireError(f"{left} number(s) are left over.")
    return record


def _checked(numbers: Any) -> FloatArray:
    """Return a read-only copy of the numbers, shape (n,)."""
    if not isinstance(numbers, np.ndarray) or numbers.dtype != np.float64 or numbers.ndim != 1:
        what = f"{getattr(numbers, 'dtype', type(numbers).__name__)} {getattr(numbers, 'shape', '')}"
        raise WireError(f"the numbers should be a vector of float64, they are {brief(what)}.")
    copy = np.array(numbers, dtype=np.float64)
    copy.setflags(write=False)
    return copy


def _parse(header: Any, max_header: int | None) -> Any:
    """Return the JSON of the record if the header has the right version."""
    if not isinstance(header, str):
        raise WireError(f"the header should be a text, it is {type(header).__name__}.")
    if max_header is not None and len(header) > max_header:
        raise WireError(f"the header has {len(header)} characters, more than {max_header}.")
    try:
        tree = json.loads(header, object_pairs_hook=_object, parse_int=_integer, **_NO_NUMBERS)
    except json.JSONDecodeError as error:
        raise WireError(f"the header is no JSON: {error}.") from None
    if not isinstance(tree, dict) or type(tree.get("v")) is not int:
        raise WireError(f"the header names no version of the wire format: {brief(tree)}.")
    if tree["v"] != WIRE_VERSION:
        raise WireError(
            f"it speaks version {tree['v']} of the wire format, this side version {WIRE_VERSION}. Install "
            "the same version of fedkmeans on both sides."
        )
    if tree.keys() != {"v", "record"}:
        raise WireError(f"the header should have a version and a record, it has {brief(list(tree))}.")
    return tree["record"]


def _integer(digits: str) -> int:
    if len(digits) > 21:  # a sign and the digits of 2**64
        raise WireError(f"the header has a whole number of {len(digits)} digits.")
    return int(digits)


def _no_number(text: str) -> NoReturn:
    raise WireError(f"the header has the number {brief(text)}, which belongs among the numbers.")


_NO_NUMBERS: Any = {"parse_float": _no_number, "parse_constant": _no_number}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise WireError("the header has an object with a key twice.")
    return found


def to_bytes(packed: Packed) -> bytes:
    """Return bytes for a file: magic, lengths, header, numbers (little-endian) and a checksum."""
    header = packed.header.encode()
    numbers = packed.numbers.astype("<f8").tobytes()
    data = _PREFIX.pack(MAGIC, len(header), len(packed.numbers)) + header + numbers
    return data + _CHECK.pack(zlib.crc32(data))


def size_in_bytes(prefix: bytes) -> int:
    """Return the size of a record in `to_bytes` form from its first `PREFIX_SIZE` bytes."""
    if len(prefix) < PREFIX_SIZE or not prefix.startswith(MAGIC):
        raise WireError("the bytes do not begin as a record does.")
    _, n_header, n_numbers = _PREFIX.unpack(prefix[:PREFIX_SIZE])
    return int(PREFIX_SIZE + n_header + 8 * n_numbers + _CHECK.size)


def from_bytes(data: bytes) -> Packed:
    """Read what `to_bytes` wrote; raise `WireError` if a bit is missing or different."""
    size = size_in_bytes(data)
    if size != len(data):
        raise WireError(f"the record should have {size} bytes, there are {len(data)}.")
    if _CHECK.unpack(data[-_CHECK.size :])[0] != zlib.crc32(data[: -_CHECK.size]):
        raise WireError("the bytes were altered: their checksum is wrong.")
    _, n_header, n_numbers = _PREFIX.unpack(data[:PREFIX_SIZE])
    end = PREFIX_SIZE + n_header
    try:
        header = data[PREFIX_SIZE:end].decode()
    except UnicodeDecodeError:
        raise WireError("the header is no text.") from None
    return Packed(header, np.frombuffer(data, "<f8", n_numbers, end).astype(np.float64))
