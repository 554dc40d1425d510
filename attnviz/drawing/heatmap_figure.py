"""The figure of one attention map, or of a grid of them.

All positions are worked out here in inches, from the measured width of the labels, so that nothing
overlaps and nothing is cut, without matplotlib's layout engines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnviz.core.media import Sound
from attnviz.core.tokens import Sides
from attnviz.drawing import brackets, canvas, paper
from attnviz.drawing.fonts import Ruler, choose, spelled
from attnviz.drawing.labels import (
    TITLE_LINES,
    cell_number,
    row_labels,
    shorten,
    title_lines,
    token_labels,
    visible,
)
from attnviz.drawing.palette import anchors, dark, ink, masked_color, masked_note
from attnviz.drawing.panels import (
    LEADING,
    LONGEST_LABEL,
    RULED,
    Axis,
    Panel,
    axis,
    cells,
    maps_a_line,
    sentence_breaks,
    time_axis,
)
from attnviz.drawing.scaling import scale
from attnviz.drawing.shades import binned, binned_mask, checked, hidden, largest, shades
from attnviz.drawing.style import Style
from attnviz.errors import UsageError

_NUMBERED = 12
_SCORES = re.compile(r" \d\.\d+| \d+ % of the maximum| where possible \([^)]*\)")
"""What a title can do without."""
_TRIALS, _CLOSE, _LEAST_SIZE = 5, 0.01, 0.2
"""Pages drawn to find the size of a map at which the page has a width; inches."""
_LEAST_NUMBERED = 0.2
"""The smallest cell that holds a number, in inches."""
_PAD = 0.08
_MARGIN = 0.12
_TITLE_ROOM, _LEAST_TITLE = 3.2, 0.8
"""Inches of a title's line above a small map, and on a narrow page."""
_COLUMN, _COLUMN_LABEL = 4.0, 8
"""Up to so many inches a page is a paper's column: its map fills it, and labels have so many
characters."""


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


_THIN = _Bar(0.08, 0.06, 0.42, 6.0)
"""The bar of a paper's column."""
_WAVE, _WAVE_GAP = 0.42, 0.04
"""The room of a waveform beside a map, in inches, and what of it stays free on both sides."""
_GREY = "#555555"
_QUERY, _KEY = "query", "key (attended to)"


def fitted(
    maps: Sequence[tuple[str, NDArray[np.floating[Any]], Sides]],
    style: Style,
    columns: int | None = None,
    caption: str = "",
    sound: Sound | None = None,
) -> Figure:
    """The figure, in the width that the paper asks for: cells grow or shrink, text does not."""
    asked = paper.current()
    if asked.width is None:
        return build(maps, style, columns, caption, sound)
    if style.size is not None:
        raise UsageError(
            "{size} is of a map and {width} of the whole file; give one", size=..., width=...
        )
    wanted = asked.width / canvas.text_scale()
    size, tried = wanted / 2, list[tuple[float, float]]()
    for _ in range(_TRIALS):
        figure = build(maps, replace(style, size=size), columns, caption, sound)
        tried.append((size, float(figure.get_size_inches()[0])))
        if abs(tried[-1][1] - wanted) < _CLOSE:
            break
        (before, was), (now, wide) = tried[-2:] if len(tried) > 1 else ((0.0, 0.0), tried[0])
        slope = (wide - was) / (now - before) if now != before and wide != was else 1.0
        size = min(max(now + (wanted - wide) / slope, _LEAST_SIZE), 50.0)
    scale(figure, wanted / tried[-1][1])
    return figure


