"""A page of pictures of what heads do over many texts: one row for each kind of attention."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Bbox

from attnviz.drawing import canvas, paper
from attnviz.drawing import grid_figure as figure_heads
from attnviz.drawing.charts import GREY
from attnviz.drawing.figure import check_drawn
from attnviz.drawing.fonts import choose, spelled
from attnviz.drawing.grid import grids, tally
from attnviz.drawing.labels import counted, model_name
from attnviz.drawing.style import Style
from attnviz.features.profile.description import report
from attnviz.features.profile.result import HeadProfile, Profile
from attnviz.scoring.roles import drawn

_PALE = "#c4c4c4"
_PANEL, _MARGIN, _GAP = 2.9, 0.35, 0.75  # inches
_CURVES = 6
_FARTHEST = 32
_BESIDE = (
    ((3, 2), "left", "bottom"),
    ((-3, -2), "right", "top"),
    ((3, -2), "left", "top"),
    ((-3, 2), "right", "bottom"),
)
"""Where the name of a head may stand: away from its dot in points, and how it is aligned."""
_MANY = 24  # heads of a layer above which roles have their short codes


def draw(result: Profile, format: str = "png") -> Any:
    """Draw a profile: roles, entropy by layer, distances, the plane of heads."""
    check_drawn(format)
    return canvas.rendered(lambda: build(result), format, Style().dpi)


def build(profile: Profile) -> Figure:
    """Return the same as a matplotlib figure."""
    layer_grids, kinds = grids(report(profile)), profile.layout.kinds
    short = max(grid.heads for grid in layer_grids) > _MANY
    tile = 0.28 if short else 0.36
    widths = [max(1.6, tile * grid.heads) + 0.3 for grid in layer_grids]
    heights = [max(_PANEL, 0.24 * grid.layers + 0.3) for grid in layer_grids]
    legend = 2.2
    width = 2 * _MARGIN + max(widths) + legend + 3 * _PANEL + 4 * _GAP
    height = 2 * _MARGIN + 0.75 + sum(heights) + (len(kinds) - 1) * 1.0 + 0.5
    figure = Figure(figsize=(width, height))
    _headline(figure, profile, width, height)
    top = height - _MARGIN - 1.05
    for kind, grid, grid_x, panel_y in zip(kinds, layer_grids, widths, heights, strict=True):
        members = [head for head in profile.heads if head.head.site.kind == kind]
        start = _MARGIN + 0.3

        def panel(x: float, y: float, w: float, h: float) -> Axes:
            return figure.add_axes((x / width, (y - h) / height, w / width, h / height))

        grid_high = 0.24 * grid.layers
        axes = panel(start, top, grid_x - 0.3, grid_high)
        figure_heads.draw(axes, grid, 6.5, short=short)
        beside = panel(start + grid_x, top, legend, panel_y)
        figure_heads.legend(beside, tally(report(profile)), legend, panel_y, short=short)
        start = _MARGIN + max(widths) + legend + _GAP
        _entropy(panel(start, top, _PANEL, panel_y), members)
        if kind != "cross":
            _distances(panel(start + _PANEL + _GAP, top, _PANEL, panel_y), profile, members)
        _plane(panel(start + 2 * (_PANEL + _GAP), top, _PANEL, panel_y), profile, members)
        top -= panel_y + 1.0
    return figure


def _headline(figure: Figure, profile: Profile, width: float, height: float) -> None:
    parts = [counted(profile.texts, "text"), counted(profile.tokens, "token")]
    if profile.grouped:
        parts.append(counted(profile.clusters, "group"))
    parts.append("95 % intervals" + (", all at once" if profile.simultaneous else ""))
    parts.append(f"similarity from {counted(profile.alike_texts, 'text')}")
    title = paper.current().titled(f"{model_name(profile.source)}: what its heads do")
    families, missing = choose([title])
    baseline = (height - _MARGIN) / height
    figure.text(_MARGIN / width, baseline, spelled(title, missing), fontsize=12, fontweight="bold",
                family=families, va="top")  # fmt: skip
    below = " · ".join(paper.captions(parts))
    figure.text(_MARGIN / width, baseline - 0.26 / height, below, fontsize=8, color=GREY, va="top")


def _entropy(axes: Axes, heads: list[HeadProfile]) -> None:
    """Entropy by layer: a dot a head, its interval, the mean of the layer, and chance."""
    layers: dict[int, list[float]] = {}
    chances: dict[int, list[float]] = {}
    for head in heads:
        estimate = head.estimates["entropy"]
        if estimate.mean is None or estimate.chance is None:
            continue
        layer = head.head.layer
        beside = [neighbour for neighbour in heads if neighbour.head.layer == layer]
        x = layer + 0.6 * ((beside.index(head) + 0.5) / len(beside) - 0.5)
        layers.setdefault(layer, []).append(estimate.mean)
        chances.setdefault(layer, []).append(estimate.chance)
        color = _color(head)
        if estimate.low is not None and estimate.high is not None:
            axes.plot((x, x), (estimate.low, estimate.high), color=color, linewidth=1)
        axes.plot(x, estimate.mean, "o", color=color, markersize=3.5, markeredgewidth=0)
    numbers = sorted(layers)
    means = [sum(layers[n]) / len(layers[n]) for n in numbers]
    axes.plot(numbers, means, color=GREY, linewidth=0.8, zorder=0)
    uniform = [sum(chances[n]) / len(chances[n]) for n in numbers]
    axes.plot(numbers, uniform, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
    if numbers:
        axes.annotate(
            "uniform", (numbers[-1], uniform[-1]), (0, 2), textcoords="offset points",
            fontsize=6, color=GREY, ha="right",
        )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _style(axes, "entropy by layer", "layer", "bits")


def _distances(axes: Axes, profile: Profile, heads: list[HeadProfile]) -> None:
    """Draw the weight by distance, of the head that shows each role best."""
    chosen: dict[str, tuple[float, HeadProfile]] = {}
    for head in heads:
        for role in head.scores.roles[:1]:
            mean = role.evidence.mean or 0.0
            if role.name != "diffuse" and mean > chosen.get(role.name, (0.0, head))[0]:
                chosen[role.name] = mean, head
    best = sorted(chosen.items(), key=lambda pair: -pair[1][0])[:_CURVES]
    reach = _reached(heads)
    offsets = range(reach.start - _FARTHEST, reach.stop - _FARTHEST)
    for name, (_, head) in best:
        shares = [share.weight for share in head.distances[1:-1][reach]]
        label = f"{profile.layout.name(head.head)} {name}"
        axes.plot(offsets, shares, color=drawn(name).color, linewidth=1.2, label=label)
    if heads and heads[0].distances:
        uniform = [share.uniform for share in heads[0].distances[1:-1][reach]]
        axes.plot(offsets, uniform, ":", color=GREY, linewidth=0.8, label="uniform")
    axes.set_yscale("log")
    axes.set_ylim(1e-4, 1.1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g}"))
    if best:
        axes.legend(fontsize=6, frameon=False, loc="upper left", handlelength=1.2)
    _style(axes, "weight by distance", "key position minus query position", "share of weight")


def _reached(heads: list[HeadProfile]) -> slice:
    """Return the distances that weight can have: a causal model looks at no later key."""
    columns = zip(*(head.distances[1:-1] for head in heads), strict=True)
    reached = [n for n, shares in enumerate(columns) if any(share.uniform for share in shares)]
    return slice(reached[0], reached[-1] + 1) if reached else slice(0, 0)


def _plane(axes: Axes, profile: Profile, heads: list[HeadProfile]) -> None:
    """Heads that look at the same stand near each other."""
    located = [head for head in heads if head.place is not None]
    for head in located:
        assert head.place is not None
        plain = not head.scores.roles
        axes.plot(*head.place, "o", color=_color(head), markersize=3.5 if plain else 5,
                  markeredgewidth=0, zorder=1 if plain else 2)  # fmt: skip
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.08)
    _style(axes, "similar heads are close together", "", "")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color("#e0e0e0")
    _names(axes, profile, located)
    roles = list(dict.fromkeys(f.scores.roles[0].name for f in located if f.scores.roles))
    dots = [
        Line2D([], [], marker="o", linestyle="", markersize=4, color=drawn(name).color)
        for name in roles
    ]
    axes.legend(
        dots, roles, fontsize=6, frameon=False, loc="upper center", ncols=4,
        bbox_to_anchor=(0.5, -0.01), handletextpad=0.1, columnspacing=0.8,
    )  # fmt: skip


def _names(axes: Axes, profile: Profile, heads: list[HeadProfile]) -> None:
    """Write heads' names, those with roles first, where they touch no other name or dot."""
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    figure.draw_without_rendering()
    area = axes.get_window_extent(renderer)
    dots = [line.get_window_extent(renderer) for line in axes.get_lines()]
    occupied: list[Bbox] = []
    order = sorted(heads, key=lambda head: (not head.scores.roles, head.head))
    for head in order:
        assert head.place is not None
        color = "#000000" if head.scores.roles else GREY
        for offset, ha, va in _BESIDE:
            text = axes.annotate(
                profile.layout.name(head.head).rpartition(":")[2],
                head.place, offset, textcoords="offset points",
                fontsize=5.5, color=color, ha=ha, va=va,
            )  # fmt: skip
            box = text.get_window_extent(renderer)
            inside = area.x0 <= box.x0 and box.x1 <= area.x1
            if inside and not any(box.overlaps(neighbour) for neighbour in (*occupied, *dots)):
                occupied.append(box)
                break
            text.remove()


def _color(head: HeadProfile) -> str:
    return drawn(head.scores.roles[0].name).color if head.scores.roles else _PALE


def _style(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=9, loc="left", pad=6)
    axes.set_xlabel(x, fontsize=8, color=GREY)
    axes.set_ylabel(y, fontsize=8, color=GREY)
    axes.tick_params(labelsize=7, labelcolor=GREY, length=2)
    axes.spines[["top", "right"]].set_visible(False)
