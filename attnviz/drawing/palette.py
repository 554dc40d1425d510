"""Colours: the sequential palettes for weights, and mixing; roles have theirs in their table.

Everything here is plain Python on hex strings, so that the terminal and the figures share one
source without either importing the other's libraries.

``viridis`` and ``magma`` (van der Walt & Smith 2015) and ``cividis`` (Nuñez et al. 2018) are
sampled at 17 points; ``blues`` and ``greys`` run from light to dark in even steps of lightness,
for print.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from attnviz.errors import UsageError

RGB = tuple[int, int, int]


NO_ROLE = "·"  # what stands in the cell of a head without a role

FEW = "?"  # what follows the code of a role that rests on few rows

DEFAULT_PALETTE = "viridis"

SPAN_COLORS = (
    "#0072b2", "#c4500a", "#00805c", "#a8487f", "#7a6200", "#2f7d9e", "#7f52ae", "#707070",
)  # fmt: skip
"""Of named parts of a text, in their order; each stands out from white and from black."""

_SEQUENTIAL: Mapping[str, str] = {
    "viridis": "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c 1f9f88 27ad81 "
    "3dbc74 5cc863 81d34d aadc32 d5e21a fde725",
    "magma": "000004 0a0822 1d1147 36106b 51127c 6a1c81 832681 9c2e7f b73779 cf4070 e55064 "
    "f4695c fb8761 fea571 fec287 fde0a1 fcfdbf",
    "cividis": "00224e 002e6a 1a386f 32436d 434e6c 535a6d 61656f 6f7073 7d7c78 8b8778 9a9376 "
    "aaa073 bbad6d ccba64 ddc858 efd748 fee838",
    "blues": "f8fcff dbf1ff bee4fe 9fd7ff 82cafe 61bbfe 46adf9 299df1 118ee5 0b7fd4 0170c4 0262b2 "
    "07559f 02478e 023a7c 022e6b 032257",
    "greys": "ffffff f0f0f0 e2e2e2 d4d4d4 c6c6c6 b8b8b8 aaaaaa 9d9d9d 909090 838383 767676 6a6a6a "
    "5e5e5e 525252 474747 3c3c3c 313131",
}

PALETTES: tuple[str, ...] = tuple(_SEQUENTIAL)  # the names of the sequential palettes

SIGNED = "signed"  # the palette of maps with signs: less than nothing, nothing, more
_DIVERGING = "b35806 d48a45 ecc79d f7f7f7 a9c6de 6296c6 2166ac"
"""PuOr and RdBu of Brewer 2003, orange below and blue above, safe for the colour-blind."""


def anchors(palette: str) -> tuple[str, ...]:
    """Return the hex colours a sequential palette passes through, from weight 0 to the largest."""
    if palette not in _SEQUENTIAL and palette != SIGNED:
        raise UsageError(f"unknown palette {palette!r}: choose one of {', '.join(PALETTES)}")
    colors = _DIVERGING if palette == SIGNED else _SEQUENTIAL[palette]
    return tuple("#" + color for color in colors.split())


def masked_color(palette: str) -> str:
    """Return the colour of cells that are masked: light as the paper, and not on the palette."""
    return "#ececec" if dark(palette) else "#f3e3c9"


UNSELECTED = "#e3b7d8"
"""The colour of keys that an indexer did not select: on no palette."""


def masked_note(palette: str, *, unselected: bool = False) -> str:
    """Return what that colour means, and that of what an indexer did not select."""
    note = f"{'grey' if dark(palette) else 'sand'}: keys that the query may not attend to"
    return f"{note}; pink: those that the indexer did not select" if unselected else note


def dark(palette: str) -> bool:
    """Whether a weight of zero is dark."""
    return palette != SIGNED and luminance(anchors(palette)[0]) < 0.5


@lru_cache(maxsize=16)
def ramp(palette: str, steps: int = 256) -> tuple[str, ...]:
    """Return ``steps`` hex colours from one end of a sequential palette to the other."""
    points = anchors(palette)
    out = []
    for step in range(steps):
        position = step / max(steps - 1, 1) * (len(points) - 1)
        lower = min(int(position), len(points) - 2)
        out.append(mix(points[lower], points[lower + 1], position - lower))
    return tuple(out)


def rgb(color: str) -> RGB:
    """Return a hex colour as three numbers in 0..255."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def mix(color: str, target: str, share: float) -> str:
    """``color`` with a ``share`` (0..1) of ``target`` mixed in."""
    share = min(max(share, 0.0), 1.0)
    parts = (round(a + (b - a) * share) for a, b in zip(rgb(color), rgb(target), strict=True))
    return "#" + "".join(f"{part:02x}" for part in parts)


def luminance(color: str) -> float:
    """Relative luminance, 0 (black) to 1 (white), as WCAG 2 defines it."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (part / 255 for part in rgb(color))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@lru_cache(maxsize=1024)
def ink(color: str) -> str:
    """Black or white, whichever reads better on ``color`` (contrast of at least 4.5)."""
    light = luminance(color)
    return "#000000" if (light + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"
