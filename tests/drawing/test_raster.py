"""Fast pictures: exact weights and colours, the glyphs of matplotlib, files others can read."""

from __future__ import annotations

import io
import subprocess
import sys
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.font_manager import FontProperties
from PIL import Image

from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing import glyphs, mosaic, png
from attnviz.drawing.palette import PALETTES, ramp, rgb
from attnviz.drawing.raster import Raster, heatmap_png
from attnviz.drawing.style import Style
from attnviz.errors import InputError, UsageError


def sides_of(queries: int, keys: int | None = None) -> Sides:
    tokens = Tokens(tuple(f"word{i}" for i in range(queries)))
    return Sides(tokens, tokens if keys is None else Tokens(tuple(f"k{i}" for i in range(keys))))


def weights_of(queries: int, keys: int, seed: int = 0) -> np.ndarray:
    scores = np.exp(3 * np.random.default_rng(seed).normal(size=(queries, keys)))
    return (scores / scores.sum(-1, keepdims=True)).astype(np.float32)


def decoded(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Palette indices and palette, as Pillow reads them."""
    image = Image.open(io.BytesIO(data))
    image.load()
    assert image.mode == "P"
    return np.asarray(image), np.array(image.getpalette()).reshape(-1, 3)


def cells_of(raster: Raster, pixels: np.ndarray, place: int, lines: int) -> np.ndarray:
    """The palette index of every cell, after checking that a cell is of one colour."""
    y, x = raster.sheet.corner(place, lines)
    rows, columns = raster.sheet.rows, raster.sheet.columns
    gap = int(raster.sheet.ruled)
    found = np.empty((rows.count, columns.count), int)
    for i in range(rows.count):
        for j in range(columns.count):
            top, left = y + i * rows.cell + gap, x + j * columns.cell + gap
            cell = pixels[top : top + rows.cell - gap, left : left + columns.cell - gap]
            assert (cell == cell[0, 0]).all()
            found[i, j] = cell[0, 0]
    return found


@pytest.mark.parametrize(
    ("queries", "keys", "palette", "normalize"),
    [
        *((*size, "viridis", "row") for size in ((7, 7), (11, 5), (53, 53), (130, 61))),
        *((*size, "viridis", "global") for size in ((7, 7), (3, 29), (53, 53), (130, 61))),
        *((11, 5, palette, "global") for palette in PALETTES),
    ],
)
def test_indices_are_the_weights_and_colours_the_palette(
    queries: int, keys: int, palette: str, normalize: str
) -> None:
    weights = weights_of(queries, keys)
    raster = Raster(sides_of(queries, keys), 1, Style(normalize=normalize, palette=palette))
    pixels, table = decoded(raster.png([("head 1.2", weights)]))
    index = cells_of(raster, pixels, 0, 1)
    top = weights.max(1, keepdims=True) if normalize == "row" else weights.max()
    assert abs(index / (glyphs.LEVELS - 1) * top - weights).max() <= (top / 255).max()
    assert index.max() == glyphs.LEVELS - 1
    colours = [rgb(c) for c in ramp(palette, glyphs.LEVELS)]
    shares = weights / top
    for i, j in np.ndindex(*weights.shape):
        assert (
            tuple(table[index[i, j]]) == colours[round(float(shares[i, j]) * (glyphs.LEVELS - 1))]
        )


def test_a_grid_shares_its_scale_and_its_labels() -> None:
    maps = [(f"head 0.{n}: previous 0.9", weights_of(9, 9, n) / (n + 1)) for n in range(5)]
    raster = Raster(sides_of(9), 5)
    pixels = raster.pixels(maps)
    top = max(array.max() for _, array in maps)
    for place, (_, array) in enumerate(maps):
        index = cells_of(raster, pixels, place, 1)
        assert abs(index / (glyphs.LEVELS - 1) * top - array).max() <= top / 255


def test_zero_rows_and_zero_maps() -> None:
    weights = weights_of(6, 6)
    weights[2] = 0
    for array in (weights, np.zeros((6, 6))):
        for normalize in ("row", "global"):
            raster = Raster(sides_of(6), 1, Style(normalize=normalize))
            index = cells_of(raster, raster.pixels([("", array)]), 0, 0)
            assert (index[2] == 0).all()


def test_more_tokens_than_pixels_show_the_largest() -> None:
    count = 700
    weights = np.zeros((count, count))
    weights[np.arange(count), np.arange(count)] = 1
    weights[3, 600] = 1
    raster = Raster(sides_of(count), 1, Style(dpi=40))
    rows = raster.sheet.rows
    assert rows.pool == 2
    index = cells_of(raster, raster.pixels([("x", weights)]), 0, 1)
    assert index[3 // 2, 600 // 2] == glyphs.LEVELS - 1
    assert (np.diag(index) == glyphs.LEVELS - 1).all()
    assert any("share a pixel" in note for note in raster.sheet.notes)


@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**32 - 1)
)  # fmt: skip
def test_png_gives_back_every_pixel(height: int, width: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width), np.uint8)
    table = glyphs.colors("viridis")
    found, palette = decoded(png.encode(pixels, table, 120))
    assert (found == pixels).all()
    assert (palette == table).all()


@pytest.mark.parametrize("deflate", [zlib.compress, png.compress])
def test_every_deflate_gives_back_the_pixels(monkeypatch: pytest.MonkeyPatch, deflate) -> None:
    monkeypatch.setattr(png, "compress", deflate)
    weights = weights_of(23, 23)
    raster = Raster(sides_of(23))
    found, _ = decoded(raster.png([("head 4.11", weights)]))
    assert (found == raster.pixels([("head 4.11", weights)])).all()


def test_deflate_is_zlib_where_isal_is_missing() -> None:
    code = (
        "import sys; sys.modules['isal'] = None; "
        "from attnviz.drawing import png; print(png.DEFLATE)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("zlib ")
    assert png.DEFLATE.startswith("isal "), "isal is among the dependencies"


def test_bytes_depend_on_the_pixels_alone() -> None:
    """Not on where they lie or on what was in that memory: exports are compared byte by byte."""
    random = np.random.default_rng(0)
    table = glyphs.colors("viridis")
    for seed in range(6):
        count = int(random.integers(2, 60))
        raster = Raster(sides_of(count))
        pixels = raster.pixels([("head 4.11", weights_of(count, count, seed))])
        expected = png.encode(pixels, table, 120)
        for shift in range(1, 12):
            litter = random.bytes(300_000)
            moved = np.frombuffer(random.bytes(pixels.size + 64), np.uint8).copy()
            moved[shift : shift + pixels.size] = pixels.ravel()
            del litter
            moved = moved[shift : shift + pixels.size].reshape(pixels.shape)
            assert png.encode(moved, table, 120) == expected


def test_png_chunks_have_right_checksums() -> None:
    data = png.encode(np.zeros((3, 5), np.uint8), glyphs.colors("greys"), 100)
    place, names = 8, []
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "big")
        body = data[place + 4 : place + 8 + size]
        assert zlib.crc32(body).to_bytes(4, "big") == data[place + 8 + size : place + 12 + size]
        names.append(body[:4])
        place += 12 + size
    assert names == [b"IHDR", b"PLTE", b"pHYs", b"IDAT", b"IEND"]


def inked(coverage: np.ndarray) -> np.ndarray:
    """A bitmap without its empty margins."""
    where = np.argwhere(coverage)
    (top, left), (bottom, right) = where.min(0), where.max(0)
    return coverage[top : bottom + 1, left : right + 1].astype(float)


@pytest.mark.parametrize("text", ["keys", "Typography", "gjpqy", "·the", "##ing", "ÄÉñ", "مفاتيح"])
@pytest.mark.parametrize("size", [5.25, 9.0, 20.0])
def test_glyphs_are_those_of_matplotlib(text: str, size: float) -> None:
    """The same ink as the renderer of matplotlib's figures, kerning and shaping included."""

    def reference(shown: str) -> np.ndarray:
        renderer = RendererAgg(600, 120, 120)
        font = FontProperties(family=["DejaVu Sans"], size=size)
        renderer.draw_text(renderer.new_gc(), 20, 80, shown, font, 0)
        return inked(np.asarray(renderer.buffer_rgba())[..., 3])

    ours = inked(glyphs.label(text, size, 120).ink)
    theirs = reference(text)
    assert ours.shape == theirs.shape
    assert (ours == theirs).all()
    assert ours.shape != reference(text + "n").shape


def test_characters_without_a_font_are_spelled() -> None:
    found = glyphs.label("\U0010fffd", 9.0, 120)
    assert not found.complete
    raster = Raster(Sides(Tokens(("\U000e0fff", "b")), Tokens(("a", "b"))))
    assert raster.sheet.notes == []  # shown as <U+E0FFF>, which every font has
    assert glyphs.label("", 9.0, 120).width == 0


def test_titles_wrap_and_never_leave_the_picture() -> None:
    raster = Raster(sides_of(4))
    long = "head 1.2: " + ", ".join(f"role{n} 0.97" for n in range(30))
    wide = raster.pixels([(long, weights_of(4, 4))])
    short = raster.pixels([("x", weights_of(4, 4))])
    assert wide.shape[0] == short.shape[0] + raster.sheet.title_line
    assert wide.shape[1] == short.shape[1]
    assert (wide[:, -1] == glyphs.WHITE).all()
    assert (wide[0] == glyphs.WHITE).all()


def test_the_next_picture_does_not_change_the_last() -> None:
    raster = Raster(sides_of(5))
    first = raster.pixels([("a", weights_of(5, 5))])
    kept = first.copy()
    raster.pixels([("something long enough to differ", weights_of(5, 5, 3))])
    assert (first == kept).all()
    assert (raster.pixels([("a", weights_of(5, 5))]) == kept).all()


def test_labels_can_be_left_out() -> None:
    with_labels = Raster(sides_of(12)).pixels([("x", weights_of(12, 12))])
    without = Raster(sides_of(12), 1, Style(hide="labels")).pixels([("x", weights_of(12, 12))])
    assert without.shape[0] < with_labels.shape[0]


def test_size_and_dpi_set_the_cells() -> None:
    for size, dpi in ((2.0, 100), (4.0, 100), (2.0, 200)):
        sheet = Raster(sides_of(10), 1, Style(size=size, dpi=dpi)).sheet
        assert sheet.rows.length == sheet.columns.length == size * dpi


@given(st.floats(1e-6, 1.0))
def test_ticks_are_few_round_and_in_order(top: float) -> None:
    found = [(place * top, text) for place, text in Style().ticks(top)]
    values = [value for value, _ in found]
    assert values[0] == 0
    assert 2 <= len(found) <= 6
    assert values == sorted(set(values))
    assert values[-1] <= top * (1 + 1e-6)
    for value, text in found:
        assert float(text) == pytest.approx(value, rel=1e-9)


def test_ticks_of_one() -> None:
    assert [text for _, text in Style().ticks(1.0)] == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]


