"""Brackets along the axes of maps: where they stand, at every size, and what they are called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from attnviz.core.spans import Span
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing.brackets import brackets, fitting, room
from attnviz.drawing.fonts import Ruler, choose
from attnviz.drawing.heatmap_figure import build
from attnviz.drawing.palette import SPAN_COLORS, luminance
from attnviz.drawing.style import Style

SPANS = (
    Span("user", ((2, 12),)),
    Span("document one", ((3, 7),)),
    Span("both", ((13, 14), (16, 18))),
)


def tokens(count: int, spans: tuple[Span, ...] = SPANS) -> Tokens:
    return Tokens(tuple(f"w{n}" for n in range(count)), spans=spans)


def test_an_inner_part_stands_nearer_to_the_map() -> None:
    found = brackets(tokens(20))
    assert [(one.name, one.start, one.end, one.level) for one in found] == [
        ("user", 2, 12, 1), ("document one", 3, 7, 0), ("both", 13, 14, 1), ("both", 16, 18, 1),
    ]  # fmt: skip
    assert found[2].color == found[3].color != found[0].color
    assert room(found) == pytest.approx(2 * 0.17 + 0.03)
    assert room(()) == 0.0


def strips(figure: Any) -> list[Any]:
    """The axes that hold brackets: those with their lines and no ticks."""
    return [axes for axes in figure.axes if axes.lines and not axes.axison]


@pytest.mark.parametrize("count", [20, 400])
@pytest.mark.parametrize("maps", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_they_stand_along_their_tokens(count: int, maps: int) -> None:
    sides = Sides(tokens(count), tokens(count))
    weights = np.tril(np.ones((count, count))) / count
    figure = build([(f"head {n}", weights, sides) for n in range(maps)], Style())
    drawn = [axes for axes in figure.axes if axes.axison and axes.get_xlim() == (-0.5, count - 0.5)]
    assert len(drawn) == maps
    found = strips(figure)
    assert found
    for strip in found:
        box = strip.get_position()
        down = strip.get_ylim() == (count, 0)
        beside = [
            one.get_position()
            for one in drawn
            if abs((one.get_position().y0 - box.y0) if down else (one.get_position().x0 - box.x0))
            < 1e-9
        ]
        assert beside, "a strip is as long as its map and stands at its edge"
        edge = min(abs((b.x0 - box.x1) if down else (b.y0 - box.y1)) for b in beside)
        assert edge < 1e-9
        ends = [sorted(line.get_ydata() if down else line.get_xdata()) for line in strip.lines]
        for (start, *_, end), one in zip(ends, brackets(sides.keys), strict=True):
            assert one.start <= start < one.start + 0.2
            assert one.end - 0.2 < end <= one.end


def test_no_names_reach_into_another() -> None:
    figure = build([("", np.eye(20), Sides(tokens(20), tokens(20)))], Style())
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    for strip in strips(figure):
        boxes = [text.get_window_extent(renderer) for text in strip.texts if text.get_text()]
        assert boxes
        overlapping = [(a, b) for n, a in enumerate(boxes) for b in boxes[n + 1 :] if a.overlaps(b)]
        assert not overlapping


def test_names_are_cut_to_their_brackets() -> None:
    ruler = Ruler(choose(["document one…"])[0], 150)
    assert fitting("document one", 5.0, ruler) == "document one"
    short = fitting("document one", 0.3, ruler)
    assert short.endswith("…")
    assert "document one".startswith(short[:-1])
    assert ruler.width(short, 6) <= 0.3
    assert fitting("document one", 0.02, ruler) == ""


def test_pictures_say_names_that_were_cut() -> None:
    sides = Sides(tokens(400), tokens(400))
    figure = build([("", np.eye(400), sides)], Style())
    assert any("brackets: user, document one, both" in text.get_text() for text in figure.texts)


def test_maps_without_labels_have_none() -> None:
    figure = build([("", np.eye(20), Sides(tokens(20), tokens(20)))], Style(hide="labels"))
    assert strips(figure) == []


@pytest.mark.parametrize("color", SPAN_COLORS)
def test_colours_stand_out_from_white_and_from_black(color: str) -> None:
    """WCAG 2 asks for 3 to 1 of graphics."""
    light = luminance(color)
    assert 1.05 / (light + 0.05) >= 3
    assert (light + 0.05) / (luminance("#14171c") + 0.05) >= 3
