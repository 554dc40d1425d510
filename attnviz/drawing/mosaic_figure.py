"""The mosaic of all heads as a figure, for the formats that are not made of pixels."""

from __future__ import annotations

from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from attnviz.drawing import mosaic
from attnviz.drawing.fonts import Ruler, choose, spelled
from attnviz.drawing.labels import title_lines, visible
from attnviz.drawing.paint import colors
from attnviz.drawing.style import Style

_GREY = "#555555"


def build(maps: mosaic.Maps, title: str, caption: str, style: Style) -> Figure:
    """The figure; see :func:`attnviz.drawing.figure.mosaic_figure`."""
    tiles, dpi = mosaic.assemble(maps, style), style.dpi
    title = visible(title) if title else ""
    caption = visible(caption) if caption else ""
    families, missing = choose([title, caption])
    ruler = Ruler(families, dpi, bold=len(choose([title])[0]) == 1)
    high, wide = (n / dpi for n in tiles.levels.shape)
    width = max(0.7 + wide, 2.4)
    lines = title_lines(ruler.wrapped(spelled(title, missing), 10, width - 0.24, title=True))
    notes = [
        line
        for text in (spelled(caption, missing), mosaic.note(tiles, style))
        if text
        for line in ruler.wrapped(text, 7, width - 0.24)
    ]
    top, below = 0.5 + 0.18 * len(lines), 0.15 + 0.12 * len(notes)
    height = top + high + below
    figure = Figure(figsize=(width, height), dpi=dpi)
    axes = figure.add_axes((0.55 / width, below / height, wide / width, high / height))
    axes.imshow(
        tiles.levels,
        cmap=ListedColormap(colors(style.palette) / 255),
        vmin=0,
        vmax=255,
        interpolation="nearest",
        aspect="auto",
    )
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=2, labelsize=8, top=True, labeltop=True)
    axes.tick_params(bottom=False, labelbottom=False)
    for ticks, names, step, tile in (
        (axes.set_xticks, tiles.heads, tiles.step[1], tiles.tile[1]),
        (axes.set_yticks, tiles.layers, tiles.step[0], tiles.tile[0]),
    ):
        ticks([place * step + tile / 2 for place in range(len(names))], [str(n) for n in names])
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("head", fontsize=8, color=_GREY, labelpad=3)
    axes.set_ylabel("layer", fontsize=8, color=_GREY, labelpad=3)
    if lines:
        figure.text(
            0.12 / width,
            1 - 0.1 / height,
            "\n".join(lines),
            fontsize=10,
            fontweight=ruler.title_weight,
            family=families,
            va="top",
        )
    figure.text(
        0.12 / width,
        0.08 / height,
        "\n".join(notes),
        fontsize=7,
        color=_GREY,
        family=families,
        va="bottom",
    )
    return figure
