"""Maps of very many heads: one mosaic, and the first of them on the terminal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import attnviz as av
from attnviz.core.capture import Capture
from attnviz.core.heads import Layout, Site
from attnviz.drawing.console import FIRST_ROWS
from attnviz.drawing.mosaic import assemble
from attnviz.drawing.style import Style
from attnviz.errors import UsageError
from attnviz.features.heatmap.function import ACROSS, LINES
from attnviz.models.controls import FreshConfig
from benchmarks.many import capture
from tests.cli.calling import ok
from tests.viewing import encoder_decoder

LAYERS, HEADS = 20, 16


@pytest.fixture(scope="module")
def many() -> Capture:
    return capture(LAYERS, HEADS, 5)


def size(png: bytes) -> tuple[int, int]:
    """Width and height in pixels, as the file's header has them."""
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])


def test_over_256_maps_are_tiles_of_one_picture(many: Capture) -> None:
    whole = av.heatmap(many, "*.*")
    wide, high = size(whole.to_bytes(".png"))
    tiles = assemble({(h.layer, h.index): many[h] for h in many.layout}, Style())
    assert tiles.levels.shape[1] < wide < tiles.levels.shape[1] + 300
    assert tiles.levels.shape[0] < high < tiles.levels.shape[0] + 300
    assert b"320 heads" in whole.to_bytes(".svg")


@pytest.mark.slow
def test_up_to_256_maps_have_their_tokens(many: Capture) -> None:
    whole, fewer = (av.heatmap(many, heads).to_bytes(".png") for heads in ("*.*", "0-14.*"))
    assert size(fewer)[0] > size(whole)[0]


def test_maps_of_several_kinds_do_not_fit_into_one_picture() -> None:
    one = encoder_decoder()
    layout = Layout({kind: counts * 50 for kind, counts in one.layout.heads.items()})
    maps = {
        Site(site.kind, layer): array
        for site, array in one.maps.items()
        for layer in range(site.layer, 100, 2)
    }
    both = Capture(one.source, layout, one.inputs, maps)
    with pytest.raises(UsageError, match="800 maps of 3 kinds of attention are too many"):
        av.heatmap(both, "*.*").to_bytes(".png")


def test_the_terminal_has_the_first(many: Capture, tmp_path: Path, capsys) -> None:
    file = tmp_path / "many.npz"
    av.write_capture(many, file)
    said = ok(capsys, "heatmap", "--recorded", str(file), "--select", "*.*")
    assert said.count("\nhead ") + said.startswith("head ") == FIRST_ROWS
    assert f"the first {FIRST_ROWS} of the 320 heads that are selected; --out draws all" in said
    assert ok(capsys, "heatmap", "--recorded", str(file), "--select", "0-8.*").count("head ") == 144


MODEL = FreshConfig(heads=2, layers=1, causal=True, d_model=32)
TEXT = " ".join(f"w{n * n % 211}" for n in range(2100))


@pytest.fixture(scope="module")
def whole() -> np.ndarray:
    """The map of head 0.1, [T, T]."""
    return av.capture(TEXT, model=MODEL, select="0.1")["0.1"].astype(np.float64)


@pytest.mark.parametrize("tiles", ["max", "sum"])
def test_a_cell_is_the_largest_weight_or_the_sum_of_its_tile(whole: np.ndarray, tiles: str) -> None:
    picture = av.heatmap(TEXT, "0.1", model=MODEL, tiles=tiles)
    ((head, cells, sides),) = picture.maps
    size = -(-len(whole) // ACROSS)
    assert (head.layer, head.index) == (0, 1)
    assert cells.shape == (-(-len(whole) // size),) * 2
    starts = np.arange(0, len(whole), size)
    of_tiles = np.maximum.reduceat if tiles == "max" else np.add.reduceat
    expected = of_tiles(of_tiles(whole, starts, 0), starts, 1)
    if tiles == "sum":
        expected /= np.diff(starts, append=len(whole))[:, None]
    unseen = starts > starts[:, None]  # by a causal model
    np.testing.assert_array_equal(np.ma.getmaskarray(cells), unseen)
    np.testing.assert_allclose(cells[~unseen], expected[~unseen], rtol=0, atol=1e-5)
    assert sides.keys.texts[1] == f"{size:,} w{size * size % 211}"
    assert f"a tile of {size} × {size} tokens" in picture.cells
    assert picture.to_bytes("png")[:4] == b"\x89PNG"


def test_a_part_is_shown_token_by_token(whole: np.ndarray) -> None:
    picture = av.heatmap(TEXT, "0.1", model=MODEL, rows="2000-2010", keys="1995-2010")
    ((_, cells, sides),) = picture.maps
    expected = whole[2000:2011, 1995:2011]
    np.testing.assert_allclose(np.ma.filled(cells, 0), expected, rtol=0, atol=1e-6)
    assert sides.queries.texts[0] == TEXT.split()[2000]
    assert picture.cells == ""
    assert picture.to_bytes("png")[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("change", "named"), [({"words": True}, "words=True"), ({"hide": "sink"}, "hide='sink'")]
)
def test_what_needs_the_whole_map_is_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=f"shown as tiles, without {named}; shorten it"):
        av.heatmap(TEXT, "0.1", model=MODEL, **change)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "book.txt"
    text.write_text(TEXT)
    line = ["heatmap", "--file", str(text), "--model", "fresh", "--causal", "--select", "0.1"]
    size = -(-2100 // LINES)
    said = " ".join(ok(capsys, *line, "--heads", "2", "--d-model", "32").split())
    assert f"a tile of {size} × {size} tokens" in said
