"""PDFs: fonts are embedded with less than matplotlib embeds, and every glyph is drawn as before."""

from __future__ import annotations

import contextlib
import gc
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fontTools.pens.recordingPen import DecomposingRecordingPen
from fontTools.ttLib import TTFont

import attnviz as av
from attnviz.cli import main
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.media import Picture, patch_grid
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing import canvas, console
from attnviz.drawing.figure import heatmap_figure
from attnviz.drawing.grid import heads_grid, signed, signed_grid
from attnviz.drawing.overlay import box, on_terminal, scaled, tinted
from attnviz.drawing.palette import ramp, rgb
from attnviz.drawing.style import Style
from attnviz.scoring.roles import ROLES
from tests.cli.calling import ok
from tests.drawing.test_figure import report
from tests.drawing.test_terminal import printed

WORDS = ("Thé", "fluffy", "Ǟ", "AVATAR", "ﬁn", "Ελλ", "→", "don't")


@pytest.fixture(scope="module")
def small() -> bytes:
    return drawn()


def drawn() -> bytes:
    sides = Sides(*[Tokens(WORDS, tuple(range(len(WORDS))))] * 2)
    weights = np.full((len(WORDS),) * 2, 1 / len(WORDS), "f4")
    titled = [("layer 1 head 2", weights, sides)]
    data: bytes = heatmap_figure(titled, format="pdf", caption="of AV")
    return data


def streams(data: bytes) -> dict[int, bytes]:
    """The streams of a PDF by the numbers of their objects."""
    found = {}
    for number, head, body in re.findall(
        rb"(\d+) 0 obj\n(<<[^<>]*>>)\nstream\n(.*?)\nendstream", data, re.DOTALL
    ):
        found[int(number)] = zlib.decompress(body) if b"FlateDecode" in head else body
    return found


def fonts(data: bytes) -> Iterator[tuple[str, dict[int, object], dict[int, int]]]:
    """Of every font its name, and the outline and the advance of each code that it draws."""
    inside = streams(data)
    for descendant in re.findall(rb"<<[^<>]*/CIDFontType2.*?>>\nendobj", data, re.DOTALL):
        gids = inside[int(re.search(rb"/CIDToGIDMap (\d+) 0 R", descendant)[1])]
        name = re.search(rb"/BaseFont /(\S+)", descendant)[1].decode()
        described = int(re.search(rb"/FontDescriptor (\d+) 0 R", descendant)[1])
        file = re.search(rb"\n%d 0 obj.*?/FontFile2 (\d+) 0 R" % described, data, re.DOTALL)
        font = TTFont(io.BytesIO(inside[int(file[1])]))
        outlines, advances = {}, {}
        for code, gid in enumerate(np.frombuffer(gids, ">u2").tolist()):
            if gid:
                pen = DecomposingRecordingPen(font.getGlyphSet())
                glyph = font.getGlyphOrder()[gid]
                font.getGlyphSet()[glyph].draw(pen)
                outlines[code], advances[code] = pen.value, font["hmtx"][glyph][0]
        yield name, outlines, advances


def test_glyphs_and_page_are_those_of_whole_fonts(
    small: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canvas, "drawn_tables_only", contextlib.nullcontext)
    whole = drawn()
    assert len(small) < len(whole)
    pages = [[s for s in streams(data).values() if b" Tf" in s] for data in (small, whole)]
    assert pages[0] == pages[1] != []
    of_small, of_whole = list(fonts(small)), list(fonts(whole))
    assert of_small == of_whole
    assert sum(any(outlines.values()) for _, outlines, _ in of_small) >= 2  # regular and bold
    assert sum(len(outlines) for _, outlines, _ in of_small) > 30


def test_bytes_are_the_same_on_every_run_and_unused_tables_are_left_out(small: bytes) -> None:
    assert small == drawn()
    for body in streams(small).values():
        if body.startswith(b"\x00\x01\x00\x00"):
            tables = set(TTFont(io.BytesIO(body)).keys())
            assert {"glyf", "loca", "hmtx", "cvt ", "fpgm", "prep"} <= tables  # hints stay
            assert not tables.intersection(canvas.UNUSED)


def test_readers_of_fonts_and_the_collector_are_put_back_after_an_error() -> None:
    from fontTools import subset

    load = subset.load_font
    with pytest.raises(ZeroDivisionError), canvas.drawn_tables_only():
        raise ZeroDivisionError
    assert subset.load_font is load
    with pytest.raises(ZeroDivisionError):
        canvas.rendered(lambda: 1 / 0, "pdf", 72)  # type: ignore[arg-type, return-value]
    assert gc.isenabled()
    gc.disable()
    try:
        drawn()
        assert not gc.isenabled()
    finally:
        gc.enable()


SIZES = ((32, 32), (80, 64))


def values(layers: int, heads: int) -> dict[Head, float]:
    """Of every head, without two that are written the same in one line."""
    rng = np.random.default_rng(layers)
    sizes = rng.permutation(layers * heads) / 1000 + 0.001
    signs = rng.choice([-1, 1], layers * heads)
    names = (Head(Site("decoder", n), i) for n in range(layers) for i in range(heads))
    return dict(zip(names, map(float, sizes * signs), strict=True))


