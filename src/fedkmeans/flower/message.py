"""Queries and replies as the content of Flower messages: arrays and plain scalars, without pickle.

The content has one array with all numbers of the message, and one record of texts: the header (see
`fedkmeans.protocol.codec`), the exchange and the name of the site. Flower stores equal arrays once, so
numbers that are the same for all sites are sent to the SuperLink once.
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
# Larger parts are refused.
MAX_BYTES = 2**30
MAX_TEXT = 2**22

_TEXTS, _ARRAYS, _NUMBERS = "fedkmeans", "arrays", "numbers"
# The beginning of a NumPy file with a vector of float64. NumPy's own reader accepts more and evaluates the
# header as Python code, which is not safe for messages.
_BEGINNING = re.compile(
    rb"\x93NUMPY\x01\x00(..)\{'descr': '<f8', 'fortran_order': False, 'shape': \(([0-9]{1,12}),\), \} *\n",
    re.DOTALL,
)


def write_content(packed: Packed, exchange: str, client: ClientId, *, salt: float = 0.0) -> RecordDict:
    """Return the content of a message.

    Flower stores equal arrays once and does not request an array that it already has. A site could
    therefore find out whether another site sent the same numbers. A random first number, the `salt`,
    makes each reply different.
    """
    texts = ConfigRecord({"header": packed.header, "exchange": exchange, "client": client})
    numbers = np.concatenate([[salt], packed.numbers])
    return RecordDict({_TEXTS: texts, _ARRAYS: ArrayRecord({_NUMBERS: Array(numbers)})})


def read_content(content: RecordDict) -> tuple[Packed, str, ClientId]:
    """Read the output of `write_content`: message, exchange and site's name; `WireError` if it is invalid."""
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
    """Read a vector of float64 in NumPy's file format, without trusting the size in its header."""
    if not isinstance(data, bytes) or len(data) > MAX_BYTES:
        raise WireError(f"the numbers should be at most {MAX_BYTES} bytes.")
    begins = _BEGINNING.match(data)
    # The text of the header starts after ten bytes; the last two of them are its length.
    if begins is None or int.from_bytes(begins[1], "little") != begins.end() - 10:
        raise WireError("the numbers should be a vector of float64 in version 1.0 of NumPy's format.")
    size, left = 8 * int(begins[2]), len(data) - begins.end()
    if size != left:
        raise WireError(f"the numbers should be {size} bytes long, they are {left}.")
    return np.frombuffer(data, dtype="<f8", offset=begins.end()).astype(np.float64)
