"""A checked module as a figure: the steps of attention, the faulty ones red, and a map beside."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attnviz.attention.walkthrough import plain_steps
from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import GREY, INK, MARGIN, HeadedFigure
from attnviz.errors import UsageError
from attnviz.features.check.description import off, verdict
from attnviz.features.check.result import FileCheck, ModuleCheck

_RED, _FAINT = "#c0271d", "#f4f4f4"
_BOX, _GAP, _WIDE, _MAP = 0.3, 0.1, 2.9, 2.3


@picture
def draw(result: FileCheck | ModuleCheck, dpi: float) -> Figure:
    """Return the steps from above, and the first map as it is and as it should be."""
    if not isinstance(result, ModuleCheck):
        raise UsageError("the check of a file has no picture")
    below = [f"{bug.step}: {bug.what}. Change: {bug.change}." for bug in result.bugs]
    below += [
        off(bug)[0].upper() + off(bug)[1:] + "." for bug in result.bugs if bug.off is not None
    ]
    below += [] if result.bugs else [*result.failed, *result.notes]
    steps = [(step.name, f"{step.operation}  {step.symbols}") for step in plain_steps().values()]
    steps.reverse()
    sheet = HeadedFigure(verdict(result), below, dpi, [word for step in steps for word in step])
    maps = [(name, rows) for name, rows in (
        ("as it is", result.map), ("as it should be", result.mended_map)) if rows]  # fmt: skip
    height = len(steps) * (_BOX + _GAP)
    top = sheet.begin(2 * MARGIN + _WIDE + max(len(maps), 1) * (_MAP + 0.4)) + 0.2
    figure = sheet.figure(top + height + MARGIN)
    _steps(sheet.axes(MARGIN, top, _WIDE, height), steps, {bug.step for bug in result.bugs}, sheet)
    for number, (name, rows) in enumerate(maps):
        x = MARGIN + _WIDE + 0.4 + number * (_MAP + 0.4)
        _map(sheet.axes(x, top + 0.25, _MAP, _MAP), name, rows, red=number == 0)
    return figure


def _steps(axes: Axes, steps: list[tuple[str, str]], faulty: set[str], sheet: HeadedFigure) -> None:
    """Draw a box for each step, red where a bug is."""
    axes.set_xlim(0, _WIDE)
    axes.set_ylim(len(steps) * (_BOX + _GAP), 0)
    axes.axis("off")
    for number, (step, text) in enumerate(steps):
        y, wrong = number * (_BOX + _GAP), step in faulty
        edge, line = (_RED, 1.4) if wrong else ("#c8c8c8", 0.5)
        axes.add_patch(Rectangle((0, y), _WIDE, _BOX, facecolor="#fbe3e0" if wrong else _FAINT,
                                 edgecolor=edge, linewidth=line, clip_on=False))  # fmt: skip
        axes.text(0.08, y + _BOX / 2, step, va="center", fontsize=7.5, family=sheet.families,
                  color=_RED if wrong else INK, weight="bold" if wrong else "normal")  # fmt: skip
        axes.text(_WIDE - 0.08, y + _BOX / 2, text, va="center", ha="right", fontsize=7,
                  color=GREY, family=sheet.families)  # fmt: skip


def _map(axes: Axes, name: str, rows: tuple[tuple[float, ...], ...], *, red: bool) -> None:
    """One map of weights: queries down, keys across."""
    axes.imshow(rows, cmap="viridis", vmin=0, vmax=1)
    axes.set_title(f"the first map, {name}", fontsize=8, color=_RED if red else INK)
    axes.set_xlabel("keys", fontsize=7)
    axes.set_ylabel("queries", fontsize=7)
    axes.tick_params(labelsize=6)