def groups(text: str) -> list[tuple[range, list[str], int]]:
    """Every line of a folded grid: its layers, its heads in order, how many more there are."""
    found = []
    for line in text.splitlines()[1:]:
        start = re.match(r" *(\d+)(?:–(\d+))?  ", line)
        if start is None:
            break
        first, last = int(start[1]), int(start[2] or start[1])
        more = re.search(r"\+(\d+)$", line)
        heads = re.findall(r"(?<= )(\d+\.\d+) ", line[start.end() - 1 :])
        found.append((range(first, last + 1), heads, int(more[1]) if more else 0))
    return found


@pytest.mark.parametrize(("layers", "heads"), SIZES)
def test_folded_values_are_the_largest_of_their_layers(layers: int, heads: int) -> None:
    known = values(layers, heads)
    layout = Layout({"decoder": (heads,) * layers})
    text = printed(signed_grid(layout, known, 5.0, -1), 100)
    lines = groups(text)
    assert [layer for some, _, _ in lines for layer in some] == list(range(layers))
    assert len(lines) <= 32
    for some, named, more in lines:
        here = sorted((h for h in known if h.layer in some), key=lambda h: -abs(known[h]))
        assert named == [head.name for head in here[: len(named)]]
        assert len(named) + more == len(here)
        assert signed(known[here[0]], 2, 3) in text
    assert f"of the {layers * heads:,} heads with a value" in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_grid_that_can_be_read_is_whole() -> None:
    known = values(24, 16)
    text = printed(signed_grid(Layout({"decoder": (16,) * 24}), known, 5.0, -1), 100)
    assert "strongest" not in text
    assert len(re.findall(r"[+-]\d", text)) == len(known)


def test_layers_without_anything_are_left_out_of_a_folded_grid() -> None:
    known = {head: value for head, value in values(32, 32).items() if head.layer in (4, 30)}
    lines = groups(printed(signed_grid(Layout({"decoder": (32,) * 32}), known, 5.0, -1), 100))
    assert [list(some) for some, _, _ in lines] == [[4], [30]]
    tiles = {head: console.Tile("one", abs(value)) for head, value in known.items()}
    lines = groups(printed(console.tile_grid(Layout({"decoder": (32,) * 32}), tiles), 100))
    assert [(list(some), len(named) + more) for some, named, more in lines] == [
        ([4], 32),
        ([30], 32),
    ]


@pytest.mark.parametrize("width", [60, 100, 140])
def test_folded_roles_have_what_heads_do_first(width: int) -> None:
    found = report({"decoder": (64,) * 80})
    text = printed(heads_grid(found), width)
    assert len(text.splitlines()) <= console.MOST_LINES
    roles = {one.head.name: one.roles[0] for one in found.heads if one.roles}
    lines = groups(text)
    assert sum(len(named) + more for _, named, more in lines) == len(roles)
    for some, named, _ in lines:
        order = {n: (not ROLES[r.name].rests, r.evidence.mean) for n, r in roles.items()}
        here = sorted((n for n in order if int(n.split(".")[0]) in some), key=order.get)
        assert named == here[::-1][: len(named)]
    assert "no role" in text  # the legend counts all


def test_32_by_32_roles_stand_in_one_grid_where_there_is_room() -> None:
    text = printed(heads_grid(report({"decoder": (32,) * 32})), 100)
    assert "strongest" not in text
    assert len(text.splitlines()) < 50


def test_tables_show_all_that_can_be_read() -> None:
    for count in (0, 144, console.MOST_ROWS):
        assert console.rows_shown(count) == count
    assert console.rows_shown(console.MOST_ROWS + 1) == console.FIRST_ROWS
    assert console.rows_shown(5120, 1000) == 1000
    assert console.rows_shown(12, 40) == 12


def test_of_many_layers_every_few_and_the_last() -> None:
    assert list(console.every_few(range(33))) == list(range(33))
    assert list(console.every_few(range(81))) == list(range(2, 81, 3))
    assert list(console.every_few(range(127)))[-1] == 126


Image = pytest.importorskip("PIL.Image")

ROWS, COLUMNS = 2, 3
PLACES = ((), *((r, c) for r in range(ROWS) for c in range(COLUMNS)))
TOKENS = Tokens(
    ("[CLS]", *(f"{r},{c}" for r in range(ROWS) for c in range(COLUMNS))),
    special=(True, *(False,) * 6),
    places=PLACES,
)


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
    shown = on_terminal(over.picture, titled, over.style, over.selected.name)
    out = printed(shown, force_terminal=color is not None, color_system=color)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
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
    assert "queries" in ok(capsys, "heatmap", "--recorded", path, "--query", "all")
    assert main(["heatmap", "a b c", "--query", "0,1"]) == 2
    assert "there is no picture to draw over" in capsys.readouterr().err
