"""The figure of one attention map, or of a grid of them: its sizes, labels, titles and notes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnviz.core.media import Sound
from attnviz.core.tokens import Sides
from attnviz.drawing import canvas, paper
from attnviz.drawing.canvas import scale
from attnviz.drawing.fonts import CODED, Ruler, choose, spelled
from attnviz.drawing.heatmap_page import MARGIN, HeatmapPage, beside
from attnviz.drawing.labels import (
    TITLE_LINES,
    row_labels,
    shorten,
    title_lines,
    token_labels,
    visible,
)
from attnviz.drawing.palette import UNSELECTED, anchors, masked_color, masked_note
from attnviz.drawing.panels import (
    LONGEST_LABEL,
    WRITTEN_NOTE,
    Axis,
    Panel,
    axis,
    bracket_name,
    brackets,
    cells,
    maps_a_line,
    sentence_breaks,
    time_axis,
    titles_of,
)
from attnviz.drawing.shades import checked, hidden, largest, shades, unselected
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


def fitted(
    maps: Sequence[tuple[str, NDArray[np.floating[Any]], Sides]],
    style: Style,
    columns: int | None = None,
    caption: str = "",
    sound: Sound | None = None,
) -> Figure:
    """Get the figure, in the width that the paper asks for: cells grow or shrink, text does not."""
    asked = paper.current()
    if asked.width is None:
        return _page(maps, style, columns, caption, sound).draw()
    if style.size is not None:
        raise UsageError(
            "{size} is of a map and {width} of the whole file; give one", size=..., width=...
        )
    wanted = asked.width / canvas.text_scale()
    size, tried = wanted / 2, list[tuple[float, float]]()
    for _ in range(_TRIALS):
        page = _page(maps, replace(style, size=size), columns, caption, sound)
        tried.append((size, page.width))
        if abs(tried[-1][1] - wanted) < _CLOSE:
            break
        (before, was), (now, wide) = tried[-2:] if len(tried) > 1 else ((0.0, 0.0), tried[0])
        slope = (wide - was) / (now - before) if now != before and wide != was else 1.0
        size = min(max(now + (wanted - wide) / slope, _LEAST_SIZE), 50.0)
    factor = wanted / tried[-1][1]
    canvas.warn_of_small_text(paper.BASE_SIZE * canvas.text_scale() * factor, asked.width)
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
    weights = [checked(array, sides) for _, array, sides in maps]
    top = largest(weights)
    dpi, size, labels = style.dpi, style.size, style.labels
    across = min(columns or maps_a_line(len(maps)), len(maps))
    down = -(-len(maps) // across)
    raw = {("keys", id(sides.keys)): token_labels(sides.keys) for _, _, sides in maps}
    raw |= {("rows", id(sides.queries)): row_labels(sides.queries) for _, _, sides in maps}
    titles = [visible(title) if title else "" for title in titles_of(maps, bare=_in_column(maps))]
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
            rows = replace(rows, brackets=brackets(sides.queries, spans))
            cols = replace(cols, brackets=brackets(sides.keys, spans))
        turned = cols.line is None and (
            ruler.widest(cols.shown, cols.size) > wide * cols.every - 0.04
        )
        room = cols.length if len(maps) > 1 else _title_room(rows, cols, ruler)
        lines = (
            ruler.wrapped(spelled(title, missing), title_size, room, title=True) if title else []
        )
        if len(maps) > 1:
            lines = _short(spelled(title, missing), lines, ruler, title_size, room)
        breaks = (sentence_breaks(sides.queries), sentence_breaks(sides.keys))
        pools = (rows.pool(dpi), cols.pool(dpi))
        layout = (rows, cols, turned, pools, breaks, unselected(given))
        panels.append(Panel(lines, shades(array, style, top), array, hidden(given), *layout))
    shared = all(sides == maps[0][2] for _, _, sides in maps)
    notes = [note for note in (spelled(caption, missing), style.left_out) if note]
    if _in_column(maps) and paper.current().title is None:
        notes.insert(0, spelled(visible(maps[0][0]), missing))
    if any(panel.mask is not None for panel in panels):
        notes.append(masked_note(style.palette, unselected=any(p.selects for p in panels)))
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
    asked = paper.current().width
    if asked is None:
        return max(columns.length, _TITLE_ROOM)
    return max(asked / canvas.text_scale() - 2 * MARGIN - beside(rows, ruler), _LEAST_TITLE)


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
        if len(shorter) <= TITLE_LINES and ruler.widest(shorter, size) <= room:
            return shorter
    return title_lines(lines)


def draw(axes: Axes, weights: NDArray[np.floating[Any]], sides: Sides, style: Style) -> None:
    """Draw a map [T, S] on axes as they are: masked cells not allowed, NaN not selected."""
    array, masked, few = checked(weights, sides), hidden(weights), unselected(weights)
    shown = np.ma.array(
        shades(array, style, largest([array])), mask=False if masked is None else masked
    )
    if few is not None:  # beyond the scale, where nothing else is
        shown[few] = 2.0
    colors = LinearSegmentedColormap.from_list(style.palette, anchors(style.palette))
    axes.imshow(shown, cmap=colors.with_extremes(bad=masked_color(style.palette), over=UNSELECTED),
                vmin=0, vmax=1, interpolation="nearest")  # fmt: skip
    if not style.labels:
        axes.set_xticks([])
        axes.set_yticks([])
        return
    axes.set_xticks(range(len(sides.keys)), token_labels(sides.keys), rotation=90)
    axes.set_yticks(range(len(sides.queries)), row_labels(sides.queries))
