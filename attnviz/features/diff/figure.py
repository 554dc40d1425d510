"""Differences as a figure: the distances of all heads, signed maps of those that differ most."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from attnviz.drawing import grid_figure
from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import GREY, HeadedFigure
from attnviz.drawing.grid import BLUE, NONE, ORANGE
from attnviz.drawing.labels import number, shorten, token_labels
from attnviz.errors import UsageError
from attnviz.features.diff import description
from attnviz.features.diff.result import Diff

_MARGIN, _SIDE, _GAP = 0.25, 2.6, 0.35
_LABELLED = 40  # tokens up to which they are written on the axes
_LONGEST = 14
_COLORS = LinearSegmentedColormap.from_list("signed", [ORANGE, NONE, BLUE])


@picture
def draw(report: Diff, dpi: float, top: int = 4) -> Figure:
    """Return the figure: the grid of heads, then their maps side by side."""
    if report.kind != "maps":
        raise UsageError(f"two reports of {report.kind} have no maps to draw; compare captures")
    layout, largest_maps = report.layout, description.mapped(report, top)
    kinds = {head.site.kind for head, _ in largest_maps}
    labels = {kind: tuple(token_labels(tokens) for tokens in (report.sides[kind].queries,
              report.sides[kind].keys)) for kind in kinds}  # fmt: skip
    title, note = description.title(report), description.below(report)
    texts = (t for pair in labels.values() for u in pair for t in u)
    sheet = HeadedFigure(title, [note], dpi, texts, _MARGIN)
    named = {kind: tuple([sheet.text(shorten(t, _LONGEST)) for t in side] for side in pair)
             for kind, pair in labels.items()}  # fmt: skip
    room = (
        max((sheet.ruler.widest(side, 6) for pair in named.values() for side in pair), default=0.0)
        + 0.2
    )
    grid_wide, grid_high = grid_figure.signed_size(layout)
    width = 2 * _MARGIN + 0.5 + grid_wide + len(largest_maps) * (_SIDE + room + _GAP) + 0.2
    y = sheet.begin(width) + 0.5
    high = y + _MARGIN + max(grid_high + 0.4, (_SIDE + room + 0.3) if largest_maps else 0.0)
    figure = sheet.figure(high)
    x = _MARGIN + 0.5
    names = {layout.name(head): head for head in layout}
    far = {
        names[change.name]: change.distance.mean
        for change in report.heads
        if change.distance is not None
    }
    axes = sheet.axes(x, y, grid_wide, grid_high)
    grid_figure.draw_signed(
        axes, layout, far, max(far.values(), default=0.0), orange=description.UP,
        legend="mean distance of each head's rows",
    )  # fmt: skip
    x += grid_wide + room + _GAP
    most = max((float(abs(report.maps[head]).max()) for head, _ in largest_maps), default=1.0)
    for head, change in largest_maps:
        axes = sheet.axes(x, y, _SIDE, _SIDE)
        axes.imshow(report.maps[head], cmap=_COLORS, vmin=-most, vmax=most, aspect="auto",
                    interpolation="nearest")  # fmt: skip
        axes.set_title(f"{change.name}: {number(change.largest())}", fontsize=8, loc="left")
        queries, keys = named[head.site.kind]
        _label(axes, queries, keys, sheet.families)
        x += _SIDE + room + _GAP
    if largest_maps:
        figure.text(_MARGIN / width, 0.08 / high, f"maps: {description.MEANING}, full colour at a "
                    f"difference of {most:.2g}", fontsize=7, color=GREY)  # fmt: skip
    return figure


def _label(axes: Axes, queries: list[str], keys: list[str], families: list[str]) -> None:
    """Tokens on both axes, where they are few."""
    axes.tick_params(length=1.5, width=0.4, color=GREY)
    few = max(len(queries), len(keys)) <= _LABELLED
    axes.set_yticks(range(len(queries)) if few else [], queries if few else [], fontsize=6,
                    family=families)  # fmt: skip
    axes.set_xticks(range(len(keys)) if few else [], keys if few else [], fontsize=6, rotation=90,
                    family=families)  # fmt: skip
