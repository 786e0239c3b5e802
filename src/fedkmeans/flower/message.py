"""A query or reply as the content of a Flower message: arrays and plain scalars, nothing pickled.

A message holds one array, all numbers of the record, and one record of texts: its header (see `wire`),
the exchange it belongs to and the name of the site. What is the same for all sites, usually the
numbers, Flower then stores and sends to the SuperLink once.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedkmeans._utils.typing import ClientId, FloatArray
from fedkmeans.errors import WireError
from fedkmeans.protocol.codec import Packed

# The action of our ClientApp, and the type of the messages that call it.
ACTION = "fedkmeans"
MESSAGE_TYPE = f"query.{ACTION}"
# What of a message is larger than this was not made by us.
MAX_BYTES = 2**30
MAX_TEXT = 2**22

_TEXTS, _ARRAYS, _NUMBERS = "fedkmeans", "arrays", "numbers"
# How NumPy begins a file with a vector of float64. Its own reader takes more than that: what it makes of
# a stranger's header, it makes by evaluating it.
_BEGINNING = re.compile(
    rb"\x93NUMPY\x01\x00(..)\{'descr': '<f8', 'fortran_order': False, 'shape': \(([0-9]{1,12}),\), \} *\n",
    re.DOTALL,
)


def write_content(packed: Packed, exchange: str, client: ClientId, *, salt: float = 0.0) -> RecordDict:
    """Make the content of a message.

    Flower stores equal arrays once and does not ask for one that it has. A reply must therefore be
    `salt`ed, by a number that stands before the others: else a site could find out whether another one
    sent the very numbers that it has itself.
    """
    texts = ConfigRecord({"header": packed.header, "exchange": exchange, "client": client})
    numbers = np.concatenate([[salt], packed.numbers])
    return RecordDict({_TEXTS: texts, _ARRAYS: ArrayRecord({_NUMBERS: Array(numbers)})})


def read_content(content: RecordDict) -> tuple[Packed, str, ClientId]:
    """Read what `write_content` made: the record, the exchange and the site's name.

    Raises
    ------
    WireError
        It is anything else.
    """
    if set(content) != {_TEXTS, _ARRAYS}:
        raise WireError(f"the message should have the parts {_TEXTS} and {_ARRAYS}.")
    texts, arrays = content[_TEXTS], content[_ARRAYS]
    if not isinstance(texts, ConfigRecord) or set(texts) != {"header", "exchange", "client"}:
        raise WireError(f"the part {_TEXTS} should have a header, an exchange and a client.")
    for name, text in texts.items():
        if not isinstance(text, str) or len(text) > MAX_TEXT:
            raise WireError(f"the {name} should be a text of at most {MAX_TEXT} characters.")
    if not isinstance(arrays, ArrayRecord) or set(arrays) != {_NUMBERS}:
        raise WireError(f"the part {_ARRAYS} should have one array, {_NUMBERS}.")
    numbers = read_numbers(arrays[_NUMBERS].data)
    if not len(numbers):
        raise WireError("there is no number in front of the others.")
    return Packed(str(texts["header"]), numbers[1:]), str(texts["exchange"]), str(texts["client"])


def read_numbers(data: Any) -> FloatArray:
    """Read a vector of float64 in NumPy's file format; no memory is taken because the data says so."""
    if not isinstance(data, bytes) or len(data) > MAX_BYTES:
        raise WireError(f"the numbers should be at most {MAX_BYTES} bytes.")
    begins = _BEGINNING.match(data)
    # After ten bytes, of which the last two say how long it is, comes the text of the header.
    if begins is None or int.from_bytes(begins[1], "little") != begins.end() - 10:
        raise WireError("the numbers should be a vector of float64 in version 1.0 of NumPy's format.")
    size, left = 8 * int(begins[2]), len(data) - begins.end()
    if size != left:
        raise WireError(f"the numbers should be {size} bytes long, they are {left}.")
    return np.frombuffer(data, dtype="<f8", offset=begins.end()).astype(np.float64)
