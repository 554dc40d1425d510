"""A treebank's relations as a figure: best head against best offset, and the grid of heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Polygon
from matplotlib.path import Path

from attnviz.core.result import Interval
from attnviz.drawing.canvas import picture, rendered
from attnviz.drawing.charts import GREY, INK, MARGIN, HeadedFigure, name_bars, share_bars
from attnviz.drawing.console import COLOR, FULL, Tile
from attnviz.drawing.grid_figure import draw_grid, size
from attnviz.drawing.labels import model_name, shorten, visible
from attnviz.features.syntax.arcs import (
    SHORT,
    DrawnArc,
    WordLine,
    drawn_arcs,
    levels,
    line_up,
    lines,
)
from attnviz.features.syntax.description import measured, strongest
from attnviz.features.syntax.result import Parse, Relation, Syntax

_OFFSET = "#b0b0b0"
_LISTED = 20
_BAR, _BARS = 0.24, 3.2


@picture
def draw(report: Syntax, dpi: float) -> Figure:
    """Return the figure: bars of the most frequent relations, and the grid beside them."""
    grid_wide, grid_high = size(report.layout)
    listed = [r for r in report.relations if r.best and r.best.accuracy.value is not None]
    listed = listed[:_LISTED]
    names = [_name(report, relation) for relation in listed]
    title = f"{model_name(report.source)}: heads that follow grammar"
    sheet = HeadedFigure(title, [measured(report)], dpi, names)
    label = sheet.ruler.widest(names, 7) + 0.1
    width = 2 * MARGIN + label + _BARS + 0.6 + grid_wide
    top = sheet.begin(width) + 0.45
    body = max(len(listed) * _BAR, grid_high)
    figure = sheet.figure(top + body + 0.5 + MARGIN)
    bars = sheet.axes(MARGIN + label, top, _BARS, max(len(listed), 1) * _BAR)
    _bars(bars, listed, [sheet.text(name) for name in names])
    x = MARGIN + label + _BARS + 0.6
    tiles = {
        head: Tile(visible(role.relation), (role.margin.value or 0.0) / FULL)
        for head, role in strongest(report).items()
    }
    draw_grid(
        sheet.axes(x, top, grid_wide, grid_high),
        report.layout,
        tiles,
        f"head; the relation found ten points above its offset, full colour at {100 * FULL:.0f}",
    )
    return figure


def _name(report: Syntax, relation: Relation) -> str:
    assert relation.best is not None
    head = report.layout.name(relation.best.head)
    return f"{shorten(visible(relation.name), 16)}  {head} {SHORT[relation.best.direction]}"


def _bars(axes: Axes, listed: list[Relation], names: list[str]) -> None:
    for number, best in enumerate(relation.best for relation in listed):
        assert best is not None
        bars = [(best.accuracy, COLOR), (Interval(best.offset_accuracy), _OFFSET)]
        share_bars(axes, bars, (number - 0.17, number + 0.17), 0.34)
    axes.set_xlim(0, 100)
    label = "accuracy in % with 95 % interval (green: best head, grey: best offset)"
    name_bars(axes, names, label)


_MARGIN, _GAP, _SIDE = 0.2, 0.14, 0.05
_WORD, _LABEL = 10.0, 7.0
_FOOT, _STEP = 0.16, 0.19
"""How far from the words' line the first level is, and each level from the last one."""
_CORNER, _ARROW = 0.07, (0.028, 0.055)
_BETWEEN = 0.24
_DPI = 200.0
_LEAST = 6.2  # width of a figure, for the lines of text
_COLORS = {None: INK, True: "#1b7837", False: "#c51b7d"}
"""Green is right, as in the bars of accuracy; ends of Brewer's PiYG, safe for the colour-blind."""
_DASHES: dict[bool | None, object] = {None: "solid", True: "solid", False: (0, (3.0, 1.8))}


@dataclass(frozen=True, slots=True)
class _Block:
    """A sentence in inches."""

    name: str  # of the sentence; ``words`` its words
    words: tuple[str, ...]
    line: WordLine  # where they stand
    # above and below, with their levels
    arcs: tuple[list[tuple[DrawnArc, int]], list[tuple[DrawnArc, int]]]
    up: float  # height above the words' middle; ``down`` below it
    down: float


def draw_arcs(report: Syntax, format: str = "png") -> Any:
    """Return the picture, in ``png``, ``svg`` or ``pdf``."""
    return rendered(lambda: build(report, _DPI), format, _DPI)


