"""A treebank's relations as a figure: best head against best offset, and the grid of heads."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attnviz.annotated import Relation, SyntaxReport
from attnviz.records import Head, Site
from attnviz.render.canvas import rendered
from attnviz.render.fonts import Ruler, choose, spelled
from attnviz.render.grammar.terminal import COLOR, FULL, strongest
from attnviz.render.grammar.words import SHORT, measured
from attnviz.render.labels import model_name, shorten, visible
from attnviz.render.palette import ink, mix

_GREY, _OFFSET, _EMPTY = "#555555", "#b0b0b0", "#f0f0f0"
_LISTED = 20
_BAR, _MARGIN, _BARS = 0.24, 0.2, 3.2
_CELL = (0.5, 0.27)


def syntax_figure(report: SyntaxReport, format: str = "png", dpi: float = 150) -> bytes:
    """The picture, in ``png``, ``svg`` or ``pdf``."""
    return rendered(lambda: build(report, dpi), format, dpi)


def build(report: SyntaxReport, dpi: float) -> Figure:
    """The figure: bars of the most frequent relations, and the grid beside them."""
    kind = report.layout.kinds[0]
    rows, columns = report.layout.layers(kind), max(report.layout.heads[kind])
    listed = [r for r in report.relations if r.best and r.best.accuracy.value is not None]
    listed = listed[:_LISTED]
    names = [_name(report, relation) for relation in listed]
    title, below = f"{model_name(report.source)}: heads that follow grammar", measured(report)
    families, missing = choose([title, below, *names])
    title, below = spelled(title, missing), spelled(below, missing)
    ruler = Ruler(families, dpi, bold=len(choose([title])[0]) == 1)
    label = ruler.widest(names, 7) + 0.1
    wide = 2 * _MARGIN + label + _BARS + 0.6 + columns * _CELL[0]
    lines = ruler.wrapped(below, 7, wide - 2 * _MARGIN)
    top = _MARGIN + 0.3 + 0.13 * len(lines) + 0.35
    body = max(len(listed) * _BAR, rows * _CELL[1])
    high = top + body + 0.5 + _MARGIN
    figure = Figure(figsize=(wide, high), dpi=dpi)
    figure.text(
        _MARGIN / wide, 1 - _MARGIN / high, title, fontsize=11, va="top", family=families,
        fontweight=ruler.title_weight,
    )  # fmt: skip
    for number, line in enumerate(lines):
        y = 1 - (_MARGIN + 0.26 + 0.13 * number) / high
        figure.text(_MARGIN / wide, y, line, fontsize=7, va="top", color=_GREY, family=families)

    def place(x: float, w: float, h: float) -> tuple[float, float, float, float]:
        return x / wide, 1 - (top + h) / high, w / wide, h / high

    bars = figure.add_axes(place(_MARGIN + label, _BARS, max(len(listed), 1) * _BAR))
    _bars(bars, listed, [spelled(name, missing) for name in names])
    x = _MARGIN + label + _BARS + 0.6
    _grid(figure.add_axes(place(x, columns * _CELL[0], rows * _CELL[1])), report, rows, columns)
    return figure


def _name(report: SyntaxReport, relation: Relation) -> str:
    assert relation.best is not None
    head = report.layout.name(relation.best.head)
    return f"{shorten(visible(relation.name), 16)}  {head} {SHORT[relation.best.direction]}"


def _bars(axes: Axes, listed: list[Relation], names: list[str]) -> None:
    for number, relation in enumerate(listed):
        best = relation.best
        assert best is not None
        accuracy = best.accuracy
        axes.barh(number - 0.17, 100 * (accuracy.value or 0.0), height=0.34, color=COLOR)
        axes.barh(number + 0.17, 100 * (best.offset_accuracy or 0.0), height=0.34, color=_OFFSET)
        if accuracy.low is not None and accuracy.high is not None:
            ends = [100 * accuracy.low, 100 * accuracy.high]
            axes.plot(ends, [number - 0.17] * 2, color="#1b1b1b", linewidth=1)
    axes.set_yticks(range(len(listed)), names)
    axes.set_ylim(len(listed) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.tick_params(axis="y", length=0, labelsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel(
        "accuracy in % with 95 % interval (green: best head, grey: best offset)", fontsize=7
    )
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _grid(axes: Axes, report: SyntaxReport, rows: int, columns: int) -> None:
    found, kind = strongest(report), report.layout.kinds[0]
    for layer, count in enumerate(report.layout.heads[kind]):
        for index in range(count):
            role = found.get(Head(Site(kind, layer), index))
            paint = _EMPTY
            if role is not None:
                paint = mix("#ffffff", COLOR, min((role.margin.value or 0.0) / FULL, 1.0))
                axes.text(
                    index + 0.5, layer + 0.5, shorten(visible(role.relation), 8), ha="center",
                    va="center", fontsize=6, color=ink(paint),
                )  # fmt: skip
            axes.add_patch(Rectangle((index, layer), 1, 1, facecolor=paint, edgecolor="white"))
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.set_xticks([n + 0.5 for n in range(columns)], [str(n) for n in range(columns)])
    axes.set_yticks([n + 0.5 for n in range(rows)], [str(n) for n in range(rows)])
    axes.tick_params(length=0, labelsize=7)
    axes.xaxis.tick_top()
    axes.set_xlabel(
        f"head; the relation found ten points above its offset, full colour at {100 * FULL:.0f}",
        fontsize=7,
    )
    axes.set_ylabel("layer", fontsize=7)
    for side in axes.spines.values():
        side.set_visible(False)
