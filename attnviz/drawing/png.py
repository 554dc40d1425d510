"""PNG files straight from palette indices, eight bits a pixel: no image library.

Rows of indices are stored as they are (PNG filter 0, "None"): cells repeat within a row and from
row to row, and deflate finds both by itself. Deflate is Intel's ISA-L, several times faster than
zlib and no larger; zlib where it is not installed. ``python -m benchmarks export`` measures the
ways to pack.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.provenance import current

Pixels = NDArray[np.uint8]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PALETTE_TYPE, _COLOR_TYPE = 3, 2
_FILTER = 0
_LEVEL = 1
_INCHES_A_METRE = 39.3700787


def _fastest() -> tuple[str, Callable[[Any, int], bytes]]:
    """Give the fastest deflate that is installed: its name, and what compresses data at a level."""
    try:
        from isal import __version__, isal_zlib
    except ImportError:
        return f"zlib {zlib.ZLIB_RUNTIME_VERSION}", zlib.compress
    return f"isal {__version__}", isal_zlib.compress


DEFLATE, compress = _fastest()
"""What packs the pixels: its name and version, which fix the bytes, and its function."""


def encode(pixels: Pixels, palette: Pixels | None, dpi: float) -> bytes:
    """Encode ``pixels`` uint8 [height, width] in a ``palette`` uint8 [n, 3] as a PNG.

    Without a palette the pixels are red, green and blue, uint8 [height, width, 3].
    """
    height, width = pixels.shape[:2]
    values = pixels.reshape(height, -1)
    rows = np.empty((height, values.shape[1] + 1), np.uint8)
    rows[:, 0] = _FILTER
    rows[:, 1:] = values
    kind = _COLOR_TYPE if palette is None else _PALETTE_TYPE
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    density = round(dpi * _INCHES_A_METRE)
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", head),
            b"" if palette is None else _chunk(b"PLTE", palette.tobytes()),
            _chunk(b"pHYs", struct.pack(">IIB", density, density, 1)),
            *(_text(keyword, value) for keyword, value in said().items()),
            _chunk(b"IDAT", compress(rows.data, _LEVEL)),
            _chunk(b"IEND", b""),
        )
    )


def said() -> dict[str, str]:
    """Give what a PNG says of what made it, by the keywords of its specification; often nothing."""
    made = current()
    if made is None:
        return {}
    model = " ".join(part for part in (made.model, made.hash) if part)
    parts = {
        "Software": f"attnviz {made.version}",
        "Source": model,
        "Comment": made.command,
        "Creation Time": made.date,
    }
    return {keyword: value for keyword, value in parts.items() if value}


def _text(keyword: str, value: str) -> bytes:
    """Return a text beside the pixels: ``tEXt`` is Latin-1, ``iTXt`` UTF-8."""
    try:
        return _chunk(b"tEXt", keyword.encode("latin-1") + b"\0" + value.encode("latin-1"))
    except UnicodeEncodeError:
        return _chunk(b"iTXt", keyword.encode("latin-1") + bytes(5) + value.encode("utf-8"))


def _chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(data, zlib.crc32(name))
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)
