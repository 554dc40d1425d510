"""PNG files straight from palette indices: eight bits a pixel, no image library.

Large cells compress best as they are: deflate finds the row above by itself. Where cells are
small, storing each row as its difference from the row above (PNG filter 2, "Up") saves a fifth;
docs/export.md has the measurements. Deflate is Intel's ``isal`` where it is installed, else zlib.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PALETTE_TYPE = 3
_NONE, _UP = 0, 2
_ISAL_LEVEL, _ZLIB_LEVEL = 1, 1
_INCHES_A_METRE = 39.3700787


def _deflate() -> tuple[str, Callable[[Pixels], bytes]]:
    """The name of the fastest deflate that is installed, and the function."""
    try:
        isal = import_module("isal.isal_zlib")
    except ImportError:
        return "zlib", lambda data: zlib.compress(data, _ZLIB_LEVEL)
    return "isal", lambda data: bytes(isal.compress(data, _ISAL_LEVEL))


DEFLATE, _compress = _deflate()
"""Which deflate compresses: ``isal`` or ``zlib``."""


def encode(pixels: Pixels, palette: Pixels, dpi: float, *, up: bool = False) -> bytes:
    """A palette PNG.

    Args:
        pixels: uint8 [height, width], indices into ``palette``.
        palette: uint8 [n, 3], red, green and blue of up to 256 colours.
        dpi: pixels an inch, for programs that print.
        up: store rows as differences from the row above.
    """
    height, width = pixels.shape
    rows = np.empty((height, width + 1), np.uint8)
    rows[:, 0] = _UP if up else _NONE
    if up:
        rows[0, 1:] = pixels[0]
        np.subtract(pixels[1:], pixels[:-1], out=rows[1:, 1:])
    else:
        rows[:, 1:] = pixels
    head = struct.pack(">IIBBBBB", width, height, 8, _PALETTE_TYPE, 0, 0, 0)
    density = round(dpi * _INCHES_A_METRE)
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", head),
            _chunk(b"PLTE", palette.tobytes()),
            _chunk(b"pHYs", struct.pack(">IIB", density, density, 1)),
            _chunk(b"IDAT", _compress(rows)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(data, zlib.crc32(name))
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)
