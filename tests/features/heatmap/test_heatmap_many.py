"""Maps of very many heads: one mosaic, and the first of them on the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.core.capture import Capture
from attnviz.core.heads import Layout, Site
from attnviz.drawing.mosaic import assemble
from attnviz.drawing.renderable import FIRST_ROWS
from attnviz.drawing.style import Style
from attnviz.errors import UsageError
from benchmarks.many import capture
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
    assert main(["heatmap", "--recorded", str(file), "--select", "*.*"]) == 0
    said = capsys.readouterr().out
    assert said.count("\nhead ") + said.startswith("head ") == FIRST_ROWS
    assert f"the first {FIRST_ROWS} of the 320 heads that are selected; --out draws all" in said
    assert main(["heatmap", "--recorded", str(file), "--select", "0-8.*"]) == 0
    assert capsys.readouterr().out.count("head ") == 144
