"""Figures: the right colours in the right places, labels that never overlap, the same bytes."""

from __future__ import annotations

import dataclasses
import io
import logging
import time
import warnings
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from attnviz.core.heads import Layout, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.scores import HeadScores, HeadsOf, Role, Score
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing import canvas, figure, fonts
from attnviz.drawing import grid_figure as figure_heads
from attnviz.drawing import heatmap_figure as figure_heatmap
from attnviz.drawing.palette import PALETTES, ramp, rgb
from attnviz.drawing.style import Style
from attnviz.errors import InputError, UsageError
from attnviz.scoring.roles import ROLES
from tests.drawing.test_style import masked_causal
from tests.drawing.test_terminal import WORDS

SCRIPTS = (
    "你好", "שלום", "مرحبا", "हिन्दी", "👩\u200d🚀", "$x^2$", "$\\frac{", "\\alpha", "\x1b[2J", "\n",
)  # fmt: skip


def tokens(count: int, words: tuple[str, ...] = WORDS) -> Tokens:
    return Tokens(tuple(words[i % len(words)] for i in range(count)))


def sides(queries: int, keys: int | None = None) -> Sides:
    shared = tokens(queries)
    return Sides(shared, shared if keys is None else tokens(keys))


def weights(queries: int, keys: int | None = None, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).gamma(0.3, size=(queries, keys or queries)) + 1e-6
    return rows / rows.sum(axis=1, keepdims=True)


def drawn(build: Callable[[], Figure], dpi: float) -> tuple[Figure, np.ndarray]:
    """A figure, drawn once so that texts can be measured, and its picture, [height, width, 3]."""
    kept: list[Figure] = []
    png = canvas.rendered(lambda: kept.append(build()) or kept[0], "png", dpi)
    return kept[0], np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def built(*maps: tuple[str, np.ndarray, Sides], normalize: str = "row", dpi: float = 100) -> Figure:
    """The figure of maps."""
    return drawn(lambda: figure_heatmap.fitted(maps, Style(normalize=normalize, dpi=dpi)), dpi)[0]


@cache
def labelled(queries: int, keys: int) -> Figure:
    """A map of that size under a title, which nobody changes."""
    title = "head 4.11: previous 0.97, local 0.99"
    return built((title, weights(queries, keys), sides(queries, keys)))


def boxes(texts: list) -> list:
    return [text.get_window_extent() for text in texts if text.get_text()]


def panels(fig: Figure) -> list[Axes]:
    return fig.axes[:-1]


@pytest.mark.parametrize(
    "size",
    [
        *((10, 10), (128, 128), (10, 60), (1, 1)),
        *(
            pytest.param(size, marks=pytest.mark.slow)
            for size in ((2, 2), (32, 32), (200, 200), (150, 4))
        ),
    ],
)
def test_labels_neither_overlap_nor_leave_the_page(size: tuple[int, int]) -> None:
    fig = labelled(*size)
    (axes,) = panels(fig)
    page = fig.bbox
    across, down = boxes(axes.get_xticklabels()), boxes(axes.get_yticklabels())
    assert len(across) >= min(size[1], 40)
    assert len(down) >= min(size[0], 40)
    for left, right in pairwise(across):
        assert left.x1 <= right.x0 + 0.5
    for upper, lower in pairwise(down):
        # The boxes leave room for descenders; what must not overlap is the letters' body.
        assert upper.y0 + 0.3 * upper.height >= lower.y1 - 0.3 * lower.height
    everything = [
        *across, *down, *boxes([axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title]),
        *boxes(list(fig.axes[-1].get_yticklabels())),
        *boxes([fig.axes[-1].yaxis.label, *fig.texts]),
    ]  # fmt: skip
    for box in everything:
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= page.x1 + 1
        assert box.y1 <= page.y1 + 1
    for note in boxes(fig.texts):
        assert not note.overlaps(axes.xaxis.label.get_window_extent())


@pytest.mark.parametrize(
    ("count", "step"),
    [
        (128, 1),
        (150, 2),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((220, 3), (500, 5))),
    ],
)
def test_labels_are_thinned_aloud(count: int, step: int) -> None:
    fig = labelled(count, count)
    (axes,) = panels(fig)
    places = list(range(0, count, step))
    shown = [label.get_text() for label in axes.get_yticklabels()]
    texts = tokens(count).texts
    assert list(axes.get_yticks()) == places
    assert shown == [texts[i].replace(" ", "·") for i in places]
    notes = [note.get_text() for note in fig.texts]
    assert notes == ([f"one token in {step} is labelled"] if step > 1 else [])