def test_mosaic_puts_each_head_in_its_place() -> None:
    heads = {(layer, head): np.zeros((8, 8)) for layer in (0, 2, 5) for head in range(4)}
    del heads[2, 3]
    for (layer, head), weights in heads.items():
        weights[layer, head] = 1.0
    found = mosaic.assemble(heads, Style(normalize="row", dpi=100))
    cell = found.tile[0] // 8
    assert (found.layers, found.heads) == ((0, 2, 5), (0, 1, 2, 3))
    for line, layer in enumerate(found.layers):
        for head in found.heads:
            y, x = line * found.step[0], head * found.step[1]
            tile = found.levels[y : y + found.tile[0], x : x + found.tile[1]][::cell, ::cell]
            if (layer, head) == (2, 3):
                assert (tile == glyphs.WHITE).all()
            else:
                assert np.argwhere(tile == glyphs.LEVELS - 1).tolist() == [[layer, head]]
    pixels, _ = decoded(mosaic.boxed_png(heads, Style(normalize="row", dpi=100), "all", "")[0])
    assert pixels.shape[0] > found.levels.shape[0]
    rows, columns = found.levels.shape
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (1, columns))[:, :, 0]
    places = np.argwhere((windows == found.levels[0]).all(axis=2))
    whole = [(y, x) for y, x in places
             if np.array_equal(pixels[y : y + rows, x : x + columns], found.levels)]  # fmt: skip
    assert len(whole) == 1


