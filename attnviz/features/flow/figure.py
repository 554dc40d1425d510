"""A flow as a figure: tokens downwards, lines across the layers, shares on the same rows.

The shares are two maps, of flow and of weights, or for a followed token two bars.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.path import Path
from numpy.typing import NDArray

from attnviz.drawing import paper
from attnviz.drawing.canvas import rendered
from attnviz.drawing.charts import GREY, color_bar
from attnviz.drawing.figure import check_drawn
from attnviz.drawing.fonts import Ruler, choose, spelled
from attnviz.drawing.grid import BLUE
from attnviz.drawing.heatmap_figure import draw_cells
from attnviz.drawing.labels import shorten, token_labels
from attnviz.drawing.palette import anchors, dark, masked_color
from attnviz.drawing.panels import LONGEST_LABEL, RULED, axis, sentence_breaks
from attnviz.drawing.shades import checked, shades
from attnviz.drawing.style import Style
from attnviz.features.flow.description import (
    WEIGHTS,
    asked,
    closing,
    drawing,
    formula,
    heading,
    maps,
    method,
    sides,
)
from attnviz.features.flow.result import Flow

_PALE, _FOLLOWED = "#b9b9b9", "#fff3c4"
_MARGIN, _GAP = 0.15, 0.15
_TITLE, _NOTE = 0.18, 0.13
_ABOVE = 0.24  # room for the names of layers and maps
_ROW, _LOW, _HIGH = 0.17, 1.3, 10.0
"""From one token to the next in inches, and all of them at least and at most."""
_STEP, _LINES = 0.95, 6.0  # the width of a layer where there are few, and of all of them at most
_LEAST_STEP = 0.3  # layers are multiplied where each would have less
_MAP = 4.5  # the widest map
_BARS, _BAR = 2.4, 0.12
_THICK = 11.0  # points of a line that carries everything
_LEAST = 0.005  # the smallest share that has a line
_MOST = 8000  # lines of a picture; more make files that programs open slowly


def draw(report: Flow, format: str = "png", style: Style | None = None) -> Any:
    """Return the picture, in ``png``, ``svg`` or ``pdf``."""
    check_drawn(format)
    looks = style or Style()
    return rendered(lambda: _FlowFigure(report, looks).draw(), format, looks.dpi)


class _FlowFigure:
    """Panels side by side on shared rows, one a token."""

    def __init__(self, report: Flow, style: Style) -> None:
        self.report, self.style = report, style
        texts = token_labels(report.tokens)
        title = heading(report) if report.followed is None else asked(report, report.followed)
        below = f"{closing(report)} · {formula(report)}"
        families, missing = choose([title, below, *texts])
        self.labels = tuple(spelled(shorten(text, LONGEST_LABEL), missing) for text in texts)
        self.ruler = Ruler(families, style.dpi, bold=len(choose([title])[0]) == 1)
        self.rows = axis(self.labels, min(max(_ROW, _LOW / len(texts)), _HIGH / len(texts)))
        self.high = self.rows.length
        self.label = self.ruler.widest(self.rows.shown, self.rows.size) + 0.1
        self.lines_wide = min(_STEP * len(report.layers), _LINES)
        self.map_wide = min(self.high, _MAP)
        self.drawing = drawing(
            report, columns=int(self.lines_wide / _LEAST_STEP), least=_LEAST, limit=_MOST
        )
        self.title, self.notes = spelled(title, missing), [spelled(below, missing)]
        if not report.followed:
            self.notes.append("grey lines: what stays at its position")
        if not (report.reach.all() or report.followed):
            sand = "grey" if dark(style.palette) else "sand"
            self.notes.append(f"{sand} cells: tokens that cannot reach the position")
        if len(self.drawing.lines) == _MOST:
            self.notes.append(f"the {_MOST:,} strongest lines")
        if self.rows.every > 1:
            self.notes.append(f"one token in {self.rows.every} is labelled")
        self.breaks = sentence_breaks(report.tokens)
        self.colors = LinearSegmentedColormap.from_list(
            style.palette, anchors(style.palette)
        ).with_extremes(bad=masked_color(style.palette))

    def draw(self) -> Figure:
        """Lines on the left, shares on the right."""
        report = self.report
        left, between = _MARGIN + self.label, self.label + 0.05
        shares = _BARS if report.followed else 2 * self.map_wide + 2 * _GAP + _BAR + 0.5
        width = left + self.lines_wide + between + shares + _MARGIN
        title = paper.current().titled(self.title)
        titles = self.ruler.wrapped(title, 10, width - 2 * _MARGIN, title=True) if title else []
        notes = self.notes if paper.current().caption else []
        foot = [line for note in notes for line in self.ruler.wrapped(note, 7, width - 2 * _MARGIN)]
        top = _MARGIN + _TITLE * len(titles) + _ABOVE
        below = 0.35 if report.followed else self.label + 0.1
        self.size = (width, top + self.high + below + _NOTE * len(foot) + _MARGIN)
        self.top = top
        figure = Figure(figsize=self.size, dpi=self.style.dpi)
        for number, text in enumerate(titles):
            self._text(figure, _MARGIN + number * _TITLE, text, 10, self.ruler.title_weight)
        for number, text in enumerate(foot):
            self._text(figure, top + self.high + below + number * _NOTE, text, 7)
        self._lines(self._axes(figure, left, self.lines_wide))
        x = left + self.lines_wide + between
        if report.followed:
            self._bars(self._axes(figure, x, _BARS))
            return figure
        tables = maps(report)
        largest = max(float(table.max()) for table in tables)
        for table, title in zip(tables, (method(report), WEIGHTS), strict=True):
            self._map(self._axes(figure, x, self.map_wide), table, title, largest)
            x += self.map_wide + _GAP
        self._scale(figure, self._axes(figure, x, _BAR), largest)
        return figure

    def _text(self, figure: Figure, y: float, text: str, size: float, weight: str = "") -> None:
        """Write a line of text, by inches from the top."""
        width, height = self.size
        figure.text(_MARGIN / width, 1 - y / height, text, fontsize=size, va="top",
                    family=self.ruler.families, fontweight=weight or "normal",
                    color="black" if weight else GREY)  # fmt: skip

    def _axes(self, figure: Figure, x: float, width: float) -> Axes:
        """Axes over all rows, by inches from the left."""
        w, h = self.size
        box = (x / w, 1 - (self.top + self.high) / h, width / w, self.high / h)
        return figure.add_axes(box)

    def _lines(self, axes: Axes) -> None:
        """Lines across the layers, as thick as their shares; labels on both sides."""
        drawing = self.drawing
        thick = min(_THICK, self.high / len(self.labels) * 72)
        all_tokens = self.report.followed is None
        ordered = sorted(drawing.lines, key=lambda line: all_tokens and line.before != line.after)
        paths, colors = [], []
        for line in ordered:
            stays = all_tokens and line.before == line.after
            colors.append(to_rgba(_PALE if stays else BLUE, 0.1 + 0.8 * line.share**0.5))
            start, middle, end = line.column, line.column + 0.5, line.column + 1
            corners = [(start, line.before), (middle, line.before), (middle, line.after),
                       (end, line.after)]  # fmt: skip
            paths.append(Path(corners, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]))
        axes.add_collection(
            PathCollection(
                paths,
                linewidths=[max(thick * line.share, 0.25) for line in ordered],
                edgecolors=colors,
                facecolors="none",
                capstyle="butt",
            )
        )
        columns = len(drawing.columns)
        axes.set_xlim(0, columns)
        axes.set_ylim(len(self.labels) - 0.5, -0.5)
        axes.set_yticks(self.rows.places)
        axes.set_yticklabels(self.rows.shown, fontsize=self.rows.size, family=self.ruler.families)
        axes.tick_params(axis="y", length=0, pad=3, right=True, labelright=True)
        axes.set_xticks([n + 0.5 for n in range(columns)], drawing.columns)
        axes.xaxis.tick_top()
        axes.tick_params(axis="x", length=0, pad=1, labelsize=7, labelcolor=GREY)
        axes.annotate("layer", (0, 1), (-4, 3), xycoords="axes fraction", fontsize=7, color=GREY,
                      textcoords="offset points", ha="right")  # fmt: skip
        for name, spine in axes.spines.items():
            spine.set_visible(name in ("left", "right"))
            spine.set_color(_PALE)
        for column in range(1, columns):
            axes.axvline(column, color=_PALE, linewidth=0.4, zorder=0)
        for column in self.breaks:
            axes.axhline(column - 0.5, color=GREY, linewidth=0.8)
        for node in self.report.followed.positions if self.report.followed else ():
            axes.axhspan(node - 0.5, node + 0.5, color=_FOLLOWED, zorder=-1, linewidth=0)

    def _bars(self, axes: Axes) -> None:
        """Draw what the followed token gets or gives, by flow and by weights."""
        report, traced = self.report, self.report.followed
        assert traced is not None
        places = np.arange(len(self.labels))
        axes.barh(places - 0.2, report.shares(traced), 0.4, color=BLUE, label=method(report))
        axes.barh(places + 0.2, report.looked(traced), 0.4, color=_PALE, label="mean weights")
        axes.set_ylim(len(self.labels) - 0.5, -0.5)
        axes.set_yticks([])
        axes.set_xlim(left=0)
        axes.tick_params(axis="x", labelsize=7, length=2, color=GREY)
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, fontsize=7,
                    frameon=False, borderpad=0, handlelength=1, columnspacing=1)  # fmt: skip
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        for column in self.breaks:
            axes.axhline(column - 0.5, color=GREY, linewidth=0.8)

    def _map(self, axes: Axes, table: NDArray[Any], title: str, largest: float) -> None:
        """One map on the same rows: of flow or of weights."""
        array = checked(table, sides(self.report))
        shaded = np.ma.array(shades(array, self.style, largest), mask=np.ma.getmaskarray(table))
        count = len(self.labels)
        draw_cells(axes, shaded, (count, count), self.colors, 0.4 if count <= RULED else None)
        columns = axis(self.labels, self.map_wide / count)
        axes.set_yticks([])
        axes.set_xticks(columns.places)
        axes.set_xticklabels(
            columns.shown, fontsize=columns.size, rotation=90, family=self.ruler.families
        )
        axes.tick_params(axis="x", length=0, pad=2)
        axes.set_title(title, fontsize=7.5, loc="left", pad=3, color=GREY)
        for boundary in self.breaks:
            for line in (axes.axhline, axes.axvline):
                line(boundary - 0.5, color="white" if dark(self.style.palette) else "black")

    def _scale(self, figure: Figure, axes: Axes, largest: float) -> None:
        """Draw the colour bar of both maps."""
        ticks = self.style.ticks(largest)
        color_bar(figure, axes, self.colors, ticks, "share of the row", 7.5)
