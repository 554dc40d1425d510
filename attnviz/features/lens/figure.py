"""A lens as a figure: states downwards, positions across, coloured by the top probability."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attnviz.drawing.canvas import rendered
from attnviz.drawing.fonts import Ruler, choose, spelled
from attnviz.drawing.heading import GREY, Heading
from attnviz.drawing.labels import shorten, visible
from attnviz.drawing.palette import ink, ramp
from attnviz.errors import UsageError
from attnviz.features.lens.result import Lens
from attnviz.features.lens.words import checked, closing, row_name, title

_CELL = (0.62, 0.21)
"""Width and height of a cell in inches."""
_ACROSS = 20
"""Positions beside each other; the others come below."""
_MARGIN, _GUTTER, _LABELS, _BETWEEN, _BAR = 0.2, 0.55, 0.2, 0.3, 0.45
_LONGEST = 9
"""Cells of a word."""


def draw(report: Lens, format: str = "png", dpi: float = 150) -> Any:
    """The picture, in ``png``, ``svg`` or ``pdf``.

    Raises:
        UsageError: heads were read, which is a table.
    """
    if not report.cells:
        raise UsageError(
            "what heads write is a table of words and has no picture; use {csv} or {json}",
            csv=True,
            json=True,
        )
    return rendered(lambda: build(report, dpi), format, dpi)


def build(report: Lens, dpi: float) -> Figure:
    """The figure: bands of positions, and the scale below."""
    states = report.states()
    count = len(report.positions)
    bands = [range(n, min(n + _ACROSS, count)) for n in range(0, count, _ACROSS)]
    words = [visible(cell.top[0].token) for cell in report.cells]
    tokens = [visible(text) for text in (*report.tokens, *report.next)]
    name, below = title(report), f"{checked(report)}. {closing(report)}"
    families, missing = choose([name, below, *words, *tokens])
    ruler = Ruler(families, dpi, bold=len(choose([name])[0]) == 1)
    wide = 2 * _MARGIN + _GUTTER + _CELL[0] * max(min(count, _ACROSS), 6)
    heading = Heading(ruler, spelled(name, missing), [spelled(below, missing)], wide, _MARGIN)
    follows = bool(report.next)
    band_high = len(states) * _CELL[1] + _LABELS * (2 if follows else 1)
    top = _MARGIN + heading.high + 0.25
    high = top + len(bands) * (band_high + _BETWEEN) + _BAR + _MARGIN
    figure = Figure(figsize=(wide, high))
    heading.draw(figure)
    for number, band in enumerate(bands):
        y = top + number * (band_high + _BETWEEN) + _LABELS
        w, h = len(band) * _CELL[0], len(states) * _CELL[1]
        axes = figure.add_axes(((_MARGIN + _GUTTER) / wide, 1 - (y + h) / high, w / wide, h / high))
        _band(axes, report, band, families, missing)
    _scale(figure, wide, high)
    return figure


def _band(
    axes: Axes, report: Lens, band: range, families: list[str], missing: frozenset[str]
) -> None:
    """Some positions: a word a cell, the token above, what does follow below."""
    colors, states = ramp("viridis"), report.states()

    def shown(text: str) -> str:
        return spelled(shorten(visible(text), _LONGEST), missing)

    for row, state in enumerate(states):
        for column, n in enumerate(band):
            best = state[n].top[0]
            paint = colors[round(best.probability * 255)]
            axes.add_patch(Rectangle((column, row), 1, 1, facecolor=paint, edgecolor="white",
                                     linewidth=0.5))  # fmt: skip
            axes.text(column + 0.5, row + 0.53, shown(best.token), ha="center", va="center",
                      fontsize=6, color=ink(paint), family=families)  # fmt: skip
    for column, n in enumerate(band):
        axes.text(column + 0.5, -0.25, shown(report.tokens[report.positions[n]]), ha="center",
                  va="bottom", fontsize=6.5, family=families)  # fmt: skip
        if report.next and report.next[n]:
            axes.text(column + 0.5, len(states) + 0.25, shown(report.next[n]), ha="center",
                      va="top", fontsize=6.5, color=GREY, family=families)  # fmt: skip
    axes.text(-0.15, -0.25, "at" if report.masked else "after", ha="right", va="bottom",
              fontsize=6.5, color=GREY)  # fmt: skip
    if report.next:
        axes.text(-0.15, len(states) + 0.25, "follows", ha="right", va="top", fontsize=6.5,
                  color=GREY)  # fmt: skip
    axes.set_xlim(0, len(band))
    axes.set_ylim(len(states), 0)
    axes.set_xticks([])
    names = [row_name(state[0].layer) for state in states]
    axes.set_yticks([n + 0.5 for n in range(len(states))], names)
    axes.tick_params(length=0, labelsize=7)
    axes.set_ylabel("layer", fontsize=7)
    for side in axes.spines.values():
        side.set_visible(False)


def _scale(figure: Figure, wide: float, high: float) -> None:
    """The colours and what they mean."""
    axes = figure.add_axes(
        ((_MARGIN + _GUTTER) / wide, (_MARGIN + 0.2) / high, 1.6 / wide, 0.1 / high)
    )
    colors = ramp("viridis", 64)
    for n, color in enumerate(colors):
        axes.add_patch(Rectangle((n / 64, 0), 1 / 64, 1, facecolor=color, edgecolor=color))
    axes.set_xlim(0, 1)
    axes.set_yticks([])
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.tick_params(length=2, labelsize=6.5)
    axes.set_title("probability of the word", fontsize=6.5, color=GREY, loc="left", pad=2)