@pytest.mark.parametrize(
    ("size", "normalize", "palette"),
    [
        ((6, 6), "row", "viridis"), ((6, 6), "global", "magma"), ((3, 17), "global", "blues"),
        ((60, 60), "row", "cividis"),
    ],
)  # fmt: skip
def test_pixels_have_the_colours_of_the_weights(
    size: tuple[int, int], normalize: str, palette: str
) -> None:
    values = weights(*size)
    item = ("head 0.0", values, sides(*size))
    style = Style(normalize=normalize, palette=palette, dpi=120)
    fig, image = drawn(lambda: figure_heatmap.fitted([item], style), 120)
    box = panels(fig)[0].get_window_extent()
    shares = values / (values.max(axis=1, keepdims=True) if normalize == "row" else values.max())
    height, width = box.height / size[0], box.width / size[1]
    table = [rgb(color) for color in ramp(palette)]
    for row in range(size[0]):
        for column in range(size[1]):
            # A quarter into the cell, where no number is written and no line is drawn.
            y = image.shape[0] - box.y1 + (row + 0.25) * height
            x = box.x0 + (column + 0.25) * width
            color = image[int(y), int(x)]
            expected = table[round(shares[row, column] * 255)]
            assert np.abs(color - expected).max() <= 6, (row, column)


def test_a_peak_finer_than_a_pixel_is_seen() -> None:
    values = np.full((700, 700), 1e-4)
    values[333, 467] = 0.9
    item = ("", values, sides(700))
    fig, image = drawn(lambda: figure_heatmap.fitted([item], Style(dpi=30)), 30)
    bright = rgb(ramp("viridis")[-1])
    box = panels(fig)[0].get_window_extent()
    found = np.argwhere(np.abs(image[:, : int(box.x1)] - bright).max(axis=2) < 10)
    y, x = found.mean(axis=0)
    assert y == pytest.approx(image.shape[0] - box.y1 + 333 / 700 * box.height, abs=2)
    assert x == pytest.approx(box.x0 + 467 / 700 * box.width, abs=2)
    assert any("share a pixel" in note.get_text() for note in fig.texts)


def test_numbers_in_small_maps() -> None:
    values = np.array([[1.0, 0.0], [0.972, 0.028]])
    (axes,) = panels(built(("", values, sides(2))))
    assert {t.get_position(): t.get_text() for t in axes.texts} == {
        (0, 0): "1.0",
        (0, 1): ".97",
        (1, 1): ".03",
    }


@pytest.mark.parametrize("count", [2, 5, 12])
def test_a_grid_shares_labels_and_scale(count: int) -> None:
    same = sides(6)
    fig = built(
        *((f"head 0.{i}", weights(6, seed=i) / (i + 1), same) for i in range(count)),
        normalize="global",
    )
    maps = panels(fig)
    assert [axes.get_title("left") for axes in maps] == [f"head 0.{i}" for i in range(count)]
    lefts = {round(axes.get_position().x0, 3) for axes in maps}
    labelled = [axes for axes in maps if axes.yaxis.get_visible()]
    assert {round(axes.get_position().x0, 3) for axes in labelled} == {min(lefts)}
    below = [axes for axes in maps if axes.xaxis.get_visible()]
    assert len(below) == len(lefts)
    for one, other in pairwise(maps):
        assert not one.get_window_extent().overlaps(other.get_window_extent())
    top = max(float((weights(6, seed=i) / (i + 1)).max()) for i in range(count))
    ticks = dict(zip(fig.axes[-1].get_yticks(), fig.axes[-1].get_yticklabels(), strict=True))
    assert all(place * top == pytest.approx(float(t.get_text())) for place, t in ticks.items())
    assert len(ticks) > 3
    for axes in maps:
        for box in boxes([axes._left_title]):
            assert not any(box.overlaps(other.get_window_extent()) for other in maps)


def test_maps_with_different_tokens_are_labelled_each() -> None:
    fig = built(("a", weights(4), sides(4)), ("b", weights(3, 7), sides(3, 7)))
    one, other = panels(fig)
    assert [len(axes.get_xticks()) for axes in (one, other)] == [4, 7]
    assert [len(axes.get_yticks()) for axes in (one, other)] == [4, 3]
    assert max(b.x1 for b in boxes(one.get_xticklabels())) < min(
        b.x0 for b in boxes([other.yaxis.label])
    )


