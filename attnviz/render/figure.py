"""Figures for papers and notebooks: attention maps, their mosaic, and the grid of roles.

All return the bytes of a file. The same input gives the same bytes. matplotlib is imported when
the first figure is drawn; pyplot never is, so nothing touches a user's open figures or style.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.errors import UsageError
from attnviz.records import HeadsReport, Sides
from attnviz.render.palette import DEFAULT_PALETTE, anchors
from attnviz.render.scaling import check_scale

FORMATS: tuple[str, ...] = ("png", "svg", "pdf")
"""What figures can be written as."""

DPI = 150.0


def check_format(format: str) -> str:
    """The format itself; UsageError when figures cannot be written as such."""
    if format not in FORMATS:
        raise UsageError(f"no figure format {format!r}: choose one of {', '.join(FORMATS)}")
    return format


def heatmap_figure(
    maps: Sequence[tuple[str, NDArray[np.floating[Any]], Sides]],
    *,
    scale: str = "row",
    palette: str = DEFAULT_PALETTE,
    format: str = "png",
    dpi: float = DPI,
    columns: int | None = None,
    size: float | None = None,
    labels: bool = True,
    numbers: bool | None = None,
) -> bytes:
    """One attention map, or a labelled grid of them, with the tokens on both axes.

    Every size follows from the tokens: labels shrink and turn before they would overlap, and
    where even that is not enough only every n-th token is labelled, which a note says. Few tokens
    of a single map also carry their weights as numbers. Characters that no installed font has are
    spelled as code points.

    Args:
        maps: a title, the weights [T, S] and the tokens on the axes, for each head. Where all
            have the same tokens only the outer axes of the grid are labelled.
        scale: ``row`` shows each weight as a share of its row's largest, ``global`` as a share of
            the largest in all maps.
        palette: one of :data:`attnviz.render.palette.PALETTES`.
        format: one of :data:`FORMATS`.
        dpi: pixels an inch.
        columns: maps a line; by default about as many as lines.
        size: the longer side of one map in inches; by default it follows from the tokens.
        labels: whether the tokens stand on the axes.
        numbers: whether the weights stand in the cells, where these are large enough; by default
            on a single map of few tokens.

    Raises:
        InputError: when a map does not fit its tokens or is not finite.
        UsageError: when there is no map, or no such scale, palette or format.
    """
    check_format(format)
    anchors(palette)
    check_scale(scale)
    if not maps:
        raise UsageError("no attention map to draw: select at least one head")
    from attnviz.render import canvas, figure_heatmap

    return canvas.rendered(
        lambda: figure_heatmap.build(
            maps, scale, palette, dpi, columns, size=size, labels=labels, numbers=numbers
        ),
        format,
        dpi,
    )


def heads_figure(report: HeadsReport, format: str = "png", *, dpi: float = DPI) -> bytes:
    """The layer × head grid: each head in the colour and with the code of its role.

    Paler colour means a lower score; the legend counts the heads of each role. Encoder-decoder
    models get one grid for each kind of attention.

    Raises:
        UsageError: when there is no such format.
    """
    check_format(format)
    from attnviz.render import canvas, figure_heads

    return canvas.rendered(lambda: figure_heads.build(report), format, dpi)


def mosaic_figure(
    maps: Mapping[tuple[int, int], NDArray[np.floating[Any]]],
    *,
    title: str = "",
    scale: str = "row",
    palette: str = DEFAULT_PALETTE,
    format: str = "png",
    dpi: float = DPI,
    size: float | None = None,
) -> bytes:
    """:func:`attnviz.render.mosaic.mosaic_png` through matplotlib, in one of :data:`FORMATS`."""
    check_format(format)
    anchors(palette)
    from attnviz.render import canvas, figure_mosaic

    return canvas.rendered(
        lambda: figure_mosaic.build(maps, title, scale, palette, dpi, size), format, dpi
    )
