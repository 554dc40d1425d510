"""Maps of long texts as tiles, against the whole map."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.errors import UsageError
from attnviz.features.heatmap.function import ACROSS, LINES
from attnviz.models.controls import FreshConfig

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


def test_a_part_is_shown_token_by_token(whole: np.ndarray) -> None:
    picture = av.heatmap(TEXT, "0.1", model=MODEL, rows="2000-2040", keys="1990-2040")
    ((_, cells, sides),) = picture.maps
    expected = whole[2000:2041, 1990:2041]
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
    line += ["--heads", "2", "--d-model", "32"]
    assert main([*line, "-o", str(tmp_path / "book.png")]) == 0
    assert (tmp_path / "book.png").read_bytes()[:4] == b"\x89PNG"
    capsys.readouterr()
    assert main(line) == 0
    size = -(-2100 // LINES)
    assert f"a tile of {size} × {size} tokens" in " ".join(capsys.readouterr().out.split())