@pytest.mark.parametrize(
    ("format", "magic"),
    [
        ("png", b"\x89PNG"),
        pytest.param("svg", b"<?xml", marks=pytest.mark.slow),
        pytest.param("pdf", b"%PDF", marks=pytest.mark.slow),
    ],
)
def test_same_input_same_bytes_whatever_the_user_has_set_of_the_layout(
    format: str, magic: bytes
) -> None:
    item, other = (("head 0.0", weights(5, seed=n), sides(5)) for n in (0, 1))
    first, began = figure.heatmap_figure([item], format=format), time.monotonic()
    assert first.startswith(magic)
    assert figure.heatmap_figure([other], format=format) != first
    # dates in metadata have a resolution of one second
    time.sleep(max(0, began + 1.1 - time.monotonic()))
    with mpl.rc_context({"axes.grid": True, "font.size": 30, "savefig.bbox": "tight"}):
        assert figure.heatmap_figure([item], format=format) == first
        assert mpl.rcParams["font.size"] == 30


@pytest.mark.parametrize("format", figure.FORMATS)
def test_any_script_without_a_warning(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    odd, logged = tokens(10, SCRIPTS), []
    monkeypatch.setattr(logging.Logger, "handle", lambda _, record: logged.append(record))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.heatmap_figure([("head $x$ 你", weights(10), Sides(odd, odd))], format=format)
    assert logged == []


def test_labels_are_shown_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_candidates", lambda: [])
    odd = tokens(10, SCRIPTS)
    fig = built(("$head$", weights(10), Sides(odd, odd)))
    (axes,) = panels(fig)
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert shown[:4] == ["<U+4F60 597D>", "שלום", "مرحبا", "<U+0939 093F 0928 094D 0926 0940>"]
    assert shown[5:] == ["$x^2$", "$\\frac{", "\\alpha", "<U+001B>[2J", "↵"]
    assert not any(label.get_parse_math() for label in axes.get_yticklabels())
    assert axes.get_title("left") == "$head$"
    assert "code points" in fig.texts[0].get_text()


def test_fallback_fonts_are_used_where_they_have_the_glyph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "BASE_FAMILY", "cmr10")  # a font with Latin letters only
    monkeypatch.setattr(fonts, "_candidates", lambda: ["cmss10", "DejaVu Sans", "STIXGeneral"])
    families, missing = fonts.choose(["keys שלום", "你"])
    assert families == ["cmr10", "DejaVu Sans"]
    assert missing == {"你"}
    assert fonts.choose(["keys"]) == (["cmr10"], frozenset())


def test_candidates_leave_out_what_cannot_be_drawn() -> None:
    names = fonts._candidates()
    assert "DejaVu Sans Mono" in names
    assert not any("last resort" in name.lower() for name in names)
    assert fonts._UNUSABLE.search("Noto Color Emoji")
    assert fonts._covered("no such family", frozenset("a")) == frozenset()


def test_fonts_installed_after_matplotlib_made_its_list_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    names = [entry for entry in fonts.fontManager.ttflist if entry.name != "STIXGeneral"]
    stix = str(Path(mpl.get_data_path(), "fonts", "ttf", "STIXGeneral.ttf"))
    installed = [str(tmp_path / "broken.ttf"), stix]
    monkeypatch.setattr(fonts.fontManager, "ttflist", names)
    assert "STIXGeneral" not in fonts._candidates()
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: installed)
    fonts.notice_new_fonts.cache_clear()
    assert "STIXGeneral" in fonts._candidates()


def test_wrong_use() -> None:
    item = ("", weights(2), sides(2))
    with pytest.raises(
        UsageError, match="unknown figure format 'gif': choose one of png, svg, pdf"
    ):
        figure.heatmap_figure([item], format="gif")
    with pytest.raises(UsageError, match="select at least one head"):
        figure.heatmap_figure([])
    with pytest.raises(InputError, match="does not fit"):
        figure.heatmap_figure([("", weights(3), sides(2))])
    blank = figure.heatmap_figure([("", np.zeros((2, 2)), sides(2))])
    assert blank.startswith(b"\x89PNG")


# --- the grid of heads


def report(heads: dict[SiteKind, tuple[int, ...]], share: float = 0.6) -> HeadsOf:
    layout = Layout(heads)
    rng = np.random.default_rng(0)
    names = list(ROLES)
    scored = []
    for head in layout:
        evidence = Score(float(rng.uniform(0.3, 1)), 0.1, 5.0, 12)
        name = names[int(rng.integers(10))]
        roles = (Role(name, name, evidence, False),) if rng.random() < share else ()
        scored.append(HeadScores(head, {}, roles))
    return HeadsOf(
        source=SourceInfo("gpt2 $x$", "native", "exact"), layout=layout,
        inputs=Inputs(dict.fromkeys(layout.kinds, sides(9))), heads=tuple(scored),
    )  # fmt: skip


