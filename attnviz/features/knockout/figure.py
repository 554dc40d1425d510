"""A knockout as a figure: who needs whom, the largest cuts beside controls, and the layers."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import (
    GREY,
    INK,
    MARGIN,
    HeadedFigure,
    cell,
    interval,
    name_axes,
    name_bars,
    name_cells,
)
from attnviz.drawing.grid import BLUE, NONE, ORANGE, color, signed
from attnviz.drawing.labels import shorten, visible
from attnviz.features.knockout import words
from attnviz.features.knockout.result import CutEffect, Knockout

_CELL, _BAR, _BARS = (0.8, 0.3), 0.21, 2.6
_LISTED = 14
_LINES = ("#2166ac", "#b35806", "#1b7837", "#762a83", "#555555")
"""Of curves: colours that differ in lightness or hue for the colour-blind."""
_NAME = 22


@picture
def draw(result: Knockout, dpi: float) -> Figure:
    """Return the figure: the matrix, bars beside it, curves over layers below."""
    rows, keys = words.axes(result)
    matrix = len(rows) > 1 and len(keys) > 1
    listed = [effect for effect in result.ranked() if effect.kind != "window"][:_LISTED]
    names = [_short(effect) for effect in listed]
    windows = [result.of(*pair, "window") for pair in result.pairs]
    curves = sorted(  # those that go farthest first
        filter(None, windows), key=lambda curve: -max(abs(effect.change.value) for effect in curve)
    )[: len(_LINES)]
    page = HeadedFigure(
        words.title(result), [words.sentence(result), words.measure(result)], dpi,
        [*names, *rows, *keys],
    )  # fmt: skip
    names, across, beside = (
        [page.text(shorten(visible(name), limit)) for name in labels]
        for labels, limit in ((names, 60), (keys, 12), (rows, _NAME))
    )
    left = 0.1 + page.ruler.widest(beside, 7) if matrix else 0.0
    wide_1 = len(keys) * _CELL[0] if matrix else 0.0
    middle = 0.25 * matrix + 0.15 + page.ruler.widest(names, 7)
    body = max(len(rows) * _CELL[1] if matrix else 0.0, len(listed) * _BAR)
    width = 2 * MARGIN + left + wide_1 + middle + _BARS
    below = 2.3 if curves else 0.0
    top = page.begin(width) + (0.4 if matrix else 0.1)
    figure = page.figure(top + body + 0.45 + below + MARGIN)
    if matrix:
        _matrix(page.axes(MARGIN + left, top, wide_1, len(rows) * _CELL[1]), result, across, beside)
    x = MARGIN + left + wide_1 + middle
    _bars(page.axes(x, top, _BARS, len(listed) * _BAR), result, listed, names)
    if curves:
        inside = (MARGIN + 0.5, top + body + 0.6, width - 2 * MARGIN - 0.6, below - 0.7)
        _curves(page.axes(*inside), result, curves)
    return figure


def _short(effect: CutEffect) -> str:
    """Name a cut, and how much of it its control matches."""
    heads = "" if effect.kind == "all" else f", {effect.name}"
    matched = "" if effect.matched is None else " (no control)"
    if effect.control is not None:
        matched = f" ({words.taken(effect)} matched)"
    return f"{effect.rows} to {effect.keys}{heads}{matched}"


def _matrix(axes: Axes, result: Knockout, across: Sequence[str], beside: Sequence[str]) -> None:
    """Each pair with all heads cut."""
    rows, keys = words.axes(result)
    cuts = [effect for effect in result.effects if effect.kind == "all"]
    end = max((abs(effect.change.value) for effect in cuts), default=0.0)
    for effect in cuts:
        size = effect.change.value
        text = signed(size * words.scale(result), 2, 2) + words.MARK * bool(effect.judged.sure)
        paint = color(size, end, -(result.worse or 1), NONE)
        cell(axes, keys.index(effect.keys), rows.index(effect.rows), paint, text, 7)
    name_cells(axes, across, beside)
    legend = "; blue: worse without" if result.worse else ""
    axes.set_xlabel(f"all heads, {words.unit(result)}{legend}", fontsize=7)


def _bars(axes: Axes, result: Knockout, listed: Sequence[CutEffect], names: Sequence[str]) -> None:
    scale = words.scale(result)
    for n, effect in enumerate(listed):
        size = effect.change.value
        harm = size * result.worse > 0 or not result.worse
        axes.barh(n, size * scale, height=0.62, color=BLUE if harm else ORANGE)
        interval(axes, (effect.change.joint_low, effect.change.joint_high), n, times=scale)
    controls = [(n, e.control) for n, e in enumerate(listed) if e.control is not None]
    if controls:
        axes.scatter(
            [value * scale for _, value in controls], [n for n, _ in controls], s=14,
            marker="o", facecolor="white", edgecolor=INK, linewidths=0.8, zorder=3,
        )  # fmt: skip
    axes.axvline(0, color=GREY, linewidth=0.5)
    lines = any(effect.change.joint_low is not None for effect in listed)
    below = "\n○: as much of other keys cut at random" if controls else ""
    unit = f"change in {words.unit(result)}{' (lines: joint 95 %)' if lines else ''}"
    name_bars(axes, names, unit + below)


def _curves(axes: Axes, result: Knockout, curves: Sequence[Sequence[CutEffect]]) -> None:
    scale = words.scale(result)
    around, dashed = f"layer around which layers are cut, {result.window} at a time", ""
    for curve, paint in zip(curves, _LINES, strict=False):
        x = [effect.layer or 0 for effect in curve]
        label = visible(f"{curve[0].rows} to {curve[0].keys}")
        axes.plot(x, [e.change.value * scale for e in curve], color=paint, linewidth=1.6,
                  marker="o", markersize=3, label=label)  # fmt: skip
        if all(e.change.joint_low is not None for e in curve):
            low = [(e.change.joint_low or 0.0) * scale for e in curve]
            high = [(e.change.joint_high or 0.0) * scale for e in curve]
            axes.fill_between(x, low, high, color=paint, alpha=0.12, linewidth=0)
        if all(e.control is not None for e in curve):
            axes.plot(x, [(e.control or 0.0) * scale for e in curve], color=paint, linewidth=0.8,
                      linestyle="dashed")  # fmt: skip
            dashed = ";\ndashed: as much of other keys at random"
    axes.axhline(0, color=GREY, linewidth=0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    name_axes(axes, around + dashed, words.unit(result), fontsize=6.5)