def build(report: Syntax, dpi: float) -> Figure:
    """Give the figure: every sentence under the last one, and above them which heads are shown."""
    title = f"{model_name(report.source)}: where heads point"
    below = list(lines(report))
    words = [visible(word) for parse in report.shown for word in parse.words]
    names = [visible(parse.name) for parse in report.shown]
    labels = [arc.label for parse in report.shown for side in drawn_arcs(parse) for arc in side]
    sheet = HeadedFigure(title, below, dpi, [*words, *names, *labels], _MARGIN)
    blocks = [_block(parse, sheet) for parse in report.shown]
    width = max([_LEAST, *(block.line.width for block in blocks)]) + 2 * _MARGIN
    top = sheet.begin(width) + 0.18
    high = (
        top + sum(block.up + block.down + 0.16 + _BETWEEN for block in blocks) - _BETWEEN + _MARGIN
    )
    figure = sheet.figure(high)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, width)
    axes.set_ylim(high, 0)
    axes.set_axis_off()
    y = top
    for block in blocks:
        axes.text(_MARGIN, y + 0.1, sheet.text(block.name), fontsize=6, va="center", color=GREY,
                  family=sheet.families)  # fmt: skip
        y += block.up + 0.16
        _draw(axes, block, y, sheet.families)
        y += block.down + _BETWEEN
    return figure


def _block(parse: Parse, sheet: HeadedFigure) -> _Block:
    """Measure a sentence."""
    ruler, words = sheet.ruler, tuple(sheet.text(visible(word)) for word in parse.words)
    above, below = drawn_arcs(parse)
    room = [(arc, ruler.width(arc.label, _LABEL) + 2 * _CORNER + 0.1) for arc in (*above, *below)]
    widths = [max(ruler.width(word, _WORD), 0.06) for word in words]
    line = line_up(widths, _GAP, _SIDE, room)
    sides = [list(zip(arcs, levels(arcs), strict=True)) for arcs in (above, below)]
    heights = [max((level for _, level in side), default=0) for side in sides]
    rise, drop = (_FOOT + _STEP * height + 0.06 for height in heights)
    return _Block(visible(parse.name), words, line, (sides[0], sides[1]), rise, drop)


def _draw(axes: Axes, block: _Block, y: float, families: Sequence[str]) -> None:
    """Write a sentence with the middle of its words at ``y``, from the left margin on."""
    for number, word in enumerate(block.words):
        axes.text(_MARGIN + block.line.middle(number), y + 0.045, word, fontsize=_WORD,
                  ha="center", va="baseline", color=INK, family=list(families))  # fmt: skip
    for sign, side in zip((-1, 1), block.arcs, strict=True):
        # right arcs over wrong ones where they share a way
        for arc, level in sorted(side, key=lambda pair: (pair[0].right is True, -pair[1])):
            _arc(axes, block.line, arc, y + sign * 0.1, sign * (_STEP * level + 0.06), families)


def _arc(
    axes: Axes, line: WordLine, arc: DrawnArc, foot: float, rise: float, families: Sequence[str]
) -> None:
    """One arc with its label and its arrow, ``rise`` from its foot."""
    start, arrow = (_MARGIN + end for end in line.ends(arc))
    left, right = sorted((start, arrow))
    sign = 1.0 if rise > 0 else -1.0
    flat, turn = foot + rise, foot + rise - sign * _CORNER
    points = [
        (left, foot), (left, turn), (left, flat), (left + _CORNER, flat),
        (right - _CORNER, flat), (right, flat), (right, turn), (right, foot),
    ]  # fmt: skip
    codes = [Path.MOVETO, Path.LINETO, Path.CURVE3, Path.CURVE3, Path.LINETO, Path.CURVE3]
    path = Path(points, [*codes, Path.CURVE3, Path.LINETO])
    color = _COLORS[arc.right]
    style = {"linewidth": 0.9, "linestyle": _DASHES[arc.right], "edgecolor": color}
    axes.add_patch(PathPatch(path, facecolor="none", capstyle="butt", zorder=2, **style))
    half, deep = _ARROW
    tip = [(arrow, foot), (arrow - half, foot + sign * deep), (arrow + half, foot + sign * deep)]
    axes.add_patch(Polygon(tip, closed=True, facecolor=color, linewidth=0, zorder=3))
    axes.text((left + right) / 2, flat, arc.label, fontsize=_LABEL, ha="center",
              va="center_baseline", color=color, family=list(families), zorder=4,
              bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})  # fmt: skip
