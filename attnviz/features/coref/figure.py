"""Heads that find antecedents as a figure: the best beside the baselines, kinds, and the grid."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnviz.core.result import Interval
from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import MARGIN, HeadedFigure, name_bars, share_bars
from attnviz.drawing.console import COLOR, FULL
from attnviz.drawing.grid_figure import cell, draw_grid, size
from attnviz.drawing.labels import model_name
from attnviz.features.coref.description import MARK, SHORT, baseline_name, coref_tiles, measured
from attnviz.features.coref.result import Coref

_BASELINE = "#b0b0b0"
_LISTED = 8
_BAR, _BARS, _GAP = 0.2, 3.0, 0.12


_Bar = tuple[str, Interval, str]  # a head or a baseline, its accuracy with the interval, a colour


@picture
def draw(report: Coref, dpi: float) -> Figure:
    """Draw bars of the best heads, of baselines and of each kind; the grid beside them."""
    groups = _groups(report)
    names = [name for group in groups for name, *_ in group]
    title = f"{model_name(report.source)}: heads that find antecedents"
    sheet = HeadedFigure(title, [measured(report)], dpi, names)
    label = sheet.ruler.widest(names, 7) + 0.1
    grid_wide, grid_high = size(report.layout)
    width = 2 * MARGIN + label + _BARS + 0.6 + max(grid_wide, 8 * cell(report.layout)[0])
    top = sheet.begin(width) + 0.45
    bars = sum(len(group) * _BAR for group in groups) + _GAP * (len(groups) - 1)
    figure = sheet.figure(top + max(bars, grid_high) + 0.5 + MARGIN)
    _bars(sheet.axes(MARGIN + label, top, _BARS, bars), groups)
    x = MARGIN + label + _BARS + 0.6
    axes = sheet.axes(x, top, grid_wide, grid_high)
    draw_grid(axes, report.layout, coref_tiles(report), _caption(report))
    return figure


def _groups(report: Coref) -> list[list[_Bar]]:
    """Give the best heads with the baselines, and for each kind its head with its best baseline."""
    everything = report.everything
    sure = {role.head for role in report.roles}
    listed = [
        (
            f"{report.layout.name(f.head)} {SHORT[f.direction]}{MARK * (f.head in sure)}",
            f.accuracy,
            COLOR,
        )
        for f in everything.ranked[:_LISTED]
    ]
    listed += [
        (baseline_name(report, baseline.name), baseline.held_out, _BASELINE)
        for baseline in everything.baselines
    ]
    groups = [listed]
    for kind in report.kinds[1:]:
        best = kind.best
        if best is not None and best.accuracy.value is not None:
            name = f"{kind.name}  {report.layout.name(best.head)} {SHORT[best.direction]}"
            rival = baseline_name(report, best.baseline)
            (share,) = (
                baseline.held_out for baseline in kind.baselines if baseline.name == best.baseline
            )
            groups.append([(name, best.accuracy, COLOR), (rival, share, _BASELINE)])
    return groups


def _bars(axes: Axes, groups: Sequence[Sequence[_Bar]]) -> None:
    bars = [bar for group in groups for bar in group]
    places: list[float] = []
    y = 0.0
    for group in groups:
        for _ in group:
            places.append(y)
            y += _BAR
        y += _GAP
    share_bars(axes, [(share, color) for _, share, color in bars], places, 0.15)
    names = [name for name, *_ in bars]
    name_bars(axes, names, "accuracy in % with 95 % interval (green: head, grey: baseline)")
    axes.set_yticks(places, names)
    axes.set_ylim(y - _GAP - _BAR / 2, -_BAR / 2)
    axes.set_xlim(0, 100)


def _caption(report: Coref) -> str:
    best = report.best
    if best is None:
        return "head"
    rival = baseline_name(report, best.baseline)
    return (
        f"head; % right, full colour {100 * FULL:.0f} points above {rival}, {MARK} "
        "significantly above"
    )
