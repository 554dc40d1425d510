"""Numbers of a network as text: 16 bits each, or 8 with a scale for every row."""

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


def rounded(values: Array, bits: int) -> Array:
    """What is left of values once they are stored.

    Args:
        values: of any shape.
        bits: 16 (half precision), or 8: matrices as whole numbers from -127 to 127 times a scale
            for each row, other arrays still in 16.
    """
    if bits == 8 and values.ndim == 2:
        codes, scales = _codes(values)
        return codes * scales[:, None]
    return values.astype(np.float16).astype(np.float32)


def pack(tensors: Mapping[str, Array], bits: int) -> tuple[list[dict[str, Any]], str]:
    """Where each array lies, and all of them as base64 of a zlib stream.

    The stream has all codes of 8 bits, their scales in float32, and the low and the high bytes of
    all halves: bytes of one sort beside each other take less room.

    Args:
        tensors: name -> array.
        bits: see :func:`rounded`.
    """
    entries: list[dict[str, Any]] = []
    codes, scales, halves = [b""], [b""], [b""]
    for name, values in tensors.items():
        eight = bits == 8 and values.ndim == 2
        entries.append({"name": name, "shape": list(values.shape), "bits": 8 if eight else 16})
        if eight:
            own, factors = _codes(values)
            codes.append(own.tobytes())
            scales.append(factors.astype("<f4").tobytes())
        else:
            halves.append(values.astype("<f2").tobytes())
    whole = np.frombuffer(b"".join(halves), np.uint8).reshape(-1, 2)
    parts = (*codes, *scales, whole[:, 0].tobytes(), whole[:, 1].tobytes())
    return entries, base64.b64encode(zlib.compress(b"".join(parts), _LEVEL)).decode("ascii")


def _codes(values: Array) -> tuple[NDArray[np.int8], Array]:
    """Whole numbers from -127 to 127, and the scale of each row."""
    top = np.abs(values).max(axis=1)
    scales = np.where(top > 0, top / _STEPS, 1.0).astype(np.float32)
    return np.rint(values / scales[:, None]).astype(np.int8), scales
