"""The IDX format of the original MNIST files."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from fedkmeans._utils.typing import DataArray
from fedkmeans.data.wording import one_line
from fedkmeans.errors import DataError

_UNSIGNED_BYTE = 0x08


def find_idx(folder: Path, stem: str) -> Path | None:
    """Return the file `stem` in `folder`, gzipped or plain, or None if there is none."""
    candidates = (folder / f"{stem}.gz", folder / stem)
    return next((path for path in candidates if path.is_file()), None)


def read_idx(path: Path, n_dimensions: int) -> DataArray:
    """Read an IDX file of unsigned bytes and check its length against its header.

    Parameters
    ----------
    path : pathlib.Path
        Gzipped if the name ends in ``.gz``, else plain.
    n_dimensions : int
        Number of dimensions that the file must have: 3 for images, 1 for labels.

    Returns
    -------
    ndarray of uint8
        With the shape from the header; read-only.
    """
    content = _read_bytes(path)
    start = 4 + 4 * n_dimensions
    magic = bytes([0, 0, _UNSIGNED_BYTE, n_dimensions])
    if content[:4] != magic or len(content) < start:
        raise DataError(
            f"file {str(path)!r} is no IDX file of bytes in {n_dimensions} dimensions; fetch it again"
        )
    shape = struct.unpack(f">{n_dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise DataError(
            f"file {str(path)!r} announces {math.prod(shape)} values and holds {len(content) - start}: "
            "it is truncated or damaged; fetch it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _read_bytes(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"file {str(path)!r} cannot be read: {one_line(error)}; fetch it again") from error
