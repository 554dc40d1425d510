"""Numbers of a network as text: 16 bits each, or 8 with a scale for every 64 of a row."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
_LEVEL = 9
_STEPS = 127
_BLOCK = 64
"""Numbers that share a scale, where rows are cut up without a rest; else a whole row does."""


def rounded(values: Array, bits: int) -> Array:
    """What is left of values once they are stored."""
    if bits == 8 and values.ndim == 2:
        codes, scales = _codes(values)
        return (codes * scales[:, None]).reshape(values.shape)
    return values.astype(np.float16).astype(np.float32)


def pack(tensors: Mapping[str, Array], bits: int) -> tuple[list[dict[str, Any]], str]:
    """Where each array lies, and all of them as base64 of a zlib stream.

    The stream has all codes of 8 bits, and the low and the high bytes of all halves, first those of
    scales: bytes of one sort beside each other take less room.
    """
    entries: list[dict[str, Any]] = []
    codes, scales, halves = [b""], [b""], [b""]
    for name, values in tensors.items():
        eight = bits == 8 and values.ndim == 2
        entries.append({"name": name, "shape": list(values.shape), "bits": 8 if eight else 16})
        if eight:
            own, factors = _codes(values)
            codes.append(own.tobytes())
            scales.append(factors.astype("<f2").tobytes())
        else:
            halves.append(values.astype("<f2").tobytes())
    whole = np.frombuffer(b"".join((*scales, *halves)), np.uint8).reshape(-1, 2)
    parts = (*codes, whole[:, 0].tobytes(), whole[:, 1].tobytes())
    return entries, base64.b64encode(zlib.compress(b"".join(parts), _LEVEL)).decode("ascii")


def _codes(values: Array) -> tuple[NDArray[np.int8], Array]:
    """Whole numbers from -127 to 127, [blocks, numbers], and the scale of each, a half."""
    across = values.shape[1]
    blocks = values.reshape(-1, across if across % _BLOCK else _BLOCK)
    scales = (np.abs(blocks).max(axis=1) / _STEPS).astype(np.float16).astype(np.float32)
    scales[scales == 0] = 1.0
    codes = np.rint(blocks / scales[:, None]).clip(-_STEPS, _STEPS)
    return codes.astype(np.int8), scales
