"""Letters of our own for pictures where matplotlib, and so every other font, is not installed.

A character is a few strokes of a pen on a grid: of 12 units to the top of a capital, 9 to that of
an x, −4 to the foot of a p. Strokes are parted by spaces, points are two digits each, x and y;
``~`` before a point bends the line towards it, and ``o`` before two points rounds the box between
them. A single point is a dot.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Coverage = NDArray[np.uint8]
Points = NDArray[np.float64]

_X, _Y = "0123456789abcdef", "wxyz0123456789abcdefg"
_LOW, _SMALL, _TALL = 4, 9, 12  # levels below the line, the top of an x, and that of a capital
_LETTERS = """
a 7545~05~00~7073 18~2949~797670¦b 0d00 o0089¦c 78~69~09~00~6071¦d 8d80 o0089
e 0585~89~09~00~7081¦f 5d~2d2a20 0959¦g 898z~8w4w~2w1x o0089¦h 0d00 05~09~797570¦i 0900 0d
j 292z~2w0w 2d¦k 0d00 7903 2570¦l 0d02~0020¦m 0900 05~09~696560 65~69~c9c5c0
n 0900 05~09~797570¦o o0089¦p 090w o0089¦q 898w o0089¦r 0900 05~0949
s 68~5939~0907~05~6462~6030~1001¦t 2c23~2050 0959¦u 0904~00~7074 7970¦v 094089
w 09306990c9¦x 0970 7900¦y 0940 8940~2w0w¦z 09790070
A 005ca0 2484¦B 0646~8683~8040000c4c~7c79~7646¦C 9a~8c5c~0c06~0050~8092
D 000c3c~9c96~903000¦E 7c0c0070 0666¦F 7c0c00 0666¦G 9a~8c5c~0c06~0050~80929656
H 0c00 8c80 0686¦I 0c4c 2c20 0040¦J 5c53~5020~1001¦K 0c00 8c04 3780¦L 0c0070¦M 000c54aca0
N 000c808c¦O o00ac¦P 000c4c~8c89~864606¦Q o00ac 63az¦R 000c4c~8c89~864606 4680
S 8a~7c4c~0c09~07~8683~8040~1002¦T 0c8c 4c40¦U 0c04~00~80848c¦V 0c50ac¦W 0c306c90cc
X 0c80 8c00¦Y 0c468c 4640¦Z 0c8c0080
0 o007c¦1 0a3c30 0060¦2 0a~1c4c~7c79~760070¦3 0b~1c3c~6c69~6636~7673~7030~1001¦4 606c0484
5 6c0c07~1838~7874~7030~1001¦6 o0078 6b~5c4c~0c0504¦7 0c7c20¦8 o166c o0076¦9 o047c 7877~7030~2011
! 0c04 00¦" 0c09 3c39¦# 204c 608c 0494 18a8¦$ 8a~7b4b~0b09~06~8683~8141~1102 4d4z
% o093c o6093 8c10¦& 9029~1c4c~7c69~5715~0403~0040~8095¦' 0c09¦( 3d~0a05~003x¦) 0d~3a35~300x
* 3c36 0b67 076b¦+ 4941 0585¦, 110y¦- 0444¦. 00¦/ 0z5d¦: 00 07¦; 110y 17¦< 890581¦= 0787 0383
> 098501¦| 0d0x¦? 0a~0c3c~6c69~673634 30¦@ o3388 8884~8393~b3b6~bc6c~0c05~0y6y~8y9z
[ 3d0d0x3x¦\\ 0d5z¦] 0d3d3x0x¦^ 084c88¦_ 0y8y¦` 0d2b
{ 4d~2d2a28~2505~252220~2x4x¦} 0d~2d2a28~2545~252220~2x0x
~ 04~1745~7386¦× 0871 0178¦– 0474¦— 04c4¦… 00 40 80¦· 05¦° o084c¦± 4a44 0787 0181¦≤ 8b0783 0080
≥ 0b8703 0080¦→ 05b5 88b582¦← 05b5 380532¦↑ 4c4z 194c79¦↓ 4c4z 124z72¦− 0585¦“ 0a1c 0a 3a4c 3a
” 1c0a 1c 4c3a 4c¦‘ 0a1c 0a¦’ 1c0a 1c¦′ 1c09¦‖ 0d0x 4d4x¦√ 0525407dad¦Σ 8c0c460080
α 99~8040~0005~0949~8990¦β 0w0a~0d3d~6d6a~6737~8783~8040~1001¦γ 094089 404w¦Δ 005ca000
λ 1d80 4600¦π 0989 2920 6960¦σ o0089 4999¦ε 68~5939~0907~0535~0502~0030~5061¦∞ o0258 o52a8
∂ o0078 7477~7d3d~1d0c¦∅ o00ac 0zad¦Ø o00ac 0zad¦ø o0089 0089¦² 0c~0d2d~4d4b~4a0747
³ 0d4d2b~4b49~4727~1708¦₂ 01~0222~4240~4z0w4w¦↵ 8b8404 370431¦⇥ 05a5 78a572 b8b2¦✓ 05319b
✗ 0981 0189¦≈ 02~1543~7184 06~1947~7588¦≠ 0787 0383 1z7b¦▁ 0y9y 0z9z¦• 0525 1614¦‹ 480542
› 084502¦« 480542 985592¦» 084502 589552¦¡ 050x 09¦¿ 6z~6x3x~0x00~023335 39
ß 000a~0d3d~6d6a~6837~7773~7030¦æ 18~2939~696560 6535~05~00~6063 65c5~c9~69~60~b0c1
Æ 006ccc 6c60c0 66b6 2464¦œ o0069 65c5~c9~69~60~b0c1¦þ 0d0w o0089¦ı 0900¦ȷ 292z~2w0w
µ 090w 0904~00~7074 7970¦€ 9a~8c6c~1c16~1060~8092 0777 0565¦£ 7b~6c5c~2c2920 0070 0666
"""
_MARKS = (
    "\u0300 0d2b¦\u0301 0b2d¦\u0302 0b2d4b¦\u0303 0b~1d2c~3b4d¦\u0304 0c4c¦\u0306 0d~0b~4b4d"
    "¦\u0307 0d¦\u0308 0d 3d¦\u030a o0b2d¦\u030b 0b1d 3b4d¦\u030c 0d2b4d¦\u0327 1z~3z~3x0x"
)
"""Accents, which stand over the middle of a letter, or below it."""
_STROKES = {
    row[0]: row[2:].split() for part in (*_LETTERS.split("\n"), _MARKS) for row in part.split("¦")
    if row
}  # fmt: skip
_CAPITAL, _PEN, _BOLD = 0.73, 0.085, 0.14  # height of a capital, widths of the pen: ems
_DOT = 0.35  # how much higher than wide a dot is, in widths of the pen
_GAP, _SPACE = 0.14, 0.32  # between two letters, and two words, in ems
_WIDER = 1.06  # units across, in those upwards
_ABOVE = 230  # the canonical class of combining marks above
_BENDS = np.linspace(0, 1, 9)[1:, None]
_POINT, _LETTER = re.compile("(~?)(.)(.)"), re.compile("(?s).[\u0300-\u036f]*")


def missing(characters: Iterable[str]) -> frozenset[str]:
    """Those of some characters that there are no strokes for."""
    return frozenset(char for char in characters if not _STROKES.keys() >= set(_parts(char)))


def width(text: str, em: float, *, bold: bool = False) -> int:
    """Return the width of a line in pixels, ``em`` pixels to the em."""
    return int(ink(text, em, (1, 2), bold=bold).shape[1])


def ink(text: str, em: float, rows: tuple[int, int], *, bold: bool = False) -> Coverage:
    """Draw one line as coverage, uint8 [height, width]; ``rows`` are the baseline and the height.

    Stems and bars lie on whole pixels, so that small letters stay sharp.
    """
    pen = _pen(em, bold)
    gap = np.zeros((rows[1], max(round(_GAP * em - np.ceil(pen) + pen), 1)), np.uint8)
    space = np.zeros((rows[1], round(_SPACE * em) - gap.shape[1]), np.uint8)
    parts = [gap[:, :0]]
    for letter in _LETTER.findall("".join(map(_parts, text))):
        parts += [space if letter[0].isspace() else _drawn(letter, em, rows, bold), gap]
    return np.hstack(parts[:-1] or parts)


def _pen(em: float, bold: bool) -> float:
    """Return the width of the pen in pixels, at least one."""
    return max(em * (_BOLD if bold else _PEN), 1.0)


def _parts(char: str) -> str:
    """Spell a character: itself where it has strokes, else the letter and accents it is made of."""
    return char if char in _STROKES else unicodedata.normalize("NFD", char)


@lru_cache(maxsize=8192)
def _drawn(letter: str, em: float, rows: tuple[int, int], bold: bool) -> Coverage:
    """Draw a letter with its accents, uint8 [height, width], as wide as its ink."""
    pen = _pen(em, bold)
    unit = (em * _CAPITAL - pen) / _TALL
    levels = np.arange(-_LOW, len(_Y))
    top = np.where(levels < _LOW, 0, pen)  # the edge of a stroke there that meets whole pixels
    lower = np.rint(levels * unit + top) - top
    strokes = _placed(letter)
    units = max(points[:, 0].max() for points, _ in strokes)
    broad = (em * _CAPITAL - _pen(em, False)) / _TALL * _WIDER  # of a unit, whatever the pen
    across = np.rint(units * broad) / units if units else 0.0
    x = np.arange(np.ceil(units * across + pen)) + 0.5
    y = rows[0] - np.arange(rows[1]) - 0.5
    pixels = np.stack(np.meshgrid(x, y), -1)[:, :, None]
    covered = np.zeros(pixels.shape[:2])
    for points, bent in strokes:
        places = np.interp(points[:, 1], levels, lower)
        line = _line(np.column_stack([points[:, 0] * across, places]) + pen / 2, bent)
        if len(points) == 1:
            line += np.array([[0, 0], [0, _DOT * pen]])
        start, along = line[:-1], np.diff(line, axis=0)
        length = np.maximum((along**2).sum(-1), 1e-9)
        share = np.clip(((pixels - start) * along).sum(-1) / length, 0, 1)
        distance = np.linalg.norm(pixels - start - share[..., None] * along, axis=-1).min(-1)
        np.maximum(covered, np.clip((pen + 1) / 2 - distance, 0, 1), out=covered)
    ink = np.rint(255 * covered).astype(np.uint8)
    ink.flags.writeable = False
    return ink


def _placed(letter: str) -> list[tuple[Points, list[bool]]]:
    """Give a letter's strokes and accents: points [n, 2] from x = 0, and which of them bend."""
    base, accents = letter[0], letter[1:]
    if accents:
        base = {"i": "ı", "j": "ȷ"}.get(base, base)
    strokes = [_points(stroke) for stroke in _STROKES[base]]
    low, high = _ends(strokes)
    top = max(points[:, 1].max() for points, _ in strokes)
    for accent in accents:
        over = [_points(stroke) for stroke in _STROKES[accent]]
        lift = max(top - _SMALL, 0.0) if unicodedata.combining(accent) == _ABOVE else 0.0
        shift = np.array([(low + high - sum(_ends(over))) / 2, lift])
        strokes += [(points + shift, bent) for points, bent in over]
    first = np.array([_ends(strokes)[0], 0])
    return [(points - first, bent) for points, bent in strokes]


def _ends(strokes: list[tuple[Points, list[bool]]]) -> tuple[float, float]:
    """Return the least and the largest x."""
    across = np.concatenate([points[:, 0] for points, _ in strokes])
    return float(across.min()), float(across.max())


def _points(stroke: str) -> tuple[Points, list[bool]]:
    """Return the points of a stroke as it is written, and which of them bend it."""
    if stroke.startswith("o"):
        (left, bottom), corner = _points(stroke[1:])[0]
        start = (left, (bottom + corner[1]) / 2)
        box = [start, (left, bottom), (corner[0], bottom), corner, (left, corner[1]), start]
        return np.array(box), [False, True, True, True, True, False]
    pairs = _POINT.findall(stroke)
    points = [(_X.index(x), _Y.index(y) - _LOW) for _, x, y in pairs]
    return np.array(points, float), [bool(bend) for bend, _, _ in pairs]


def _line(points: Points, bent: list[bool]) -> Points:
    """Follow a stroke by short lines, [n, 2]."""
    line = [points[:1]]
    for number, point in enumerate(points[1:], 1):
        if not bent[number]:
            line.append(point[None])
            continue
        end = (point + points[number + 1]) / 2 if bent[number + 1] else points[number + 1]
        line.append(
            (1 - _BENDS) ** 2 * line[-1][-1] + 2 * _BENDS * (1 - _BENDS) * point + _BENDS**2 * end
        )
    return np.concatenate(line if len(points) > 1 else line * 2)
