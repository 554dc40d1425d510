"""A film as a picture: loss, in-context score and heads over the steps, and a grid of all heads."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator, SymmetricalLogLocator

from attnviz.drawing import canvas, paper
from attnviz.drawing.charts import GREY
from attnviz.drawing.figure import check_drawn
from attnviz.drawing.fonts import choose, spelled
from attnviz.drawing.labels import counted
from attnviz.drawing.palette import mix
from attnviz.drawing.style import Style
from attnviz.features.film.description import heading, known_by
from attnviz.features.film.description import title as heads_title
from attnviz.features.film.result import IN_CONTEXT, Film, HeadFilm, StepCurve
from attnviz.scoring.roles import SHOWN, drawn

_PALE, _INK = "#b8bcc2", "#222222"
_WIDE, _HIGH = 5.4, 1.35  # inches of the curves; of those of heads the height is larger by half
_LEFT, _RIGHT, _TOP, _BOTTOM, _GAP = 0.62, 1.45, 0.95, 0.55, 0.28
_CELL, _CELL_HIGH, _LARGEST = 0.78, 0.52, 1.5
_LETTER = 2.1  # half of the points that a letter of an event's name takes
_MOST = 8  # curves of heads that are drawn for a role, those that formed first
_WIDELY = 0.1
"""Where half of the checkpoints lie in so small a share of the steps, steps are logarithmic."""


def draw(film: Film, format: str = "png") -> Any:
    """Curves over a common axis, and a grid of heads with their small curves."""
    check_drawn(format)
    return canvas.rendered(lambda: build(film), format, Style().dpi)


def build(film: Film) -> Figure:
    """Return the same as a matplotlib figure."""
    rows = [(name, curve) for name, curve in (("loss", film.loss), (IN_CONTEXT, film.in_context))
            if curve is not None]  # fmt: skip
    across = max(film.layout.heads[site.kind][site.layer] for site in film.layout.sites)
    down = len(film.layout.sites)
    curves_high = len(rows) * (_HIGH + _GAP) + 1.5 * _HIGH
    cell = min(_LARGEST, max(_CELL, 2.6 / across))
    cell_high = cell * _CELL_HIGH / _CELL
    grid_wide, grid_high = max(across * cell, 2.2), down * cell_high
    width = _LEFT + _WIDE + _RIGHT + grid_wide + 0.2
    height = _TOP + max(curves_high, grid_high + 0.3) + _BOTTOM
    figure = Figure(figsize=(width, height))
    _headline(figure, film, width, height)
    top = height - _TOP

    def panel(x: float, y: float, w: float, h: float) -> Axes:
        return figure.add_axes((x / width, (y - h) / height, w / width, h / height))

    for name, curve in rows:
        axes = panel(_LEFT, top, _WIDE, _HIGH)
        _loss(axes, film, name, curve)
        top -= _HIGH + _GAP
    _heads(panel(_LEFT, top, _WIDE, 1.5 * _HIGH), film)
    left, top = _LEFT + _WIDE + _RIGHT, height - _TOP
    figure.text(
        left / width, (top + 0.08) / height, "every head by its role's score (0–1)", fontsize=7,
        color=GREY,
    )  # fmt: skip
    for row, site in enumerate(film.layout.sites):
        films = [head for head in film.heads if head.head.site == site]
        for column, head in enumerate(films):
            axes = panel(left + column * cell, top - row * cell_high, cell - 0.07, cell_high - 0.09)
            _cell(axes, film, head)
    return figure


def _headline(figure: Figure, film: Film, width: float, height: float) -> None:
    title = paper.current().titled(heads_title(film))
    families, missing = choose([title])
    y = 1 - 0.14 / height
    figure.text(
        0.2 / width, y, spelled(title, missing), fontsize=11, fontweight="bold", family=families,
        va="top",
    )  # fmt: skip
    caption = f"{heading(film)} · {counted(film.texts, 'text')} · bands: 95 % intervals over texts"
    below = " · ".join(paper.captions([caption]))
    figure.text(0.2 / width, y - 0.23 / height, below, fontsize=7, color=GREY, va="top")


def _loss(axes: Axes, film: Film, name: str, curve: StepCurve) -> None:
    """Loss or in-context score, with the baselines of the loss as lines."""
    _line(axes, film, curve, _INK)
    if name == "loss":
        for label, value in _apart(film, axes):
            axes.axhline(value, color=GREY, linewidth=0.7, linestyle=(0, (4, 3)))
            axes.annotate(
                label, (1.0, value), (4, 0), xycoords=("axes fraction", "data"),
                textcoords="offset points", fontsize=6.5, color=GREY, va="center",
            )  # fmt: skip
    _style(axes, film, f"{name} (nats)", last=False)
    _marks(axes, film, named=name == "loss")


def _apart(film: Film, axes: Axes) -> list[tuple[str, float]]:
    """Baselines whose names do not touch; the lines are always there."""
    labels: list[tuple[str, float]] = []
    low, high = axes.get_ylim()
    baselines = sorted(film.baselines.items(), key=lambda baseline: baseline[1])
    least = 0.09 * (max([high, *film.baselines.values()]) - min([low, *film.baselines.values()]))
    for label, value in baselines:
        near = labels and value - labels[-1][1] < least
        labels.append(("" if near else label, value))
    return labels


def _heads(axes: Axes, film: Film) -> None:
    """Draw the heads that formed, each by the score of its role; else the strongest heads."""
    chosen: list[tuple[HeadFilm, str, str | None]] = []
    counts: dict[str, int] = {}
    for formation in film.formations:
        if counts.setdefault(formation.role, 0) < _MOST:
            counts[formation.role] += 1
            chosen.append((film[formation.head], formation.score, formation.role))
    if not chosen:
        for score in ("previous", "induction"):
            scored = [head for head in film.heads if score in head.scores]
            ranked = sorted(scored, key=lambda head: -_last(head.scores[score]))
            chosen += [(head, score, score) for head in ranked[:2]]
    names: dict[str, list[str]] = {}
    for head, score, role in chosen:
        color = _color(role)
        _line(axes, film, head.scores[score], color)
        names.setdefault(role or score, []).append(film.layout.name(head.head))
    if all(film.units.get(score) == "share" for _, score, _ in chosen):
        axes.set_ylim(0, 1)
    handles = [Line2D([], [], color=_color(role), linewidth=2) for role in names]
    labels = [f"{role} {_listed(heads)}" for role, heads in names.items()]
    axes.legend(
        handles, labels, fontsize=6.5, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.02),
        handlelength=1.1, borderaxespad=0.2,
    )  # fmt: skip
    _style(axes, film, "score of the role", last=True)
    _marks(axes, film, named=False)


def _listed(heads: list[str]) -> str:
    return ", ".join(heads[:3]) + (f" +{len(heads) - 3}" if len(heads) > 3 else "")


def _marks(axes: Axes, film: Film, *, named: bool) -> None:
    """Where events happened: a line, and a band for its interval."""
    names: list[tuple[float, float, int]] = []
    for event in film.events:
        color = SHOWN[event.name].color if event.name in SHOWN else GREY
        if event.low is not None and event.high is not None:
            axes.axvspan(event.low, event.high, color=color, alpha=0.10, linewidth=0, zorder=0)
        axes.axvline(event.step, color=color, linewidth=0.8, alpha=0.8, zorder=1)
        if not named:
            continue
        scale = axes.get_window_extent().width / axes.figure.dpi * 72  # points
        x = float(axes.transAxes.inverted().transform(axes.transData.transform((event.step, 0)))[0])
        start, end = (x * scale + side * _LETTER * len(event.name) for side in (-1, 1))
        level = 0
        while any(level == row and start < b and a < end for a, b, row in names):
            level += 1
        names.append((start, end, level))
        axes.annotate(
            event.name, (event.step, 1.0), (0, 2 + 8 * level), xycoords=("data", "axes fraction"),
            textcoords="offset points", fontsize=6.5, color=mix(color, "#000000", 0.35),
            ha="center",
        )  # fmt: skip


def _cell(axes: Axes, film: Film, head: HeadFilm) -> None:
    """One head's small curve."""
    title, score = known_by(head)
    color = _color(title)
    if score in head.scores:
        curve = head.scores[score]
        values = np.array([np.nan if value is None else value for value in curve.mean])
        axes.plot(film.steps, values, color=color, linewidth=1.2)
        axes.fill_between(film.steps, 0, values, color=color, alpha=0.18, linewidth=0)
        share = film.units.get(score) == "share"
        axes.set_ylim(0, 1 if share else float(np.nanmax(values, initial=1.0)))
    _scale(axes, film)
    axes.set_xticks([])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks([])
    axes.spines[:].set_color("#d8d8d8")
    code = "" if title is None else drawn(title).code
    axes.text(0.04, 0.94, film.layout.name(head.head), transform=axes.transAxes, fontsize=5.5,
              color=GREY, va="top")  # fmt: skip
    axes.text(0.96, 0.94, code, transform=axes.transAxes, fontsize=5.5, color=_INK, va="top",
              ha="right")  # fmt: skip


