"""Attention over a picture: which row, which patch, which colour; terminal, figure, command."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import attnviz as av
from attnviz.cli import main
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.media import Picture, patch_grid
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing import terminal
from attnviz.drawing.overlay import box, scaled, tinted
from attnviz.drawing.palette import ramp, rgb
from attnviz.drawing.style import Style
from attnviz.errors import UsageError
from attnviz.scoring.merged import selected_query

Image = pytest.importorskip("PIL.Image")

ROWS, COLUMNS = 2, 3
PLACES = ((), *((r, c) for r in range(ROWS) for c in range(COLUMNS)))
TOKENS = Tokens(
    ("[CLS]", *(f"{r},{c}" for r in range(ROWS) for c in range(COLUMNS))),
    special=(True, *(False,) * 6),
    places=PLACES,
)
TEXT = Tokens(("0,0", "0,1", "what"), places=((0, 0), (0, 1), ()))


def picture() -> Picture:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    return Picture(pixels, ROWS, COLUMNS, "a.png")


@pytest.fixture
def capture() -> Capture:
    draw = np.random.default_rng(1).random((2, 7, 7)).astype(np.float32)
    maps = {Site("encoder", 0): draw / draw.sum(-1, keepdims=True)}
    inputs = Inputs({"encoder": Sides(TOKENS, TOKENS)}, picture=picture())
    return Capture(
        SourceInfo("a model", "recorded", "exact"), Layout({"encoder": (2,)}), inputs, maps
    )


def test_weights_are_laid_out_as_patches() -> None:
    grid = patch_grid(picture(), PLACES, np.arange(7.0))
    np.testing.assert_array_equal(grid, [[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize(
    ("tokens", "query", "rows", "name", "place"),
    [
        (TOKENS, None, (0,), "from [CLS]", ()),
        (TOKENS, "cls", (0,), "from [CLS]", ()),
        (TOKENS, "1,2", (6,), "from patch 1,2", (1, 2)),
        (TOKENS, " 0 , 1 ", (2,), "from patch 0,1", (0, 1)),
        (TOKENS, "mean", (1, 2, 3, 4, 5, 6), "mean over all patches", ()),
        (TOKENS, "3", (3,), "from token 3 0,2", (0, 2)),
        (TEXT, None, (2,), "from token 2 what", ()),
    ],
)
def test_from_where(
    tokens: Tokens, query: str | None, rows: tuple[int, ...], name: str, place: Any
) -> None:
    found = selected_query(tokens, picture(), query)
    assert (found.rows, found.name, found.place) == (rows, name, place)


@pytest.mark.parametrize(
    ("tokens", "query", "said"),
    [
        (TOKENS, "2,0", "no patch 2,0: rows go from 0 to 1, columns from 0 to 2"),
        (TOKENS, "7", "no token 7; they go from 0 to 6"),
        (TOKENS, "here", "no query 'here': write cls, mean"),
        (TEXT, "cls", "this model has no"),
    ],
)
def test_there_is_no_such_query(tokens: Tokens, query: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        selected_query(tokens, picture(), query)


def test_patches_are_tinted_where_weight_lies() -> None:
    seen = picture()
    shown = np.zeros((ROWS, COLUMNS))
    shown[1, 2] = 1.0
    made = tinted(seen, shown, "viridis")
    top, bottom, left, right = box(seen, 1, 2)
    assert (top, bottom, left, right) == (20, 40, 40, 60)
    strongest = np.array(rgb(ramp("viridis")[-1]))
    grey = seen.pixels @ np.array([0.299, 0.587, 0.114]) * 0.75
    wanted = 0.15 * grey[20:, 40:, None] + 0.85 * strongest
    np.testing.assert_allclose(made[20:, 40:], wanted, atol=0.51)
    untouched = np.repeat(grey[:20, :, None], 3, axis=2)
    np.testing.assert_allclose(made[:20], untouched, atol=0.51)


def test_one_scale_or_one_for_each_head() -> None:
    grids = [np.array([[0.1, 0.2]]), np.array([[0.4, 0.0]])]
    shared = scaled(grids, Style())
    np.testing.assert_allclose(shared[0], [[0.25, 0.5]])
    own = scaled(grids, Style(normalize="head"))
    np.testing.assert_allclose(own[0], [[0.5, 1.0]])


def test_over_the_picture(capture: Capture) -> None:
    over = av.heatmap(capture, "0.*").over("1,0")
    weights = capture.maps[Site("encoder", 0)]
    for number, (head, grid) in enumerate(over.maps):
        assert head == Head(Site("encoder", 0), number)
        np.testing.assert_allclose(grid.ravel(), weights[number, 4, 1:])
        assert f"({round(100 * weights[number, 4, 1:].sum())} % on patches)" in over.titles[head]
    mean = av.heatmap(capture, "0.1").over("mean").maps[0][1]
    np.testing.assert_allclose(mean.ravel(), weights[1, 1:, 1:].mean(0), rtol=1e-6)
    assert "from patch 1,0, over the picture" in over.described()


@pytest.mark.parametrize("format", ["png", "svg", "pdf"])
def test_the_figure(format: str, capture: Capture) -> None:
    over = av.heatmap(capture, "0.*").over("1,0")
    made = over.to_bytes(format)
    assert made == over.to_bytes(format), "the same bytes every time"
    if format == "png":
        assert Image.open(io.BytesIO(made)).size[0] > 300
        assert made != av.heatmap(capture, "0.*").over("0,0").to_bytes("png")


@pytest.mark.parametrize("color", [None, "truecolor"])
def test_the_terminal(color: str | None, capture: Capture) -> None:
    over = av.heatmap(capture, "0.0").over("1,0")
    titled = [(over.titles[head], grid) for head, grid in over.maps]
    (shown,) = terminal.overlay(over.picture, titled, over.style, query=over.selected.name)
    out = io.StringIO()
    Console(file=out, width=80, force_terminal=color is not None, color_system=color).print(shown)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert lines[0].startswith("head 0.0")
    assert "from patch 1,0; most on patch " in lines[-1]
    assert len(lines) == (4 + ROWS if color is None else 2 + round(56 * 40 / 60 / 2))


def test_the_command(capture: Capture, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(av.write_capture(capture, tmp_path / "kept.npz"))
    drawn = tmp_path / "over.png"
    assert main(["heatmap", "--recorded", path, "-s", "0.*", "-o", str(drawn), "-q"]) == 0
    assert Image.open(drawn).size[0] > 300
    assert main(["heatmap", "--recorded", path, "--query", "0,1"]) == 0
    assert "from patch 0,1; most on patch" in capsys.readouterr().out
    assert main(["heatmap", "--recorded", path, "--query", "all"]) == 0
    assert "queries" in capsys.readouterr().out
    assert main(["heatmap", "a b c", "--query", "0,1"]) == 2
    assert "there is no picture to draw over" in capsys.readouterr().err
