"""Pictures without matplotlib: letters of strokes, and figures on pixels of our own."""

from __future__ import annotations

import io
from itertools import combinations

import numpy as np
import pytest
from PIL import Image

import attnviz as av
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing import grid_figure, paper, plain, raster, strokes
from attnviz.drawing.figure import heads_figure
from attnviz.drawing.style import Style

ASCII = "".join(map(chr, range(33, 127)))
COMMON = "×–—…·°±≤≥→←↑↓−“”‘’▁Ġ↵⇥‖αΣ√äöüßéèêàçñÅøØæÆ"
EMS = [4.5 * 150 / 72, 12.0, 14.6, 20.8, 62.5]  # pixels, from the smallest label to a poster


def ink(text: str, em: float, *, bold: bool = False) -> np.ndarray:
    return strokes.ink(text, em, (round(2 * em), 3 * round(em)), bold=bold).astype(int)


@pytest.mark.parametrize("em", EMS)
def test_letters_stand_on_the_line_and_differ(em: float) -> None:
    line = round(2 * em)
    drawn = {char: ink(char, em) for char in ASCII}
    for one, other in combinations(drawn, 2):
        same = drawn[one].shape == drawn[other].shape
        assert not same or np.abs(drawn[one] - drawn[other]).max() > 100, one + other
    for char, rows in drawn.items():
        where = np.flatnonzero(rows.max(1) > 100)
        assert line - em < where[0] <= where[-1] < line + 0.4 * em, char
        if char.isalnum() and char not in "gjpqyQ":
            assert where[-1] == line - 1, f"{char} stands on the line"
    assert np.ptp(np.flatnonzero(drawn["H"].max(1) > 100)) + 1 == pytest.approx(0.73 * em, abs=0.6)
    for char in "ij!?":
        assert (np.diff(np.flatnonzero(drawn[char].max(1) > 100)) > 1).sum() == 1, "its dot"
    assert strokes.width("ill", em) < strokes.width("mmm", em) < strokes.width("m m m", em)
    assert strokes.width("mm", em, bold=True) >= strokes.width("mm", em)


def test_the_pen_covers_what_its_strokes_are_wide() -> None:
    pen = 100 * 0.085
    assert ink("|", 100).sum(1).max() / 255 == pytest.approx(pen, abs=0.02)
    assert ink("-", 100).sum(0).max() / 255 == pytest.approx(pen, abs=0.02)
    dot = np.pi * pen**2 / 4 + 0.35 * pen**2
    assert ink(".", 100).sum() / 255 == pytest.approx(dot, rel=0.02)
    once = ink("Ġ≤ü", 15)
    strokes._drawn.cache_clear()
    assert (ink("Ġ≤ü", 15) == once).all()


def test_accents_and_what_is_missing() -> None:
    assert strokes.missing(ASCII + COMMON + "你ж") == {"你", "ж"}
    assert (ink("e\u0301", 15) == ink("é", 15)).all()
    assert (
        ink("É", 15).any(1).argmax() < ink("é", 15).any(1).argmax() < ink("e", 15).any(1).argmax()
    )
    assert ink(" \u0301a\u00a0\u0308", 15).any()


def colors(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def test_the_grid_of_heads_is_that_of_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    result = av.heads("The keys to the cabinet are on the table", model="demo-bert")
    theirs = colors(heads_figure(result))
    for name in ("Figure", "Rectangle", "PatchCollection"):
        monkeypatch.setattr(grid_figure, name, getattr(plain, name))
    ours = colors(grid_figure.build(result, Style().dpi).png())
    assert ours.shape == theirs.shape
    far = np.abs(ours - theirs).max(-1) > 100
    assert far.mean() < 0.02, "letters a pixel away, and no box or word in another place"


def test_numbers_stand_in_the_cells() -> None:
    tokens = Tokens(tuple("abcd"))
    maps = [("head", np.array([[0.25, 0, 0.5, 0.001]] * 4), Sides(tokens, tokens))]
    bare, numbered = (colors(raster.heatmap_png(maps, Style(values=v))[0]) for v in (False, None))
    changed = (bare != numbered).any(-1).any(0)
    sheet = raster.Raster(maps[0][2]).sheet
    cells = changed[sheet.corner(0, 1)[1] :][: sheet.columns.length].reshape(4, -1).any(1)
    assert cells.tolist() == [True, False, True, False]
    shown, _ = raster.heatmap_png(maps, Style(), "below")
    with paper.using({"caption": False}):  # though the same was drawn before
        assert raster.heatmap_png(maps, Style(), "below")[0] != shown
