"""The figure of attention over a picture: the picture, and one panel for each head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from attnviz.core.media import Picture, Place
from attnviz.drawing import paper
from attnviz.drawing.fonts import Ruler, choose, spelled
from attnviz.drawing.labels import title_lines, visible
from attnviz.drawing.overlay import box, scaled, tinted
from attnviz.drawing.palette import anchors
from attnviz.drawing.panels import LEADING, maps_a_line
from attnviz.drawing.style import Style

_SIDE, _ALONE = 1.9, 3.4  # the longer side of a panel in inches: one of several, or the only head's
_MARGIN, _GAP, _PAD = 0.12, 0.14, 0.06
_BAR, _BAR_ROOM = 0.12, 0.85
_SIZE, _NOTE = 8.0, 7.0
_GREY = "#555555"
_MARKS = (("black", 2.4), ("white", 1.0))
"""The frame of the patch from which is looked: seen on any ground."""


def build(
    picture: Picture,
    maps: Sequence[tuple[str, NDArray[np.floating[Any]]]],
    style: Style,
    *,
    query: str,
    place: Place = (),
    caption: str = "",
) -> Figure:
    """Return the figure; see :func:`attnviz.drawing.figure.overlay_figure`."""
    shown = scaled([grid for _, grid in maps], style)
    titles = [visible(title) for title, _ in maps]
    families, missing = choose([*titles, visible(caption) if caption else "", visible(query)])
    ruler = Ruler(families, style.dpi, bold=len(choose(titles)[0]) == 1)
    high, wide = picture.pixels.shape[:2]
    side = style.size or (_ALONE if len(maps) == 1 else _SIDE)
    unit = side / max(high, wide)
    across_size, down_size = wide * unit, high * unit
    panels = [("the picture", None), *zip(titles, shown, strict=True)]
    across = min(len(panels), maps_a_line(len(panels)) if len(panels) > 2 else 2)
    down = -(-len(panels) // across)
    wrapped = [
        title_lines(ruler.wrapped(spelled(title, missing), _SIZE, across_size, title=True))
        for title, _ in panels
    ]
    above = max(map(len, wrapped)) * _SIZE * LEADING / 72 + _PAD
    notes = [spelled(visible(text), missing) for text in (query, caption) if text]
    width = _MARGIN * 2 + across * across_size + (across - 1) * _GAP + _BAR_ROOM
    notes = notes if paper.current().caption else []
    lines = [line for note in notes for line in ruler.wrapped(note, _NOTE, width - 2 * _MARGIN)]
    foot = len(lines) * _NOTE * LEADING / 72 + _PAD
    height = _MARGIN * 2 + down * (down_size + above) + (down - 1) * _GAP + foot
    figure = Figure(figsize=(width, height), dpi=style.dpi)
    for number, ((_, grid), title) in enumerate(zip(panels, wrapped, strict=True)):
        row, column = divmod(number, across)
        left = _MARGIN + column * (across_size + _GAP)
        top = height - _MARGIN - above - row * (down_size + above + _GAP)
        axes = figure.add_axes(
            (left / width, (top - down_size) / height, across_size / width, down_size / height)
        )
        image = picture.pixels if grid is None else tinted(picture, grid, style.palette)
        axes.imshow(image, interpolation="nearest", aspect="auto")
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_color(_GREY)
        if place:
            first, last, start, end = box(picture, int(place[0]), int(place[1]))
            corner = (start - 0.5, first - 0.5)
            for color, wide_line in _MARKS:
                frame = Rectangle(corner, end - start, last - first, fill=False)
                frame.set(edgecolor=color, linewidth=wide_line)
                axes.add_patch(frame)
        axes.set_title("\n".join(title), loc="left", fontsize=_SIZE, fontweight=ruler.title_weight,
                       family=ruler.families, pad=4, linespacing=1.0)  # fmt: skip
    _bar(figure, (width, height), down_size, above, style, [grid for _, grid in maps])
    for number, line in enumerate(reversed(lines)):
        figure.text(_MARGIN / width, (_MARGIN + number * _NOTE * LEADING / 72) / height, line,
                    fontsize=_NOTE, color=_GREY, va="bottom")  # fmt: skip
    return figure


def _bar(
    figure: Figure,
    size: tuple[float, float],
    high: float,
    above: float,
    style: Style,
    grids: Sequence[NDArray[np.floating[Any]]],
) -> None:
    """Draw the colour bar beside the first line of panels."""
    width, height = size
    colors = LinearSegmentedColormap.from_list(style.palette, anchors(style.palette))
    left, bottom = width - _BAR_ROOM + 0.1, height - _MARGIN - above - high
    axes = figure.add_axes((left / width, bottom / height, _BAR / width, high / height))
    relative = style.normalize != "global" and len(grids) > 1
    top = 1.0 if relative else max(float(np.max(grid)) for grid in grids)
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), colors), cax=axes)
    places, texts = zip(*style.ticks(top), strict=True)
    bar.set_ticks(list(places), labels=list(texts))
    bar.outline.set_edgecolor(_GREY)
    axes.tick_params(labelsize=_NOTE, length=2, width=0.4, color=_GREY)
    bar.set_label(style.meaning(len(grids)), fontsize=_NOTE, color=_GREY)