def build(
    maps: Sequence[tuple[str, NDArray[np.floating[Any]], Sides]],
    style: Style,
    columns: int | None = None,
    caption: str = "",
    sound: Sound | None = None,
) -> Figure:
    """The figure; see :func:`attnviz.drawing.figure.heatmap_figure`."""
    weights = [checked(array, sides) for _, array, sides in maps]
    top = largest(weights)
    dpi, size, labels = style.dpi, style.size, style.labels
    across = min(columns or maps_a_line(len(maps)), len(maps))
    down = -(-len(maps) // across)
    raw = {("keys", id(sides.keys)): token_labels(sides.keys) for _, _, sides in maps}
    raw |= {("rows", id(sides.queries)): row_labels(sides.queries) for _, _, sides in maps}
    titles = [visible(title) if title else "" for title in _titles([t for t, _, _ in maps])]
    small_print = paper.current().caption
    caption = visible(caption) if caption and small_print else ""
    spans = [s.name for _, _, both in maps for t in (both.keys, both.queries) for s in t.spans]
    longest = _COLUMN_LABEL if _in_column(maps) else LONGEST_LABEL
    families, missing = choose(
        [*titles, caption, *spans, *(text for texts in raw.values() for text in texts)]
    )
    cut = {
        name: tuple(spelled(shorten(text, longest), missing) for text in texts)
        for name, texts in raw.items()
    }
    ruler = Ruler(families, dpi, bold=len(choose(titles)[0]) == 1)
    title_size = 10.0 if len(maps) == 1 else 8.0
    panels = []
    for title, (_, given, sides), array in zip(titles, maps, weights, strict=True):
        high, wide = cells(array.shape[0], array.shape[1], across, down)
        if size is not None:
            high = wide = size / max(array.shape)
        rows, cols = (
            (labels and time_axis(tokens, cell, sound))
            or axis(cut[name, id(tokens)] if labels else ("",) * len(tokens), cell)
            for name, tokens, cell in (("rows", sides.queries, high), ("keys", sides.keys, wide))
        )
        if labels:
            rows = replace(rows, brackets=brackets.brackets(sides.queries, spans))
            cols = replace(cols, brackets=brackets.brackets(sides.keys, spans))
        turned = cols.line is None and (
            ruler.widest(cols.shown, cols.size) > wide * cols.every - 0.04
        )
        room = cols.length if len(maps) > 1 else _title_room(rows, cols, ruler)
        lines = (
            ruler.wrapped(spelled(title, missing), title_size, room, title=True) if title else []
        )
        if len(maps) > 1:
            lines = _short(spelled(title, missing), lines, ruler, title_size, room)
        shown = shades(array, style, top)
        pool = (rows.pool(dpi), cols.pool(dpi))
        breaks = (sentence_breaks(sides.queries), sentence_breaks(sides.keys))
        panels.append(Panel(lines, shown, array, hidden(given), rows, cols, turned, pool, breaks))
    shared = all(sides == maps[0][2] for _, _, sides in maps)
    notes = [note for note in (spelled(caption, missing), style.left_out) if note]
    if _in_column(maps) and paper.current().title is None:
        notes.insert(0, spelled(visible(maps[0][0]), missing))
    if any(panel.mask is not None for panel in panels):
        notes.append(masked_note(style.palette))
    if any(sides.queries.written for _, _, sides in maps):
        notes.append("lines: prompt | output; the row a → b is the step that chose b")
    if any(axis.line and axis.line.frames < len(axis.labels) for p in panels for axis in p.axes):
        notes.append("after the waveform: frames that the model added")
    marked = [axis for panel in panels for axis in panel.axes]
    if any(brackets.cut(axis.brackets, axis.cell, ruler) for axis in marked):
        notes.append(spelled(brackets.named(axis.brackets for axis in marked), missing))
    if missing:
        notes.append("shown as code points: characters missing from every installed font")
    return _Page(panels, across, shared, ruler, title_size, style).draw(
        top, notes if small_print else None
    )


def _in_column(maps: Sequence[object]) -> bool:
    """Whether a single map goes into a paper's column."""
    width = paper.current().width
    return len(maps) == 1 and width is not None and width <= _COLUMN


def _title_room(rows: Axis, columns: Axis, ruler: Ruler) -> float:
    """What the title of a single map may take: on a page of a width, what labels leave of it."""
    asked = paper.current().width
    if asked is None:
        return max(columns.length, _TITLE_ROOM)
    return max(asked / canvas.text_scale() - 2 * _MARGIN - _beside(rows, ruler), _LEAST_TITLE)


def _beside(rows: Axis, ruler: Ruler) -> float:
    """What stands left of a map, in inches: labels and the name of the axis."""
    return ruler.widest(rows.shown, rows.size) + _strip(rows) + _PAD + 0.2


def _short(title: str, lines: list[str], ruler: Ruler, size: float, room: float) -> list[str]:
    """A title of a map among several, without scores where these do not fit, or the head alone."""
    head, _, roles = title.partition(": ")
    plain = _SCORES.sub("", roles)
    for text in (title, f"{head}: {plain}", f"{head}\n{plain}", head):
        shorter = [
            line
            for part in text.split("\n")
            for line in ruler.wrapped(part, size, room, title=True)
        ]
        if len(shorter) <= TITLE_LINES and ruler.widest(shorter, size) <= room:
            return shorter
    return title_lines(lines)


def _titles(own: list[str]) -> list[str]:
    """What stands above the maps: one by the paper's wish; of several always which head it is."""
    asked = paper.current().title
    if asked is None:
        return [""] if _in_column(own) else own
    if len(own) == 1:
        return [asked]
    if asked:
        raise UsageError("{title} is for a picture of one map, not of {}", len(own), title=...)
    return [title.partition(":")[0] for title in own]


class _Page:
    """Panels in rows and columns on a page."""

    def __init__(
        self,
        panels: list[Panel],
        across: int,
        shared: bool,
        ruler: Ruler,
        title_size: float,
        style: Style,
    ) -> None:
        self.panels, self.style = panels, style
        self.labels = style.labels
        self.line = "white" if dark(style.palette) else "black"
        few = len(panels) == 1 and max(panels[0].shades.shape) <= _NUMBERED
        self.numbers = few if style.values is None else style.values
        self.colors = LinearSegmentedColormap.from_list(
            style.palette, anchors(style.palette)
        ).with_extremes(bad=masked_color(style.palette))
        self.bar = _THIN if _in_column(panels) else _Bar()
        self.across = across
        self.down = -(-len(panels) // across)
        self.shared = shared
        self.ruler = ruler
        self.title_size = title_size
        self.wide = max(panel.columns.length for panel in panels)
        self.high = max(panel.rows.length for panel in panels)
        self.left = max(_beside(panel.rows, ruler) for panel in panels)
        self.below = max(self._below(panel) for panel in panels)
        line = title_size * LEADING / 72
        self.above = max(len(panel.title) for panel in panels) * line + _PAD

    def _below(self, panel: Panel) -> float:
        size = panel.columns.size
        labels = self.ruler.widest(panel.columns.shown, size) if panel.turned else size / 72
        return labels + _strip(panel.columns) + _PAD + 0.22

    def draw(self, top: float, notes: list[str] | None) -> Figure:
        """Draw all panels, the colour bar, which ends at ``top``, and the notes, if any."""
        meaning = self.style.meaning(len(self.panels))
        left, below, above = self.left, self.below, self.above
        gap = 0.12 if self.shared else 0.16
        step_x = self.wide + (gap if self.shared else left + gap)
        step_y = self.high + above + (gap if self.shared else below + gap)
        block_x = step_x * (self.across - 1) + self.wide
        block_y = step_y * (self.down - 1) + self.high
        bar_high = min(max(self.high, self.ruler.width(meaning, self.bar.text) + 0.1), 4.0)
        titles = max(
            (
                self.ruler.width(t, self.title_size, title=True)
                for p in self.panels
                for t in p.title
            ),
            default=0.0,
        )
        width = _MARGIN + left + max(block_x + self.bar.room, titles) + _MARGIN
        notes = [] if notes is None else [*notes, *self._notes()]
        lines = [line for note in notes for line in self.ruler.wrapped(note, 7, width - 0.3)]
        foot = len(lines) * 7 * LEADING / 72 + (_PAD if lines else 0)
        body = max(block_y + below, bar_high + 0.1)
        height = _MARGIN + above + body + foot + _MARGIN
        figure = Figure(figsize=(width, height), dpi=self.style.dpi)
        for place, panel in enumerate(self.panels):
            row, column = divmod(place, self.across)
            x = _MARGIN + left + column * step_x
            y = height - _MARGIN - above - row * step_y - panel.rows.length
            box = (
                x / width,
                y / height,
                panel.columns.length / width,
                panel.rows.length / height,
            )
            axes = figure.add_axes(box)
            self._panel(axes, panel)
            last = place + self.across >= len(self.panels)
            rows, columns = not self.shared or column == 0, not self.shared or last
            self._label(axes, panel, rows, columns)
            if rows:
                _wave(axes, panel.rows, down=True)
                self._brackets(axes, panel.rows, down=True)
            if columns:
                _wave(axes, panel.columns, down=False)
                self._brackets(axes, panel.columns, down=False)
        bar = figure.add_axes(
            (
                (_MARGIN + left + block_x + self.bar.before) / width,
                (height - _MARGIN - above - bar_high) / height,
                self.bar.wide / width,
                bar_high / height,
            )
        )
        self._bar(figure, bar, top, meaning)
        if self.shared and len(self.panels) > 1:
            middle_x = (_MARGIN + left + block_x / 2) / width
            middle_y = (height - _MARGIN - above - block_y / 2) / height
            low = (height - _MARGIN - above - block_y - below) / height
            figure.text(
                _MARGIN / width, middle_y, _QUERY, rotation=90, va="center", color=_GREY, fontsize=8
            )
            figure.text(middle_x, low, _KEY, ha="center", va="bottom", color=_GREY, fontsize=8)
        for number, line in enumerate(reversed(lines)):
            figure.text(
                _MARGIN / width,
                (_MARGIN + number * 7 * LEADING / 72) / height,
                line,
                fontsize=7,
                color=_GREY,
                va="bottom",
            )
        return figure

    def _brackets(self, axes: Axes, axis: Axis, *, down: bool) -> None:
        """The named parts along an axis."""
        brackets.draw(axes, axis.brackets, axis.cell, self.ruler, down=down)

    def _panel(self, axes: Axes, panel: Panel) -> None:
        """Draw one map with its title."""
        queries, keys = panel.shades.shape
        shown = binned(panel.shades, *panel.pool)
        if panel.mask is not None:
            shown = np.ma.array(shown, mask=binned_mask(panel.mask, *panel.pool))
        if max(queries, keys) <= RULED:
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
            axes.imshow(
                shown,
                cmap=self.colors,
                vmin=0,
                vmax=1,
                aspect="auto",
                interpolation="nearest",
                extent=(-0.5, keys - 0.5, queries - 0.5, -0.5),
            )
        for place in panel.breaks[0]:
            axes.axhline(place - 0.5, color=self.line, linewidth=2.0)
        for place in panel.breaks[1]:
            axes.axvline(place - 0.5, color=self.line, linewidth=2.0)
        axes.set_xlim(-0.5, keys - 0.5)
        axes.set_ylim(queries - 0.5, -0.5)
        for spine in axes.spines.values():
            spine.set_color(_GREY)
        if self.numbers and min(panel.rows.cell, panel.columns.cell) >= _LEAST_NUMBERED:
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
        axes.tick_params(length=1.5, width=0.4, pad=1.5, color=_GREY)
        for side, at in zip(panel.axes, (axes.yaxis, axes.xaxis), strict=True):
            if side.line is not None or side.brackets:
                at.set_tick_params(length=0, pad=72 * _strip(side))
        family = self.ruler.families
        axes.set_yticks([at for at, _ in panel.rows.ticks] if rows and self.labels else [])
        axes.set_xticks([at for at, _ in panel.columns.ticks] if columns and self.labels else [])
        if rows and self.labels:
            axes.set_yticklabels(panel.rows.shown, fontsize=panel.rows.size, family=family)
        if rows:
            axes.set_ylabel(_QUERY if label else "", fontsize=8, color=_GREY, labelpad=3)
        if columns and self.labels:
            axes.set_xticklabels(
                panel.columns.shown,
                fontsize=panel.columns.size,
                family=family,
                rotation=90 if panel.turned else 0,
            )
        if columns:
            axes.set_xlabel(_KEY if label else "", fontsize=8, color=_GREY, labelpad=3)

    def _bar(self, figure: Figure, axes: Axes, top: float, meaning: str) -> None:
        """The colour bar."""
        relative = self.style.relative(len(self.panels))
        bar = figure.colorbar(ScalarMappable(Normalize(0, 1), self.colors), cax=axes)
        places, texts = zip(*self.style.ticks(1.0 if relative else top), strict=True)
        bar.set_ticks(list(places), labels=list(texts))
        bar.outline.set_edgecolor(_GREY)
        axes.tick_params(labelsize=7, length=2, width=0.4, color=_GREY)
        bar.set_label(meaning, fontsize=self.bar.text, color=_GREY)

    def _notes(self) -> list[str]:
        """What to say where tokens had to go without a label or without a pixel of their own."""
        every = max(max(panel.rows.every, panel.columns.every) for panel in self.panels)
        pooled = max(max(panel.pool) for panel in self.panels)
        notes = []
        if every > 1 and self.labels:
            notes.append(f"one token in {every} is labelled")
        if pooled > 1:
            notes.append(f"{pooled} tokens share a pixel, which shows the largest of their weights")
        return notes


def _strip(axis: Axis) -> float:
    """What a waveform or brackets take beside the map, in inches."""
    return brackets.room(axis.brackets) if axis.peaks is None else _WAVE


def _wave(axes: Axes, axis: Axis, *, down: bool) -> None:
    """The waveform along an axis of frames, outside of the map."""
    if axis.peaks is None or axis.line is None:
        return
    box, figure = axes.get_position(), axes.get_figure(root=True)
    assert figure is not None
    width, height = figure.get_size_inches()
    thick, part = _WAVE - 2 * _WAVE_GAP, axis.line.frames / len(axis.labels)
    if down:
        left = box.x0 - (_WAVE - _WAVE_GAP) / width
        place = (left, box.y1 - box.height * part, thick / width, box.height * part)
    else:
        low = box.y0 - (_WAVE - _WAVE_GAP) / height
        place = (box.x0, low, box.width * part, thick / height)
    strip = figure.add_axes(place)
    strip.axis("off")
    edges = np.arange(len(axis.peaks) + 1)
    low, high = (np.append(side, side[-1]) for side in axis.peaks.T)
    if down:
        strip.fill_betweenx(edges, low, high, step="post", color=_GREY, linewidth=0.3)
        strip.set(xlim=(-1.02, 1.02), ylim=(len(axis.peaks), 0))
    else:
        strip.fill_between(edges, low, high, step="post", color=_GREY, linewidth=0.3)
        strip.set(ylim=(-1.02, 1.02), xlim=(0, len(axis.peaks)))


def _hex(colors: Colormap, share: float) -> str:
    red, green, blue, _ = colors(share)
    return to_hex((red, green, blue))


def _numbers(axes: Axes, panel: Panel, colors: Colormap) -> None:
    """The weights themselves, in cells that are large enough."""
    for (row, column), weight in np.ndenumerate(panel.weights):
        if weight < 0.005 or (panel.mask is not None and panel.mask[row, column]):
            continue
        axes.text(
            column,
            row,
            cell_number(float(weight)),
            ha="center",
            va="center",
            fontsize=7,
            color=ink(_hex(colors, float(panel.shades[row, column]))),
        )
