"""One style for all renderers: its fields, what it does to weights, and its colour bar."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing import glyphs, terminal
from attnviz.drawing.mosaic import boxed_png
from attnviz.drawing.raster import Raster, heatmap_png
from attnviz.drawing.shades import shades
from attnviz.drawing.style import Style
from attnviz.errors import UsageError

MAP = np.array([[0.5, 0.25, 0.0], [0.1, 0.001, 0.0], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("normalize", "ends"),
    [("global", [[0.8]] * 3), ("head", [[0.5]] * 3), ("row", [[0.5], [0.1], [1.0]])],
)
def test_what_the_end_of_the_scale_is(normalize: str, ends: list) -> None:
    found = shades(MAP, Style(normalize=normalize), 0.8)
    assert np.allclose(found, MAP / np.array(ends))


def test_scales_by_hand() -> None:
    assert np.allclose(shades(MAP, Style(scale="sqrt"), 1.0)[0], [math.sqrt(0.5), 0.5, 0.0])
    found = shades(MAP, Style(scale="log"), 1.0)
    assert np.allclose(found[1], [0.75, 0.25, 0.0])  # four decades: 0.1 and 0.001
    assert shades(np.array([[1.0, 1e-4, 1e-5]]), Style(scale="log"), 1.0).tolist() == [[1, 0, 0]]


@pytest.mark.parametrize("scale", ["linear", "sqrt", "log"])
def test_the_bar_stands_where_the_weights_do(scale: str) -> None:
    style = Style(scale=scale)
    for top in (1.0, 0.93, 0.27, 0.0311, 4.2e-5):
        ticks = style.ticks(top)
        assert 3 <= len(ticks) <= 12
        places = [place for place, _ in ticks]
        assert places == sorted(places)
        assert places[0] == 0
        assert places[-1] <= 1 + 1e-9
        for place, text in ticks[1:]:
            value = np.array([[float(text), top]])
            assert shades(value, style, top)[0, 0] == pytest.approx(place, abs=1e-9)
        assert ticks[0][1].startswith("<" if scale == "log" else "0")


def test_what_a_style_refuses() -> None:
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"palette": "jet"}, "unknown palette 'jet'"),
        ({"normalize": "all"}, "normalize takes 'global', 'head' or 'row', not 'all'"),
        ({"scale": "row"}, "scale takes 'linear', 'sqrt' or 'log', not 'row'"),
        ({"dpi": 5}, "dpi must be from 20 to 1,200, not 5"),
        ({"dpi": "high"}, "not 'high'"),
        ({"dpi": math.nan}, "dpi takes a number, not nan"),
        ({"size": 900}, "size must be from 0.2 to 50, not 900"),
    )
    for settings, says in wrong:
        with pytest.raises(UsageError, match=says):
            Style(**settings)


def masked_causal(count: int) -> np.ndarray:
    """A causal map whose masked cells say so; one allowed weight is zero."""
    weights = np.tril(np.ones((count, count)))
    weights /= weights.sum(1, keepdims=True)
    weights[-1, 0] = 0.0
    return np.ma.array(weights, mask=np.triu(np.ones((count, count), bool), 1))


@pytest.mark.parametrize("count", [5, 70, 700])
def test_masked_cells_of_fast_pictures(count: int) -> None:
    tokens = Tokens(tuple(f"w{n}" for n in range(count)))
    raster = Raster(Sides(tokens, tokens), 1, Style(dpi=50), masked=True)
    pixels = raster.pixels([("", masked_causal(count))])
    sheet = raster.sheet
    y, x = sheet.corner(0, 0)
    cells = pixels[y : y + sheet.rows.length, x : x + sheet.columns.length]
    rows, columns = sheet.rows, sheet.columns
    middle = cells[rows.cell // 2 :: rows.cell, columns.cell // 2 :: columns.cell]
    assert middle.shape == (rows.count, columns.count)
    expected = np.triu(np.ones(middle.shape, bool), 1)
    assert ((middle == glyphs.MASKED) == expected).all()
    assert any("may not attend" in note for note in sheet.notes)


def test_files_show_masked_cells_and_say_so() -> None:
    tokens = Tokens(("a", "b", "c"))
    item = ("x", masked_causal(3), Sides(tokens, tokens))
    plain = Style(values=False)
    mosaic = boxed_png({(0, 0): item[1]}, Style(), "", "")
    for data, _ in (heatmap_png([item], plain), mosaic):
        image = Image.open(io.BytesIO(data))
        assert (np.asarray(image) == glyphs.MASKED).sum() > 100
    whole, _ = heatmap_png([("x", np.full((3, 3), 1 / 3), item[2])], plain)
    assert (np.asarray(Image.open(io.BytesIO(whole))) == glyphs.MASKED).sum() == 0


@pytest.mark.parametrize("scale", ["linear", "sqrt", "log"])
@pytest.mark.parametrize("normalize", ["global", "head", "row"])
def test_the_terminal_and_fast_pictures_show_the_same(normalize: str, scale: str) -> None:
    weights = np.array([[0.9, 0.1, 0.0], [0.02, 0.3, 0.0], [0.0004, 0.2, 0.8]])
    tokens, style = Tokens(("a", "b", "c")), Style(normalize=normalize, scale=scale)
    sides = Sides(tokens, tokens)
    raster = Raster(sides, 1, style)
    pixels = raster.pixels([("", weights)])
    console = Console(width=80, color_system="truecolor", force_terminal=True, file=io.StringIO())
    painted = [
        segment.style.bgcolor.triplet
        for line in console.render_lines(terminal.heatmap(weights, sides, style=style))[1:4]
        for segment in line
        if segment.style and segment.style.bgcolor
    ]
    y, x = raster.sheet.corner(0, 0)
    cell = raster.sheet.rows.cell
    for place, color in enumerate(painted):
        row, column = divmod(place, 3)
        level = pixels[y + row * cell + cell // 2, x + column * cell + cell // 2]
        ours = raster.palette[level].astype(int)
        assert np.abs(ours - np.array(color)).max() <= 3
    assert len(painted) == 9


def test_masked_cells_are_blank_in_the_terminal() -> None:
    for count in (4, 30, 90):
        tokens = Tokens(tuple(f"w{n}" for n in range(count)))
        out = io.StringIO()
        item = terminal.heatmap(masked_causal(count), Sides(tokens, tokens))
        Console(width=120, color_system=None, file=out).print(item)
        said = out.getvalue()
        assert "blank: not allowed" in said
        if count == 30:  # density, where no weight is blank
            body = [line.split("│")[1] for line in said.splitlines() if line.count("│") == 2]
            cell = len(body[0]) // count
            for row, line in enumerate(body):
                assert line[(row + 1) * cell :].strip() == ""
                assert " " not in line[: (row + 1) * cell]


@pytest.mark.parametrize(("palette", "color"), [("magma", glyphs.WHITE), ("greys", glyphs.BLACK)])
def test_a_line_stands_between_the_sentences_of_a_pair(palette: str, color: int) -> None:
    count = 60  # without hairlines
    tokens = Tokens(tuple(f"w{n}" for n in range(count)), segments=(0,) * 25 + (1,) * 35)
    style = Style(dpi=50, palette=palette)
    weights = np.full((count, count), 0.5)
    for given, expected in ((tokens, [25]), (Tokens(tokens.texts), [])):
        raster = Raster(Sides(given, given), 1, style)
        y, x = raster.sheet.corner(0, 0)
        cell, length = raster.sheet.rows.cell, raster.sheet.rows.length
        cells = raster.pixels([("", weights)])[y : y + length, x : x + length]
        for axis in (0, 1):
            lines = np.flatnonzero((cells == color).all(axis))
            assert lines.tolist() == [place * cell for place in expected]
