"""The figure of one attention map, or of a grid of them: its sizes, labels, titles and notes.

Where panels, labels, brackets, waves and the colour bar stand is worked out here in inches, from
the measured width of the labels, so that nothing overlaps and nothing is cut, without matplotlib's
layout engines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnviz.core.media import Sound
from attnviz.core.tokens import Sides
from attnviz.drawing import canvas, labels, paper, shades
from attnviz.drawing.canvas import scale
from attnviz.drawing.charts import GREY, color_bar, foot
from attnviz.drawing.fonts import CODED, Ruler, choose, spelled
from attnviz.drawing.palette import UNSELECTED, anchors, dark, ink, masked_color, masked_note
from attnviz.drawing.panels import (
    BRACKET_TEXT,
    LEADING,
    LEAST_NUMBERED,
    LEVEL,
    LONGEST_LABEL,
    NUMBERED,
    RULED,
    WRITTEN_NOTE,
    Axis,
    Panel,
    axis,
    bracket_name,
    bracket_room,
    brackets,
    cells,
    maps_a_line,
    sentence_breaks,
    time_axis,
    titles_of,
)
from attnviz.drawing.style import Style
from attnviz.errors import UsageError

_SCORES = re.compile(r" \d\.\d+| \d+ % of the maximum| where possible \([^)]*\)")
"""What a title can do without."""
_TRIALS, _CLOSE, _LEAST_SIZE = 5, 0.01, 0.2
"""Pages laid out to find the size of a map at which the page has a width; inches."""
_TITLE_ROOM, _LEAST_TITLE = 3.2, 0.8
"""Inches of a title's line above a small map, and on a narrow page."""
_COLUMN, _COLUMN_LABEL = 4.0, 8
"""Up to so many inches a page is a paper's column: its map fills it, and labels have so many
characters."""
_PAD = 0.08
MARGIN = 0.12
_WAVE, _WAVE_GAP = 0.42, 0.04
"""The room of a waveform beside a map, in inches, and what of it stays free on both sides."""
_HOOK = 0.05  # how far the ends of a bracket reach, in inches
_QUERY, _KEY, _SHORT_KEY = "query", "key (attended to)", "key"


def fitted(
    maps: Sequence[tuple[str, NDArray[np.floating[Any]], Sides]],
    style: Style,
    columns: int | None = None,
    caption: str = "",
    sound: Sound | None = None,
) -> Figure:
    """Get the figure, in the width that the paper asks for: cells grow or shrink, text does not."""
    sheet = paper.current()
    if sheet.width is None:
        return _page(maps, style, columns, caption, sound).draw()
    if style.size is not None:
        raise UsageError(
            "{size} is of a map and {width} of the whole file; give one", size=..., width=...
        )
    target = sheet.width / canvas.text_scale()
    size, trials = target / 2, list[tuple[float, float]]()
    for _ in range(_TRIALS):
        page = _page(maps, replace(style, size=size), columns, caption, sound)
        trials.append((size, page.width))
        if abs(trials[-1][1] - target) < _CLOSE:
            break
        (x0, y0), (x1, y1) = trials[-2:] if len(trials) > 1 else ((0.0, 0.0), trials[0])
        slope = (y1 - y0) / (x1 - x0) if x1 != x0 and y1 != y0 else 1.0
        size = min(max(x1 + (target - y1) / slope, _LEAST_SIZE), 50.0)
    factor = target / trials[-1][1]
    canvas.warn_of_small_text(paper.BASE_SIZE * canvas.text_scale() * factor, sheet.width)
    figure = page.draw()
    scale(figure, factor)
    return figure