def _color(role: str | None) -> str:
    """Return the colour of a role; pale for none."""
    return SHOWN[role].color if role is not None and role in SHOWN else _PALE


def _line(axes: Axes, film: Film, curve: StepCurve, color: str) -> None:
    """Draw a curve with the band of its intervals."""
    mean = np.array([np.nan if value is None else value for value in curve.mean])
    half = np.array([np.nan if value is None else value for value in curve.half])
    axes.fill_between(film.steps, mean - half, mean + half, color=color, alpha=0.15, linewidth=0)
    axes.plot(film.steps, mean, color=color, linewidth=1.3, marker="o", markersize=1.8)


def _style(axes: Axes, film: Film, label: str, *, last: bool) -> None:
    _scale(axes, film)
    axes.set_ylabel(label, fontsize=7.5, color=GREY)
    axes.tick_params(labelsize=6.5, labelcolor=GREY, length=2)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.spines[["top", "right"]].set_visible(False)
    if last:
        axes.set_xlabel("training step", fontsize=7.5, color=GREY)
    else:
        axes.tick_params(labelbottom=False)


def _scale(axes: Axes, film: Film) -> None:
    """Scale steps as they are, or logarithmically where most checkpoints are early ones."""
    steps = film.steps
    if steps[len(steps) // 2] - steps[0] < _WIDELY * (steps[-1] - steps[0]):
        least = next(step for step in steps if step > 0)
        axes.set_xscale("symlog", linthresh=least)
        axes.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=least))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    margin = 0.01 * (steps[-1] - steps[0])
    axes.set_xlim(steps[0] - margin, steps[-1] + margin)


def _last(curve: StepCurve) -> float:
    return next((value for value in reversed(curve.mean) if value is not None), 0.0)
