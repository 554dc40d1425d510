"""Curves on logarithmic axes in the terminal, drawn with braille dots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from attnviz.drawing import braille
from attnviz.features.shapes.table import Paint, cells_wide, count

_ASCII_MARKS = "*o+x"
HEIGHT = 16


class Curve(NamedTuple):
    """A named line through points with positive coordinates; ``tone`` colours it."""

    name: str
    tone: str
    points: Sequence[tuple[float, float]]


class Mark(NamedTuple):
    """A point worth seeing, with what to write about it below the plot."""

    x: float
    y: float
    text: str


def _label(value: float) -> str:
    return count(value) if value >= 100 else f"{value:.3g}"


def plot(
    curves: Sequence[Curve],
    width: int,
    paint: Paint,
    *,
    x_name: str,
    y_name: str,
    mark: Mark | None = None,
    y_log: bool = True,
) -> list[str]:
    """Plot curves over a logarithmic axis in ``width`` columns: legend, axes, mark's sentence."""
    points = [p for curve in curves for p in curve.points if p[0] > 0 and (p[1] > 0 or not y_log)]
    if not points:
        return []
    scale = math.log10 if y_log else float
    xs, ys = [math.log10(x) for x, _ in points], [scale(y) for _, y in points]
    low_x, span_x = min(xs), max(xs) - min(xs) or 1.0
    low_y, span_y = min(ys), max(ys) - min(ys) or 1.0
    gutter = 10
    wide, high = max(20, min(width - gutter - 2, 100)), HEIGHT
    canvas = _Canvas(wide, high)

    def place(x: float, y: float) -> tuple[float, float]:
        """Dots from the left and from the top; a cell on each side stays free."""
        across = 2 + (math.log10(x) - low_x) / span_x * (2 * wide - 5)
        return across, 4 + (1 - (scale(y) - low_y) / span_y) * (4 * high - 9)

    for number, curve in enumerate(curves):
        dots = [place(x, y) for x, y in curve.points if x > 0 and (y > 0 or not y_log)]
        for first, second in zip(dots, dots[1:] or dots, strict=False):
            canvas.line(first, second, number)
    if mark is not None and low_x <= math.log10(mark.x) <= low_x + span_x:
        canvas.mark(*place(mark.x, mark.y))
    legend = "   ".join(
        paint(f"{_ASCII_MARKS[i % 4] if paint.ascii_only else '━━'} {c.name}", c.tone)
        for i, c in enumerate(curves)
    )
    tones = [curve.tone for curve in curves]
    lines = [f"{' ' * gutter}  {legend}"]
    top, bottom = (10 ** (low_y + span_y), 10**low_y) if y_log else (low_y + span_y, low_y)
    for row, text in enumerate(canvas.rows(paint, tones)):
        side = {0: y_name, 1: _label(top), high - 2: _label(bottom)}.get(row, "")
        lines.append(f"{side[:gutter]:>{gutter}} {paint('│', 'dim')}{text}")
    lines.append(" " * (gutter + 1) + paint("└" + "─" * wide, "dim"))
    left, right = f"{10**low_x:,.0f}", f"{10 ** (low_x + span_x):,.0f}"
    middle = x_name.center(wide - 2 - cells_wide(left) - cells_wide(right))
    lines.append(" " * (gutter + 3) + left + paint(middle, "dim") + right)
    if mark is not None:
        lines += ["", paint("◆ ", "strong") + paint(mark.text)]
    return lines


class _Canvas:
    """Cells of 2 by 4 dots, each remembering which curve drew in it last."""

    def __init__(self, wide: int, high: int) -> None:
        self.wide, self.high = wide, high
        self.bits = [[0] * wide for _ in range(high)]
        self.owner = [[-1] * wide for _ in range(high)]
        self.marked: tuple[int, int] | None = None

    def dot(self, x: float, y: float, owner: int) -> None:
        column, row = round(x), round(y)
        self.bits[row // 4][column // 2] |= braille.bit(row, column)
        self.owner[row // 4][column // 2] = owner

    def line(self, first: tuple[float, float], second: tuple[float, float], owner: int) -> None:
        steps = int(max(abs(second[0] - first[0]), abs(second[1] - first[1]), 1))
        for i in range(steps + 1):
            part = i / steps
            x = first[0] + (second[0] - first[0]) * part
            self.dot(x, first[1] + (second[1] - first[1]) * part, owner)

    def mark(self, x: float, y: float) -> None:
        row, column = round(y) // 4, round(x) // 2
        self.marked = (min(max(row, 0), self.high - 1), min(max(column, 0), self.wide - 1))

    def rows(self, paint: Paint, tones: Sequence[str]) -> list[str]:
        lines = []
        for y, (bits, owners) in enumerate(zip(self.bits, self.owner, strict=True)):
            line = ""
            for x, (bit, owner) in enumerate(zip(bits, owners, strict=True)):
                if (y, x) == self.marked:
                    line += paint("◆", "strong")
                elif not bit:
                    line += " "
                else:
                    sign = _ASCII_MARKS[owner % 4] if paint.ascii_only else braille.character(bit)
                    line += paint(sign, tones[owner])
            lines.append(line.rstrip(" "))
        return lines
