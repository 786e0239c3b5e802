"""A query or reply as the content of a Flower message: arrays and plain scalars, nothing pickled.

A message holds one array, all numbers of the record, and one record of texts: its header (see `wire`),
the exchange it belongs to and the name of the site. What is the same for all sites, usually the
numbers, Flower then stores and sends to the SuperLink once.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.lib import format as npy

from fedkmeans.errors import WireError
from fedkmeans.typing import ClientId, FloatArray
from fedkmeans.wire import Packed

# The action of our ClientApp, and the type of the messages that call it.
ACTION = "fedkmeans"
MESSAGE_TYPE = f"query.{ACTION}"
# What of a message is larger than this was not made by us.
MAX_BYTES = 2**30
MAX_TEXT = 2**22

_TEXTS, _ARRAYS, _NUMBERS = "fedkmeans", "arrays", "numbers"


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
    stream = BytesIO(data)
    try:
        if npy.read_magic(stream) != (1, 0):
            raise WireError("the numbers should be in version 1.0 of NumPy's format.")
        shape, _, dtype = npy.read_array_header_1_0(stream)
    except ValueError as error:
        raise WireError(f"the numbers are not in NumPy's format: {str(error)[:100]}.") from None
    start = stream.tell()
    if dtype != np.dtype("<f8") or len(shape) != 1 or 8 * shape[0] != len(data) - start:
        raise WireError(f"the numbers should be a vector of float64, all of it; they are {dtype} {shape}.")
    return np.frombuffer(data, dtype="<f8", offset=start).astype(np.float64)
