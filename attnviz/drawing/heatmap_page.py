"""The page of attention maps: where panels, labels, brackets, waves and the colour bar stand.

All positions are worked out here in inches, from the measured width of the labels, so that nothing
overlaps and nothing is cut, without matplotlib's layout engines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, to_hex
from matplotlib.figure import Figure

from attnviz.drawing.fonts import Ruler
from attnviz.drawing.labels import cell_number
from attnviz.drawing.palette import UNSELECTED, anchors, dark, ink, masked_color
from attnviz.drawing.panels import (
    BRACKET_TEXT,
    LEADING,
    LEAST_NUMBERED,
    LEVEL,
    NUMBERED,
    RULED,
    Axis,
    Panel,
    bracket_name,
    bracket_room,
)
from attnviz.drawing.shades import binned, binned_mask, binned_unselected
from attnviz.drawing.style import Style

_PAD = 0.08
MARGIN = 0.12
_WAVE, _WAVE_GAP = 0.42, 0.04
"""The room of a waveform beside a map, in inches, and what of it stays free on both sides."""
_HOOK = 0.05  # how far the ends of a bracket reach, in inches
_GREY = "#555555"
_QUERY, _KEY, _SHORT_KEY = "query", "key (attended to)", "key"


@dataclass(frozen=True)
class _Bar:
    """The colour bar: inches before it, of itself and of its numbers; points of their text."""

    before: float = 0.2
    wide: float = 0.12
    numbers: float = 0.62
    text: float = 7.5

    @property
    def room(self) -> float:
        """All of it, in inches."""
        return self.before + self.wide + self.numbers


_THIN = _Bar(0.08, 0.06, 0.42, 6.0)  # the bar of a paper's column


def beside(rows: Axis, ruler: Ruler) -> float:
    """Return what stands left of a map, in inches: labels and the name of the axis."""
    return ruler.widest(rows.shown, rows.size) + _strip(rows) + _PAD + 0.2


class HeatmapPage:
    """Panels in rows and columns on a page; a narrow one is a column of a paper."""

    def __init__(
        self,
        panels: list[Panel],
        across: int,
        shared: bool,
        ruler: Ruler,
        title_size: float,
        style: Style,
        *,
        narrow: bool,
        top: float,
        notes: list[str] | None,
    ) -> None:
        """Lay panels out; the colour bar ends at ``top``, and notes, if any, stand below."""
        self.panels, self.style, self.top, self.notes = panels, style, top, notes
        self.labels = style.labels
        self.line = "white" if dark(style.palette) else "black"
        few = len(panels) == 1 and max(panels[0].shades.shape) <= NUMBERED
        self.numbers = few if style.values is None else style.values
        self.colors = LinearSegmentedColormap.from_list(
            style.palette, anchors(style.palette)
        ).with_extremes(bad=masked_color(style.palette), over=UNSELECTED)
        self.bar = _THIN if narrow else _Bar()
        self.across = across
        self.down = -(-len(panels) // across)
        self.shared = shared
        self.ruler = ruler
        self.title_size = title_size
        self.wide = max(panel.columns.length for panel in panels)
        self.high = max(panel.rows.length for panel in panels)
        self.left = max(beside(panel.rows, ruler) for panel in panels)
        self.below = max(self._below(panel) for panel in panels)
        line = title_size * LEADING / 72
        self.above = max(len(panel.title) for panel in panels) * line + _PAD
        self.key = _KEY if ruler.width(_KEY, 8) <= self.wide + self.bar.before else _SHORT_KEY
        self.gap = 0.12 if shared else 0.16
        self.step_x = self.wide + (self.gap if shared else self.left + self.gap)
        self.block_x = self.step_x * (across - 1) + self.wide
        titles = (ruler.width(t, title_size, title=True) for p in panels for t in p.title)
        block = max(self.block_x + self.bar.room, *titles, 0.0)
        self.width = MARGIN + self.left + block + MARGIN
        """Of the page, in inches."""

    def _below(self, panel: Panel) -> float:
        size = panel.columns.size
        labels = self.ruler.widest(panel.columns.shown, size) if panel.turned else size / 72
        return labels + _strip(panel.columns) + _PAD + 0.22

    def draw(self) -> Figure:
        """Draw all panels, the colour bar and the notes."""
        meaning = self.style.meaning(len(self.panels))
        left, below, above, width = self.left, self.below, self.above, self.width
        step_x, block_x = self.step_x, self.block_x
        step_y = self.high + above + (self.gap if self.shared else below + self.gap)
        block_y = step_y * (self.down - 1) + self.high
        bar_high = min(max(self.high, self.ruler.width(meaning, self.bar.text) + 0.1), 4.0)
        notes = [] if self.notes is None else [*self.notes, *self._notes()]
        lines = [line for note in notes for line in self.ruler.wrapped(note, 7, width - 0.3)]
        foot = len(lines) * 7 * LEADING / 72 + (_PAD if lines else 0)
        body = max(block_y + below, bar_high + 0.1)
        height = MARGIN + above + body + foot + MARGIN
        figure = Figure(figsize=(width, height), dpi=self.style.dpi)
        for place, panel in enumerate(self.panels):
            row, column = divmod(place, self.across)
            x = MARGIN + left + column * step_x
            y = height - MARGIN - above - row * step_y - panel.rows.length
            box = (x / width, y / height, panel.columns.length / width, panel.rows.length / height)
            axes = figure.add_axes(box)
            self._panel(axes, panel)
            last = place + self.across >= len(self.panels)
            rows, columns = not self.shared or column == 0, not self.shared or last
            self._label(axes, panel, rows, columns)
            for axis, labelled, vertical in (
                (panel.rows, rows, True),
                (panel.columns, columns, False),
            ):
                if labelled:
                    _wave(axes, axis, vertical=vertical)
                    _brackets(axes, axis, self.ruler, vertical=vertical)
        bar = figure.add_axes(
            (
                (MARGIN + left + block_x + self.bar.before) / width,
                (height - MARGIN - above - bar_high) / height,
                self.bar.wide / width,
                bar_high / height,
            )
        )
        self._bar(figure, bar, meaning)
        if self.shared and len(self.panels) > 1:
            middle_x = (MARGIN + left + block_x / 2) / width
            middle_y = (height - MARGIN - above - block_y / 2) / height
            low = (height - MARGIN - above - block_y - below) / height
            figure.text(
                MARGIN / width, middle_y, _QUERY, rotation=90, va="center", color=_GREY, fontsize=8
            )
            figure.text(middle_x, low, _KEY, ha="center", va="bottom", color=_GREY, fontsize=8)
        for number, line in enumerate(reversed(lines)):
            figure.text(MARGIN / width, (MARGIN + number * 7 * LEADING / 72) / height, line,
                        fontsize=7, color=_GREY, va="bottom")  # fmt: skip
        return figure

    def _panel(self, axes: Axes, panel: Panel) -> None:
        """Draw one map with its title."""
        queries, keys = panel.shades.shape
        shown = binned(panel.shades, *panel.pool, signed=self.style.signed)
        if panel.mask is not None:
            shown = np.ma.array(shown, mask=binned_mask(panel.mask, *panel.pool))
            if panel.unselected is not None:  # beyond the scale, where nothing else is
                shown[binned_unselected(panel.unselected, panel.mask, *panel.pool)] = 2.0
        if max(queries, keys) <= RULED and panel.pool == (1, 1):
            axes.pcolormesh(
                np.arange(keys + 1) - 0.5,
                np.arange(queries + 1) - 0.5,
                shown,
                cmap=self.colors,
                vmin=0,
                vmax=1,
                edgecolors="white",
                linewidth=min(0.5, 1.5 * min(panel.rows.cell, panel.columns.cell)),
            )
        else:
            axes.imshow(shown, cmap=self.colors, vmin=0, vmax=1, aspect="auto",
                        interpolation="nearest",
                        extent=(-0.5, keys - 0.5, queries - 0.5, -0.5))  # fmt: skip
        for place in panel.breaks[0]:
            axes.axhline(place - 0.5, color=self.line, linewidth=2.0)
        for place in panel.breaks[1]:
            axes.axvline(place - 0.5, color=self.line, linewidth=2.0)
        axes.set_xlim(-0.5, keys - 0.5)
        axes.set_ylim(queries - 0.5, -0.5)
        for spine in axes.spines.values():
            spine.set_color(_GREY)
        if self.numbers and min(panel.rows.cell, panel.columns.cell) >= LEAST_NUMBERED:
            _numbers(axes, panel, self.colors)
        if panel.title:
            axes.set_title(
                "\n".join(panel.title),
                loc="left",
                fontsize=self.title_size,
                fontweight=self.ruler.title_weight,
                family=self.ruler.families,
                pad=4,
                y=1.0,  # nothing stands in its way, which matplotlib would look for
                linespacing=1.0,
            )

    def _label(self, axes: Axes, panel: Panel, rows: bool, columns: bool) -> None:
        """Tokens on the axes that carry them, and what the axes are."""
        label = not self.shared or len(self.panels) == 1
        seen = zip(panel.axes, (axes.yaxis, axes.xaxis), (rows, columns), strict=True)
        for side, at, visible in seen:
            at.set_visible(visible)
            if not visible:
                continue  # marks that nobody sees take as long to make
            at.set_tick_params(length=1.5, width=0.4, pad=1.5, color=_GREY)
            if side.line is not None or side.brackets:
                at.set_tick_params(length=0, pad=72 * _strip(side))
        family = self.ruler.families
        if rows:
            axes.set_yticks([at for at, _ in panel.rows.ticks] if self.labels else [])
        if columns:
            axes.set_xticks([at for at, _ in panel.columns.ticks] if self.labels else [])
        if rows and self.labels:
            axes.set_yticklabels(panel.rows.shown, fontsize=panel.rows.size, family=family)
        if rows:
            axes.set_ylabel(_QUERY if label else "", fontsize=8, color=_GREY, labelpad=3)
        if columns and self.labels:
            axes.set_xticklabels(panel.columns.shown, fontsize=panel.columns.size, family=family,
                                 rotation=90 if panel.turned else 0)  # fmt: skip
        if columns:
            axes.set_xlabel(self.key if label else "", fontsize=8, color=_GREY, labelpad=3)

    def _bar(self, figure: Figure, axes: Axes, meaning: str) -> None:
        """Draw the colour bar."""
        relative = self.style.relative(len(self.panels))
        bar = figure.colorbar(ScalarMappable(Normalize(0, 1), self.colors), cax=axes)
        places, texts = zip(*self.style.ticks(1.0 if relative else self.top), strict=True)
        bar.set_ticks(list(places), labels=list(texts))
        bar.outline.set_edgecolor(_GREY)
        axes.tick_params(labelsize=7, length=2, width=0.4, color=_GREY)
        bar.set_label(meaning, fontsize=self.bar.text, color=_GREY)

    def _notes(self) -> list[str]:
        """Say where tokens had to go without a label or without a pixel of their own."""
        every = max(max(panel.rows.every, panel.columns.every) for panel in self.panels)
        pooled = max(max(panel.pool) for panel in self.panels)
        notes = []
        if every > 1 and self.labels:
            notes.append(f"one token in {every} is labelled")
        if pooled > 1:
            notes.append(f"{pooled} tokens share a pixel, which shows the largest of their weights")
        return notes


def _strip(axis: Axis) -> float:
    """Return what a waveform or brackets take beside the map, in inches."""
    return bracket_room(axis.brackets) if axis.peaks is None else _WAVE


def _wave(axes: Axes, axis: Axis, *, vertical: bool) -> None:
    """Draw the waveform along an axis of frames, outside of the map."""
    if axis.peaks is None or axis.line is None:
        return
    part = axis.line.frames / len(axis.labels)
    strip = _beside(axes, _WAVE - _WAVE_GAP, _WAVE - 2 * _WAVE_GAP, part, vertical=vertical)
    edges = np.arange(len(axis.peaks) + 1)
    low, high = (np.append(side, side[-1]) for side in axis.peaks.T)
    if vertical:
        strip.fill_betweenx(edges, low, high, step="post", color=_GREY, linewidth=0.3)
        strip.set(xlim=(-1.02, 1.02), ylim=(len(axis.peaks), 0))
    else:
        strip.fill_between(edges, low, high, step="post", color=_GREY, linewidth=0.3)
        strip.set(ylim=(-1.02, 1.02), xlim=(0, len(axis.peaks)))


def _brackets(axes: Axes, axis: Axis, ruler: Ruler, *, vertical: bool) -> None:
    """Draw the named parts along an axis, outside of the map."""
    if not axis.brackets:
        return
    deep, cell, length = bracket_room(axis.brackets), axis.cell, len(axis.labels)
    strip = _beside(axes, deep, deep, 1.0, vertical=vertical)
    if vertical:
        strip.set(xlim=(deep, 0), ylim=(length, 0))
    else:
        strip.set(xlim=(0, length), ylim=(deep, 0))
    for b in axis.brackets:
        line = b.level * LEVEL + 0.045
        inset = min(0.12, 0.02 / cell)
        along = [b.start + inset, b.start + inset, b.end - inset, b.end - inset]
        across = [line - _HOOK / 2, line, line, line - _HOOK / 2]
        xs, ys = (across, along) if vertical else (along, across)
        strip.plot(xs, ys, color=b.color, linewidth=1.2, solid_capstyle="butt", clip_on=False)
        name = bracket_name(b.name, cell * (b.end - b.start), ruler)
        middle, outside = (b.start + b.end) / 2, line + 0.02
        strip.text(*((outside, middle) if vertical else (middle, outside)), name,
                   fontsize=BRACKET_TEXT, color=b.color, family=ruler.families,
                   rotation=90 if vertical else 0, ha="right" if vertical else "center",
                   va="center" if vertical else "top")  # fmt: skip


def _beside(axes: Axes, away: float, deep: float, part: float, *, vertical: bool) -> Axes:
    """Add axes without lines along a part of a map's side, from inches away on ``deep`` inches."""
    box, figure = axes.get_position(), axes.get_figure(root=True)
    assert figure is not None
    width, height = figure.get_size_inches()
    if vertical:
        bounds = (box.x0 - away / width, box.y1 - box.height * part, deep / width,
                  box.height * part)  # fmt: skip
    else:
        bounds = (box.x0, box.y0 - away / height, box.width * part, deep / height)
    strip = figure.add_axes(bounds)
    strip.axis("off")
    return strip


def _hex(colors: Colormap, share: float) -> str:
    red, green, blue, _ = colors(share)
    return to_hex((red, green, blue))


def _numbers(axes: Axes, panel: Panel, colors: Colormap) -> None:
    """Write the weights themselves, in cells that are large enough."""
    for (row, column), weight in np.ndenumerate(panel.weights):
        if abs(weight) < 0.005 or (panel.mask is not None and panel.mask[row, column]):
            continue
        axes.text(column, row, cell_number(float(weight)), ha="center", va="center", fontsize=7,
                  color=ink(_hex(colors, float(panel.shades[row, column]))))  # fmt: skip
