"""Attention maps in few bytes: quantized weights, triangles where a mask is causal, deflated.

A weight w of a head whose largest weight is m becomes the whole number q = round(n sqrt(w / m)),
with n = 255 or 65535, and is read back as m (q / n)^2. The square root spends the steps where most
weights are: with 8 bits a weight of 1 is off by at most 0.004, one of 0.005 by at most 0.0003, and
zero stays zero.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.errors import InputError, UsageError

BITS = (8, 16)
"""How many bits a weight can take."""

_SUM_ERROR = 2e-3
_LEVEL = 6
_BASE64 = 4 / 3


@dataclass(frozen=True, slots=True)
class Packed:
    """The maps of one layer."""

    text: str  # base64 of the deflated codes; 16-bit codes as all high bytes, then all low bytes
    tops: tuple[float, ...]  # the largest weight of each head
    # for each head, whether every row sums to 1 (or has no weight at all), so that a page can say
    # so, whatever the rounding of single weights
    whole: tuple[bool, ...]
    causal: bool  # whether only keys up to the query's own position are there, row by row
    error: float  # the largest difference between a weight and what is read back


def pack(weights: NDArray[np.floating[Any]], bits: int = 8) -> Packed:
    """Pack the maps [H, T, S] of one layer."""
    if bits not in BITS:
        raise UsageError(f"weights can have 8 or 16 bits, not {bits}")
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise InputError(
            "an attention map holds NaN, infinite or negative weights and cannot be shown: "
            "compute it in float32"
        )
    causal = is_causal(weights)
    exact = weights.astype(np.float64)
    tops = exact.max(axis=(1, 2))
    sums = exact.sum(axis=2)
    whole = ((np.abs(sums - 1) < _SUM_ERROR) | (sums == 0)).all(axis=1)
    steps = (1 << bits) - 1
    shares = exact / np.where(tops > 0, tops, 1.0)[:, None, None]
    codes = np.rint(np.sqrt(shares) * steps).astype(np.uint16)
    error = float(np.abs(tops[:, None, None] * (codes / steps) ** 2 - exact).max())
    if causal:
        rows, columns = np.tril_indices(weights.shape[1])
        codes = codes[:, rows, columns]
    if bits == 8:
        raw = codes.astype(np.uint8).tobytes()
    else:
        raw = (codes >> 8).astype(np.uint8).tobytes() + (codes & 255).astype(np.uint8).tobytes()
    return Packed(deflated(raw), tuple(map(float, tops)), tuple(map(bool, whole)), causal, error)


def deflated(raw: bytes) -> str:
    """Bytes as a page holds them: deflated, in base64."""
    return base64.b64encode(zlib.compress(raw, _LEVEL)).decode("ascii")


def is_causal(weights: NDArray[np.floating[Any]]) -> bool:
    """Whether no head [H, T, T] gives any weight to a later key."""
    _, rows, columns = weights.shape
    return rows == columns > 1 and not np.triu(weights.max(axis=0), 1).any()


def packed_bytes(maps: Sequence[NDArray[np.floating[Any]]], bits: int = 8) -> int:
    """About how many bytes the maps [H, T, S] of some layers take in a page, at most."""
    cells = 0
    for weights in maps:
        heads, rows, columns = weights.shape
        cells += heads * (rows * (rows + 1) // 2 if is_causal(weights) else rows * columns)
    return int(cells * (bits // 8) * _BASE64)


def least_bytes(rows: int, columns: int, bits: int = 8) -> int:
    """What :func:`packed_bytes` says at least of one head's map, as long as that is not known."""
    cells = rows * (rows + 1) // 2 if rows == columns else rows * columns
    return int(cells * (bits // 8) * _BASE64)


def rounded(value: float | None) -> float | None:
    """A number as a page holds it; None for what is not known."""
    return None if value is None else float(f"{value:.5g}")
