"""Figures for papers and notebooks: attention maps and the grid of roles.

All return the bytes of a file, or with the format ``figure`` matplotlib's own object. The same
input gives the same bytes. matplotlib is imported when the first figure is drawn; pyplot never is,
so nothing touches a user's open figures. What a paper asks of them is in
:mod:`attnviz.drawing.paper`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.media import Sound
from attnviz.core.scores import ScoredHeads
from attnviz.core.tokens import Sides
from attnviz.drawing import paper
from attnviz.drawing.style import Style
from attnviz.errors import UsageError

FORMATS: tuple[str, ...] = ("png", "svg", "pdf")  # what figures can be written as


def check_drawn(format: str, maps: Sequence[Any] | None = None) -> None:
    """UsageError for a format that there is not (``figure`` is one), and where no map is drawn."""
    if format not in (*FORMATS, "figure"):
        raise UsageError(f"unknown figure format {format!r}: choose one of {', '.join(FORMATS)}")
    if maps is not None and not maps:
        raise UsageError("no attention map to draw: select at least one head")


def is_plain(format: str) -> bool:
    """Whether a picture is on pixels of our own: a PNG without matplotlib, as large as it gets."""
    from attnviz.drawing import fonts

    sheet = paper.current()
    return format == "png" and fonts.OWN and not (sheet.width or sheet.font or sheet.mplstyle)


def heatmap_figure(
    maps: Sequence[tuple[str, NDArray[np.floating[Any]], Sides]],
    style: Style | None = None,
    *,
    format: str = "png",
    columns: int | None = None,
    caption: str = "",
    sound: Sound | None = None,
) -> Any:
    """One attention map, or a labelled grid of them, with the tokens on both axes.

    Every size follows from the tokens: labels shrink and turn before they would overlap, and
    where even that is not enough only every n-th token is labelled, which a note says. Few tokens
    of a single map also carry their weights as numbers. Characters that no installed font has are
    spelled as code points.

    ``maps``: a title, the weights [T, S] and the tokens on the axes, for each head; the masked
    cells of a masked array are keys that the query may not attend to. Where all have the same
    tokens only the outer axes of the grid are labelled; ``sound``: its waveform and seconds stand
    along the axes whose tokens are its frames.
    """
    check_drawn(format, maps)
    style = style or Style()
    sides = maps[0][2]
    shared = all(both == sides and not both.queries.spans for _, _, both in maps)
    if is_plain(format) and shared and sound is None:
        from attnviz.drawing.labels import row_labels
        from attnviz.drawing.panels import WRITTEN_NOTE, titles_of
        from attnviz.drawing.raster import heatmap_png

        if sides.queries.written:
            sides = replace(sides, queries=replace(sides.queries, texts=row_labels(sides.queries)))
            caption = f"{caption}; {WRITTEN_NOTE}" if caption else WRITTEN_NOTE
        named = zip(titles_of(maps), maps, strict=True)
        titled = [(title, m, sides) for title, (_, m, _) in named]
        return heatmap_png(titled, style, caption, columns)[0]
    from attnviz.drawing import canvas
    from attnviz.drawing import heatmap_figure as figure_heatmap

    return canvas.rendered(lambda: figure_heatmap.fitted(maps, style, columns, caption, sound),
                           format, style.dpi, fitted=True)  # fmt: skip


def heads_figure(report: ScoredHeads, format: str = "png") -> Any:
    """Draw the layer × head grid by roles, paler for less, one a kind of attention; with counts."""
    check_drawn(format)
    from attnviz.drawing import grid_figure as figure_heads

    dpi = Style().dpi
    if is_plain(format):
        figure: Any = figure_heads.build(report, dpi)
        return figure.png()
    from attnviz.drawing import canvas

    return canvas.rendered(lambda: figure_heads.build(report, dpi), format, dpi)