def test_mosaic_of_many_tokens_shows_the_largest() -> None:
    weights = np.zeros((300, 300))
    weights[17, 250] = 1.0
    found = mosaic.assemble({(0, 0): weights}, Style(dpi=100, size=0.7))
    assert found.pool == 5
    assert np.argwhere(found.levels == glyphs.LEVELS - 1).tolist() == [[3, 50]]


def test_what_cannot_be_drawn() -> None:
    sides, weights = sides_of(4), weights_of(4, 4)
    for call, error, says in (
        (lambda: Raster(sides, 0), UsageError, "no attention map"),
        (lambda: heatmap_png([("x", weights[:3], sides)], Style()), InputError, "does not fit"),
        (lambda: heatmap_png([("x", weights * np.nan, sides)], Style()), InputError, "NaN"),
        (lambda: mosaic.assemble({}, Style()), UsageError, "no attention map"),
        (
            lambda: mosaic.assemble({(0, 0): weights, (0, 1): weights[:3]}, Style()),
            InputError,
            "others of",
        ),
        (lambda: mosaic.assemble({(0, 0): weights * np.inf}, Style()), InputError, "NaN or inf"),
    ):
        with pytest.raises(error, match=says):
            call()


def test_where_maps_stand_in_a_picture_is_known() -> None:
    raster = Raster(sides_of(3), 1, Style(dpi=60))
    maps = [("a title of several words that may take two lines", np.ones((3, 3)))]
    (x, y, wide, high), pixels = raster.box(maps), raster.pixels(maps)
    inside = pixels[y : y + high, x : x + wide]
    assert set(np.unique(inside)) <= {glyphs.LEVELS - 1, glyphs.WHITE}
    assert inside[1, 1] == inside[-1, -1] == glyphs.LEVELS - 1
    assert glyphs.LEVELS - 1 not in (*pixels[y - 1, x : x + wide], *pixels[y : y + high, x - 1])
