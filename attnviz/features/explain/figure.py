"""An explanation as a figure: votes and weights over the tokens, keys, and what without them."""

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
from attnviz.drawing.signed import BLUE, ORANGE, color, signed
from attnviz.features.explain.result import Explanation
from attnviz.features.explain.words import (
    UP,
    closing,
    origin_name,
    prediction,
    split,
    title,
)

_MARGIN, _CELL, _LINE = 0.2, (0.5, 0.26), 0.2
_LEFT, _BELOW = 1.45, 0.75
"""Room for the names of rows, and for turned tokens."""
_ACROSS = 24
"""Tokens at most; of longer texts the last ones."""
_LONGEST = 12
_KEYS = 3
"""Sources of each key."""


def draw(report: Explanation, format: str = "png", dpi: float = 150) -> Any:
    """The picture, in ``png``, ``svg`` or ``pdf``."""
    return rendered(lambda: build(report, dpi), format, dpi)


def build(report: Explanation, dpi: float) -> Figure:
    """The figure: a row of votes, a row of weights a head, then keys and ablations below."""
    first = max(0, len(report.tokens) - _ACROSS)
    shown = range(first, len(report.tokens))
    name, lines = title(report), [prediction(report).said, split(report).said, closing(report)]
    tokens = [shorten(visible(report.tokens[n]), _LONGEST) for n in shown]
    families, missing = choose([name, *lines, *tokens])
    ruler = Ruler(families, dpi, bold=len(choose([name])[0]) == 1)
    wide = max(2 * _MARGIN + _LEFT + len(shown) * _CELL[0], 9.0)
    heading = Heading(
        ruler, spelled(name, missing), [spelled(line, missing) for line in lines], wide, _MARGIN
    )
    strips = len(report.heads) + bool(report.by_token)
    keys = sum(min(_KEYS, len(one.found.origins)) for one in report.heads if one.found is not None)
    bars = max(keys, (len(report.methods) + 0.6) * len(report.effects), 1)
    top = _MARGIN + heading.high + 0.3
    second = top + strips * _CELL[1] + _BELOW + 0.35
    high = second + bars * _LINE + 0.55 + _MARGIN
    figure = Figure(figsize=(wide, high))
    heading.draw(figure)

    def axes(x: float, y: float, w: float, h: float) -> Axes:
        return figure.add_axes((x / wide, 1 - (y + h) / high, w / wide, h / high))

    left = _MARGIN + _LEFT
    labels = [spelled(text, missing) for text in tokens]
    _strips(axes(left, top, len(shown) * _CELL[0], strips * _CELL[1]), report, shown, labels,
            families)  # fmt: skip
    half = (wide - 2 * _MARGIN - 2 * _LEFT - 0.5) / 2
    if keys:
        _keys(axes(left, second, half, bars * _LINE), report, families, missing)
    _without(axes(left + half + 0.5 + _LEFT, second, half, bars * _LINE), report)
    return figure


def _strips(
    axes: Axes, report: Explanation, shown: range, labels: list[str], families: list[str]
) -> None:
    """What heads add through each token, and each head's weights on them."""
    rows: list[str] = []
    if report.by_token:
        most = max(map(abs, report.by_token), default=0.0)
        rows.append("logits, all heads")
        for column, n in enumerate(shown):
            value = report.by_token[n]
            _cell(axes, column, 0, color(value, most, UP), signed(value, 2, 2))
    for one in report.heads:
        row = len(rows)
        adds = "" if one.value is None else f" ({signed(one.value, 2)})"
        rows.append(f"weights of {report.layout.name(one.head)}{adds}")
        for column, n in enumerate(shown):
            weight = one.weights[n] if n < len(one.weights) else 0.0
            paint = ramp("viridis")[round(min(weight, 1.0) ** 0.5 * 255)]
            _cell(axes, column, row, paint, f"{weight:.2f}" if weight >= 0.005 else "")
    axes.set_xlim(0, len(shown))
    axes.set_ylim(len(rows), 0)
    axes.set_yticks([n + 0.5 for n in range(len(rows))], rows)
    axes.set_xticks([n + 0.5 for n in range(len(shown))], labels, rotation=90, family=families)
    axes.tick_params(length=0, labelsize=7)
    for side in axes.spines.values():
        side.set_visible(False)


def _cell(axes: Axes, column: int, row: int, paint: str, text: str) -> None:
    axes.add_patch(
        Rectangle((column, row), 1, 1, facecolor=paint, edgecolor="white", linewidth=0.5)
    )
    axes.text(column + 0.5, row + 0.53, text, ha="center", va="center", fontsize=6,
              color=ink(paint))  # fmt: skip


def _keys(axes: Axes, report: Explanation, families: list[str], missing: frozenset[str]) -> None:
    """The sources of each head's key."""
    names: list[str] = []
    for one in report.heads:
        for side in () if one.found is None else one.found.origins[:_KEYS]:
            axes.barh(len(names), side.value, height=0.7,
                      color=BLUE if side.value > 0 else ORANGE)  # fmt: skip
            token = spelled(shorten(visible(report.tokens[one.key]), _LONGEST), missing)
            source = origin_name(side.origin.head, side.origin.name(report.layout))
            names.append(f"{source} → {report.layout.name(one.head)} on {token}")
    axes.set_yticks(range(len(names)), names, family=families)
    _finish(axes, len(names), "what sources of the key add to its score\n(less the mean of others)")


def _without(axes: Axes, report: Explanation) -> None:
    """The difference as it is, and without some heads, by each method."""
    places, names = [0.0], ["all heads"]
    axes.barh(0, report.difference, height=0.8, color=GREY)
    shades, at = (BLUE, "#92b5da"), 1.3
    for effect in report.effects:
        for number, change in enumerate(effect.by):
            value = report.difference + change.change
            axes.barh(at + 0.8 * number, value, height=0.7, color=shades[number % 2],
                      label=change.method if effect is report.effects[0] else None)  # fmt: skip
        places.append(at + 0.4 * (len(effect.by) - 1))
        names.append("without " + ", ".join(map(report.layout.name, effect.heads)))
        at += 0.8 * len(effect.by) + 0.5
    axes.set_yticks(places, names)
    against = f"{visible(report.answer)} less {visible(report.against)}, logits"
    _finish(axes, at - 0.4, against)
    axes.legend(fontsize=6, frameon=False, loc="best", title="head replaced by",
                title_fontsize=6)  # fmt: skip


def _finish(axes: Axes, count: float, label: str) -> None:
    axes.set_ylim(count - 0.4, -0.6)
    axes.axvline(0, color=GREY, linewidth=0.5)
    axes.set_xlabel(label, fontsize=7)
    axes.tick_params(axis="y", length=0, labelsize=7)
    axes.tick_params(axis="x", labelsize=7)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
