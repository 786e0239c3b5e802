"""Centroids on a page: small pictures, points of the plane, or rows of numbers."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedkmeans._utils.typing import FloatArray, IntArray

# Rows of at least so many numbers are pictures, if the number is a square.
_LEAST_PIXELS = 64
_MOST_COLUMNS = 50
# Few shades make small files.
_SHADES = 64


def view_of(n_columns: int) -> str:
    """Return how to show centroids of so many columns: "images", "plane", "table" or "none"."""
    if n_columns >= _LEAST_PIXELS and math.isqrt(n_columns) ** 2 == n_columns:
        return "images"
    if n_columns == 2:
        return "plane"
    return "table" if n_columns <= _MOST_COLUMNS else "none"


def matched(centroids: FloatArray, reference: FloatArray) -> FloatArray:
    """Return the centroids in the order of the nearest centroids of the reference, one to one.

    Parameters
    ----------
    centroids, reference : ndarray of shape (k, m)
        If the shapes differ, the order is not changed.
    """
    if centroids.shape != reference.shape:
        return centroids
    a, b = np.nan_to_num(reference.astype(np.float64)), np.nan_to_num(centroids.astype(np.float64))
    distances = (a**2).sum(axis=1)[:, None] - 2 * a @ b.T + (b**2).sum(axis=1)
    order: IntArray = linear_sum_assignment(distances)[1]
    return centroids[order]


def ends(found: Sequence[FloatArray]) -> tuple[float, float]:
    """Return least and largest value of all centroids; first the one nearer to most values, drawn white."""
    values = np.concatenate([centroids.ravel() for centroids in found]).astype(np.float64)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    return (low, high) if np.nanmedian(values) <= (low + high) / 2 else (high, low)


def strip(centroids: FloatArray, paper: float, ink: float) -> str:
    """Return square pictures below each other, as the data URI of a PNG file.

    Parameters
    ----------
    centroids : ndarray of shape (k, m)
        One picture per row.
    paper, ink : float
        Values drawn white and black.
    """
    side = math.isqrt(centroids.shape[1])
    depth = (np.nan_to_num(centroids, nan=paper).astype(np.float64) - paper) / ((ink - paper) or 1.0)
    steps = np.rint((1 - np.clip(depth, 0, 1)) * (_SHADES - 1))
    pixels = np.rint(steps * (255 / (_SHADES - 1))).astype(np.uint8)
    return "data:image/png;base64," + base64.b64encode(png(pixels.reshape(-1, side))).decode("ascii")


def png(pixels: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> bytes:
    """Return a grey picture, shape (height, width), as PNG."""
    height, width = pixels.shape
    # Each line begins with its filter: none.
    lines = np.hstack([np.zeros((height, 1), np.uint8), pixels]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(lines, 9)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