@pytest.mark.parametrize(
    "heads",
    [
        {"encoder": (8,)}, {"decoder": (12,) * 12}, {"decoder": (40,) * 3},
        {"encoder": (8,) * 6, "decoder": (8,) * 6, "cross": (8,) * 6},
        {"encoder": (16,) * 3, "decoder": (16,) * 3, "cross": (16,) * 3},
    ],
)  # fmt: skip
def test_heads_figure_shows_every_head(heads: dict[SiteKind, tuple[int, ...]]) -> None:
    full = report(heads)
    fig, _ = drawn(lambda: figure_heads.build(full, 100), 100)
    *grids, legend = fig.axes
    assert len(grids) == len(heads)
    for kind, axes in zip(heads, grids, strict=True):
        expected = {}
        for scores in full.heads:
            if scores.head.site.kind == kind and scores.roles:
                style = ROLES[scores.roles[0].name]
                code = style.short if max(heads[kind]) > 24 else style.code
                expected[scores.head.index, scores.head.layer] = code
        assert {t.get_position(): t.get_text() for t in axes.texts} == expected
        assert len(axes.collections[0].get_paths()) == sum(heads[kind])
        for text in axes.texts:
            box = text.get_window_extent()
            assert box.width < axes.get_window_extent().width / max(heads[kind])
    counts = [int(text.get_text()) for text in legend.texts if text.get_ha() == "right"]
    assert sum(counts) == len(full.heads)
    extents = [axes.get_window_extent() for axes in fig.axes]
    for place, one in enumerate(extents):
        assert one.x1 <= fig.bbox.x1 + 1
        assert one.y0 >= -1
        assert not any(one.overlaps(other) for other in extents[place + 1 :])
    for box in boxes([*legend.texts, *fig.texts]):
        assert box.x1 <= fig.bbox.x1


def test_heads_figure_colours_follow_the_score() -> None:
    strong = figure_heads.tint(ROLES["previous"].color, 1.0)
    weak = figure_heads.tint(ROLES["previous"].color, 0.3)
    assert strong == ROLES["previous"].color
    assert sum(rgb(weak)) > sum(rgb(strong))
    assert weak != "#ffffff"


@pytest.mark.parametrize("dpi", [50, 72, 100, 150, 220])
def test_nothing_of_the_heads_figure_is_cut_at_any_resolution(dpi: float) -> None:
    info = SourceInfo("demo-gpt2", "native", "checked against transformers to 1e-5 in float32")
    full = dataclasses.replace(report({"decoder": (6,) * 4}), source=info)
    fig, _ = drawn(lambda: figure_heads.build(full, dpi), dpi)
    assert len(fig.texts) > 1
    for box in boxes(fig.texts):
        assert box.x1 <= fig.bbox.x1 - 0.1 * dpi


# --- masked cells, scales


@pytest.mark.parametrize("palette", PALETTES)
@pytest.mark.parametrize("count", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_masked_cells_look_unlike_any_weight(count: int, palette: str) -> None:
    style = Style(palette=palette, dpi=120)
    item = ("", masked_causal(count), sides(count))
    fig, image = drawn(lambda: figure_heatmap.fitted([item], style), 120)
    box = panels(fig)[0].get_window_extent()
    y = int(image.shape[0] - box.y1 + 0.25 * box.height / count)
    masked = image[y, int(box.x0 + (count - 0.75) * box.width / count)]
    y = int(image.shape[0] - box.y1 + (count - 0.75) * box.height / count)
    zero = image[y, int(box.x0 + 0.25 * box.width / count)]
    assert np.abs(zero - rgb(ramp(palette)[0])).max() <= 3
    nearest = min(np.abs(masked - rgb(color)).max() for color in ramp(palette))
    assert nearest >= 15
    assert any("may not attend" in note.get_text() for note in fig.texts)


def test_the_caption_stands_below() -> None:
    item, caption = ("head 0.0", weights(6), sides(6)), "gpt2: the keys to the cabinet"
    fig, _ = drawn(lambda: figure_heatmap.fitted([item], Style(), caption=caption), 150)
    assert caption in " ".join(text.get_text() for text in fig.texts)