def _page(
    maps: Sequence[tuple[str, NDArray[np.floating[Any]], Sides]],
    style: Style,
    columns: int | None,
    caption: str,
    sound: Sound | None,
) -> HeatmapPage:
    """Lay out the page; see :func:`attnviz.drawing.figure.heatmap_figure`."""
    weights = [shades.checked(array, sides) for _, array, sides in maps]
    top = shades.largest(weights)
    dpi, size, labelled = style.dpi, style.size, style.labels
    across = min(columns or maps_a_line(len(maps)), len(maps))
    down = -(-len(maps) // across)
    raw = {("keys", id(sides.keys)): labels.token_labels(sides.keys) for _, _, sides in maps}
    raw |= {("rows", id(sides.queries)): labels.row_labels(sides.queries) for _, _, sides in maps}
    titles = [
        labels.visible(title) if title else "" for title in titles_of(maps, bare=_in_column(maps))
    ]
    small_print = paper.current().caption
    caption = labels.visible(caption) if caption and small_print else ""
    spans = [
        s.name
        for _, _, both_sides in maps
        for t in (both_sides.keys, both_sides.queries)
        for s in t.spans
    ]
    longest = _COLUMN_LABEL if _in_column(maps) else LONGEST_LABEL
    families, missing = choose(
        [*titles, caption, *spans, *(text for texts in raw.values() for text in texts)]
    )
    cut = {
        name: tuple(spelled(labels.shorten(text, longest), missing) for text in texts)
        for name, texts in raw.items()
    }
    ruler = Ruler(families, dpi, bold=len(choose(titles)[0]) == 1)
    title_size = 10.0 if len(maps) == 1 else 8.0
    panels = []
    for title, (_, masked, sides), array in zip(titles, maps, weights, strict=True):
        height, width = cells(array.shape[0], array.shape[1], across, down)
        if size is not None:
            height = width = size / max(array.shape)
        rows, cols = (
            (labelled and time_axis(tokens, cell, sound))
            or axis(cut[name, id(tokens)] if labelled else ("",) * len(tokens), cell)
            for name, tokens, cell in (("rows", sides.queries, height), ("keys", sides.keys, width))
        )
        if labelled:
            rows = replace(rows, brackets=brackets(sides.queries, spans))
            cols = replace(cols, brackets=brackets(sides.keys, spans))
        upright = cols.line is None and (
            ruler.widest(cols.shown, cols.size) > width * cols.every - 0.04
        )
        room = cols.length if len(maps) > 1 else _title_room(rows, cols, ruler)
        lines = (
            ruler.wrapped(spelled(title, missing), title_size, room, title=True) if title else []
        )
        if len(maps) > 1:
            lines = _short(spelled(title, missing), lines, ruler, title_size, room)
        breaks = (sentence_breaks(sides.queries), sentence_breaks(sides.keys))
        pools = (rows.pool(dpi), cols.pool(dpi))
        layout = (rows, cols, upright, pools, breaks, shades.unselected(masked))
        panels.append(
            Panel(lines, shades.shades(array, style, top), array, shades.hidden(masked), *layout)
        )
    shared = all(sides == maps[0][2] for _, _, sides in maps)
    notes = [note for note in (spelled(caption, missing), style.left_out) if note]
    if _in_column(maps) and paper.current().title is None:
        notes.insert(0, spelled(labels.visible(maps[0][0]), missing))
    if any(panel.mask is not None for panel in panels):
        notes.append(
            masked_note(style.palette, unselected=any(p.unselected is not None for p in panels))
        )
    if any(sides.queries.written for _, _, sides in maps):
        notes.append(WRITTEN_NOTE)
    if any(axis.line and axis.line.frames < len(axis.labels) for p in panels for axis in p.axes):
        notes.append("after the waveform: frames that the model added")
    marked = [(b, axis.cell) for panel in panels for axis in panel.axes for b in axis.brackets]
    if any(bracket_name(b.name, cell * (b.end - b.start), ruler) != b.name for b, cell in marked):
        names = ", ".join(dict.fromkeys(b.name for b, _ in marked))
        notes.append(spelled(f"brackets: {names}", missing))
    if missing:
        notes.append(CODED)
    return HeatmapPage(panels, across, shared, ruler, title_size, style, narrow=_in_column(maps),
                       top=top, notes=notes if small_print else None)  # fmt: skip


def _in_column(maps: Sequence[object]) -> bool:
    """Whether a single map goes into a paper's column."""
    width = paper.current().width
    return len(maps) == 1 and width is not None and width <= _COLUMN


def _title_room(rows: Axis, columns: Axis, ruler: Ruler) -> float:
    """Measure what a single map's title may take: on a page of a width, what labels leave of it."""
    width = paper.current().width
    if width is None:
        return max(columns.length, _TITLE_ROOM)
    return max(width / canvas.text_scale() - 2 * MARGIN - beside(rows, ruler), _LEAST_TITLE)


def _short(title: str, lines: list[str], ruler: Ruler, size: float, room: float) -> list[str]:
    """Shorten a title of a map among several to the head, or its numbers, where it must fit."""
    head, _, roles = title.partition(": ")
    plain = _SCORES.sub("", roles)
    for text in (title, f"{head}: {plain}", f"{head}\n{plain}", head, head.removeprefix("head ")):
        shorter = [
            line
            for part in text.split("\n")
            for line in ruler.wrapped(part, size, room, title=True)
        ]
        if len(shorter) <= labels.TITLE_LINES and ruler.widest(shorter, size) <= room:
            return shorter
    return labels.title_lines(lines)


def draw(axes: Axes, weights: NDArray[np.floating[Any]], sides: Sides, style: Style) -> None:
    """Draw a map [T, S] on axes as they are: masked cells not allowed, NaN not selected."""
    array, left_out = shades.checked(weights, sides), shades.unselected(weights)
    scaled = shades.shades(array, style, shades.largest([array]))
    cells_ = np.ma.array(scaled, mask=np.ma.getmaskarray(weights))
    if left_out is not None:  # beyond the scale, where nothing else is
        cells_[left_out] = 2.0
    axes.imshow(cells_, cmap=_colors(style.palette), vmin=0, vmax=1, interpolation="nearest")
    if not style.labels:
        axes.set_xticks([])
        axes.set_yticks([])
        return
    axes.set_xticks(range(len(sides.keys)), labels.token_labels(sides.keys), rotation=90)
    axes.set_yticks(range(len(sides.queries)), labels.row_labels(sides.queries))


def _colors(palette: str) -> Colormap:
    """Return the colours of a map's cells; what is not selected lies beyond the scale."""
    scale = LinearSegmentedColormap.from_list(palette, anchors(palette))
    return scale.with_extremes(bad=masked_color(palette), over=UNSELECTED)


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
        self.colors = _colors(style.palette)
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
        below_all = len(lines) * 7 * LEADING / 72 + (_PAD if lines else 0)
        body = max(block_y + below, bar_high + 0.1)
        height = MARGIN + above + body + below_all + MARGIN
        figure = Figure(figsize=(width, height), dpi=self.style.dpi)
        for number, panel in enumerate(self.panels):
            row, column = divmod(number, self.across)
            x = MARGIN + left + column * step_x
            y = height - MARGIN - above - row * step_y - panel.rows.length
            box = (x / width, y / height, panel.columns.length / width, panel.rows.length / height)
            axes = figure.add_axes(box)
            self._panel(axes, panel)
            last = number + self.across >= len(self.panels)
            rows, columns = not self.shared or column == 0, not self.shared or last
            self._label(axes, panel, rows, columns)
            for side, labelled in zip(panel.axes, (rows, columns), strict=True):
                if labelled:
                    _wave(axes, side, vertical=side is panel.rows)
                    _brackets(axes, side, self.ruler, vertical=side is panel.rows)
        bar = figure.add_axes(
            (
                (MARGIN + left + block_x + self.bar.before) / width,
                (height - MARGIN - above - bar_high) / height,
                self.bar.wide / width,
                bar_high / height,
            )
        )
        top = 1.0 if self.style.relative(len(self.panels)) else self.top
        color_bar(figure, bar, self.colors, self.style.ticks(top), meaning, self.bar.text)
        if self.shared and len(self.panels) > 1:
            middle_x = (MARGIN + left + block_x / 2) / width
            middle_y = (height - MARGIN - above - block_y / 2) / height
            low = (height - MARGIN - above - block_y - below) / height
            figure.text(
                MARGIN / width, middle_y, _QUERY, rotation=90, va="center", color=GREY, fontsize=8
            )
            figure.text(middle_x, low, _KEY, ha="center", va="bottom", color=GREY, fontsize=8)
        foot(figure, lines, MARGIN, 7 * LEADING / 72)
        return figure

    def _panel(self, axes: Axes, panel: Panel) -> None:
        """Draw one map with its title."""
        queries, keys = panel.shades.shape
        blocks = shades.binned(panel.shades, *panel.pool, signed=self.style.signed)
        if panel.mask is not None:
            blocks = np.ma.array(blocks, mask=shades.binned_mask(panel.mask, *panel.pool))
            if panel.unselected is not None:  # beyond the scale, where nothing else is
                blocks[shades.binned_unselected(panel.unselected, panel.mask, *panel.pool)] = 2.0
        ruled = max(queries, keys) <= RULED and panel.pool == (1, 1)
        width = min(0.5, 1.5 * min(panel.rows.cell, panel.columns.cell)) if ruled else None
        draw_cells(axes, blocks, (queries, keys), self.colors, width)
        for token in panel.breaks[0]:
            axes.axhline(token - 0.5, color=self.line, linewidth=2.0)
        for token in panel.breaks[1]:
            axes.axvline(token - 0.5, color=self.line, linewidth=2.0)
        for spine in axes.spines.values():
            spine.set_color(GREY)
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
        named = not self.shared or len(self.panels) == 1
        for side, marks, labelled, name, angle in (
            (panel.rows, axes.yaxis, rows, _QUERY, 0),
            (panel.columns, axes.xaxis, columns, self.key, 90 * panel.turned),
        ):
            marks.set_visible(labelled)
            if not labelled:
                continue  # marks that nobody sees take as long to make
            marks.set_tick_params(length=1.5, width=0.4, pad=1.5, color=GREY)
            if side.line is not None or side.brackets:
                marks.set_tick_params(length=0, pad=72 * _strip(side))
            marks.set_ticks([token for token, _ in side.ticks] if self.labels else [])
            if self.labels:
                marks.set_ticklabels(side.shown, fontsize=side.size, rotation=angle,
                                     family=self.ruler.families)  # fmt: skip
            marks.labelpad = 3
            marks.set_label_text(name if named else "", fontsize=8, color=GREY)

    def _notes(self) -> list[str]:
        """Say where tokens had to go without a label or without a pixel of their own."""
        step = max(max(panel.rows.every, panel.columns.every) for panel in self.panels)
        pooled = max(max(panel.pool) for panel in self.panels)
        notes = []
        if step > 1 and self.labels:
            notes.append(f"one token in {step} is labelled")
        if pooled > 1:
            notes.append(f"{pooled} tokens share a pixel, which shows the largest of their weights")
        return notes


def draw_cells(
    axes: Axes, blocks: Any, size: tuple[int, int], colors: Colormap, ruled: float | None
) -> None:
    """Draw blocks of shades over so many queries and keys, white lines of ``ruled`` points between.

    None of these where they are many, or share pixels.
    """
    queries, keys = size
    if ruled is not None:
        columns, rows = np.arange(keys + 1) - 0.5, np.arange(queries + 1) - 0.5
        axes.pcolormesh(columns, rows, blocks, cmap=colors, vmin=0, vmax=1, edgecolors="white",
                        linewidth=ruled)  # fmt: skip
    else:
        axes.imshow(blocks, cmap=colors, vmin=0, vmax=1, aspect="auto", interpolation="nearest",
                    extent=(-0.5, keys - 0.5, queries - 0.5, -0.5))  # fmt: skip
    axes.set_xlim(-0.5, keys - 0.5)
    axes.set_ylim(queries - 0.5, -0.5)


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
        strip.fill_betweenx(edges, low, high, step="post", color=GREY, linewidth=0.3)
        strip.set(xlim=(-1.02, 1.02), ylim=(len(axis.peaks), 0))
    else:
        strip.fill_between(edges, low, high, step="post", color=GREY, linewidth=0.3)
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


def _beside(axes: Axes, distance: float, deep: float, part: float, *, vertical: bool) -> Axes:
    """Add axes without lines along a part of a map's side, from inches away on ``deep`` inches."""
    box, figure = axes.get_position(), axes.get_figure(root=True)
    assert figure is not None
    width, height = figure.get_size_inches()
    if vertical:
        bounds = (box.x0 - distance / width, box.y1 - box.height * part, deep / width,
                  box.height * part)  # fmt: skip
    else:
        bounds = (box.x0, box.y0 - distance / height, box.width * part, deep / height)
    strip = figure.add_axes(bounds)
    strip.axis("off")
    return strip


def _numbers(axes: Axes, panel: Panel, colors: Colormap) -> None:
    """Write the weights themselves, in cells that are large enough."""
    for (row, column), weight in np.ndenumerate(panel.weights):
        if abs(weight) < 0.005 or (panel.mask is not None and panel.mask[row, column]):
            continue
        paint = to_hex(colors(float(panel.shades[row, column])))
        axes.text(column, row, labels.cell_number(float(weight)), ha="center", va="center",
                  fontsize=7, color=ink(paint))  # fmt: skip
