"""Diagrams, plots and the animation: proportions, colours, numbers, sizes of files."""

from __future__ import annotations

import html.parser
import json
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from attnviz.attention.spec import RunSizes, check_sizes, spec_of
from attnviz.attention.walkthrough import walk
from attnviz.errors import UsageError
from attnviz.features.shapes import function as answers
from attnviz.features.shapes.animation.page import (
    CAPTION_TOP,
    WIDTH,
    Frame,
    animation_json,
    animation_page,
    storyboard,
)
from attnviz.features.shapes.costs import sweep
from attnviz.features.shapes.drawing.costs import crossing_mark
from attnviz.features.shapes.drawing.diagram_figure import ROPE, _Drawing, draw
from attnviz.features.shapes.table import Paint, as_text, head_colour
from attnviz.features.shapes.tiny import from_json, from_text
from attnviz.features.shapes.worked import NumericWalk, compute
from tests import mostly_slow
from tests.viewing import opened

MAGIC = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}


def animation(text: str = "cat sat on mat", **options: Any) -> NumericWalk:
    return compute(from_text(text, **options))


# diagrams


def drawing(kind: str, d_model: int, heads: int, run: RunSizes, **sizes: Any) -> _Drawing:
    sizes_ = check_sizes(d_model, heads, kind=kind, **sizes)
    made = _Drawing(walk(spec_of(sizes_, bias=True, causal=kind != "cross"), run))
    made.draw()
    return made


def rectangles(made: _Drawing, colour: str) -> list[Any]:
    found = [patch for patch in made.scene.axes.patches if isinstance(patch, Rectangle)]
    return [patch for patch in found if to_hex(patch.get_facecolor()) == colour]


def test_widths_are_in_proportion() -> None:
    made = drawing("gqa", 64, 8, RunSizes(1, 5), kv_heads=2, head_dim=4)
    # head 0's own colour: its part of Q, K, V, concat, and what it hands on; all 4 of 64 wide
    widths = {round(patch.get_width(), 6) for patch in rectangles(made, head_colour(0))}
    unit = 100 / 64
    assert {w for w in widths if w > 3.9 * unit} == {round(4 * unit, 6)}
    assert any(abs(p.get_width() - 64 * unit) < 1e-6 for p in rectangles(made, "#8a8f98"))


def test_grouped_heads_say_which_key_head_they_read() -> None:
    texts = [text.get_text() for text in drawing("gqa", 64, 8, RunSizes(1, 5)).scene.axes.texts]
    assert [t for t in texts if t.startswith("read K, V")] == ["read K, V 0", "read K, V 1"]
    assert "(1, 8, 5, 5)" in texts


def test_cross_attention_shows_both_sequences() -> None:
    texts = [t.get_text() for t in drawing("cross", 64, 4, RunSizes(1, 5, 7)).scene.axes.texts]
    assert {"X, queries", "C, the other sequence", "(1, 4, 5, 7)", "(1, 7, 64)"} <= set(texts)


def test_latents_and_the_rotary_key_are_drawn_as_wide_as_they_are() -> None:
    spec = answers.Model("deepseek-v2").read().main.spec
    made = _Drawing(walk(spec, RunSizes(1, 5)))
    made.draw()
    unit = 100 / (128 * (128 + 64))
    for colour, wide in (("#3d6f9c", 1536), ("#9c3d3d", 512)):
        (bar,) = rectangles(made, colour)
        assert bar.get_width() == pytest.approx(max(wide * unit, 3))
    assert rectangles(made, ROPE)
    texts = {text.get_text() for text in made.scene.axes.texts}
    assert {"c_Q, latent 1,536", "c, latent 512", "(1, 5, 1536)", "(1, 5, 64)"} <= texts
    plain = drawing("mla", 64, 4, RunSizes(1, 5), rope_dim=0)
    assert not rectangles(plain, ROPE)
    assert not rectangles(plain, "#3d6f9c")
    text = as_text(answers.diagram(answers.Model("deepseek-v2")), 90, Paint(colour=False))
    for said in ("c_Q = X W_DQ", "Q = c_Q W_Q", "k_rope = X W_KR", "then k_rope, rotated"):
        assert said in text


@pytest.mark.parametrize("kind", ["mha", "gqa", "mqa", "mla", "cross"])
@pytest.mark.parametrize(
    "heads", [3, *(pytest.param(many, marks=pytest.mark.slow) for many in (1, 96))]
)
def test_nothing_is_drawn_outside_the_page(kind: str, heads: int) -> None:
    made = drawing(kind, 12 * heads, heads, RunSizes(1))
    left, right = made.scene.axes.get_xlim()
    bottom, top = made.scene.axes.get_ylim()
    for text in made.scene.axes.texts:
        x, y = text.get_position()
        assert left <= x <= right
        assert top <= y <= bottom
    for patch in made.scene.axes.patches:
        box = patch.get_path().get_extents(patch.get_patch_transform())
        assert left <= box.x0 <= box.x1 <= right
        assert top <= box.y0 <= box.y1 <= bottom


@pytest.mark.parametrize("kind", mostly_slow(MAGIC, "svg"))
def test_diagrams_are_the_same_on_every_run(kind: str) -> None:
    walked = walk(spec_of(check_sizes(32, 4), bias=True), RunSizes(1, 3))
    data = draw(walked, kind)
    assert data.startswith(MAGIC[kind])
    assert data == draw(walked, kind)


def test_figures_are_written(tmp_path: Path) -> None:
    layer, cross = answers.Layer(), answers.Layer(kind="cross")
    for drawn in (
        lambda out: answers.diagram(layer, out=out),
        lambda out: answers.sweep(cross, "context-length=8..64", out=out),
        lambda out: answers.scaling(out=out),
    ):
        path = tmp_path / "f.svg"
        answer = drawn(path)
        assert path.read_bytes().startswith(MAGIC["svg"])
        assert str(path) in answer.title + "".join(answer.notes)
    answers.diagram(answers.Model("gpt2"), out=tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes().startswith(MAGIC["png"])


def test_the_crossing_is_marked_where_the_curves_meet() -> None:
    spec = spec_of(check_sizes(512, 8), bias=True)
    mark = crossing_mark(sweep("seq=128..8192", RunSizes(), lambda *_: spec))
    assert mark is not None
    assert (mark.x, mark.y) == (1024, 2 * 1024 * 4 * 512 * 512)
    outside = crossing_mark(sweep("seq=128..256", RunSizes(), lambda *_: spec))
    assert outside is not None
    assert "outside" in outside.text


# the animation


def test_the_animation_shows_the_real_numbers() -> None:
    walked = animation(causal=True)
    frames = storyboard(walked)
    last = frames[-1].boxes
    for i, row in enumerate(walked.output):
        assert [last[f"Y.{i}.{j}"].text for j in range(4)] == [f"{v:.2f}" for v in row]
    weights = next(f for f in frames if "softmax" in f.shapes and "A1.0.0" in f.boxes)
    assert weights.boxes["A1.0.0"].text == "1.00"
    scores = next(f for f in frames if "scores" in f.shapes)
    assert scores.boxes["A0.0.1"].text == "-∞"


def test_weights_appear_row_by_row() -> None:
    frames = storyboard(animation())
    shown = [sum(name.startswith("A0.") for name in frame.boxes) for frame in frames]
    grown = [n for n, before in zip(shown, [0, *shown], strict=False) if n > before]
    assert grown == [4, 8, 12, 16]


def test_boxes_keep_their_names_from_split_to_concat() -> None:
    frames = storyboard(animation())
    projected = next(f for f in frames if "H·d" in f.shapes and "Q0.0.0" in f.boxes)
    split = next(f for f in frames if f.caption.startswith("Cut into heads"))
    assert {n for n in projected.boxes if n[:2] in ("Q0", "Q1", "K0", "V1")} <= split.boxes.keys()
    assert any(projected.boxes[n][:2] != split.boxes[n][:2] for n in ("Q0.0.0", "Q1.0.0"))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"text": "a b c d e f g h", "d_model": 12, "heads": 2, "kv_heads": 1},
        {"text": "a b c d", "d_model": 12, "heads": 4, "causal": True},
        {"text": "one", "heads": 1},
    ],
)
def test_every_box_stays_on_the_stage(options: dict[str, Any]) -> None:
    for frame in storyboard(animation(**options)):
        for name, box in frame.boxes.items():
            assert box.x >= 0, name
            assert box.x + box.width <= WIDTH, name
            assert box.y >= 0, name
            assert box.y + box.height <= CAPTION_TOP, (name, frame.caption)
            if box.fill:
                assert box.height >= 9, name


@pytest.mark.parametrize(
    "options",
    [{"text": "quick brown foxes jumped over lazy sleeping dogs"},
     {"text": "ab bc cd de", "heads": 4, "d_model": 8}],
)  # fmt: skip
def test_words_in_the_animation_do_not_touch(options: dict[str, Any]) -> None:
    for frame in storyboard(animation(**options)):
        placed = []
        for box in frame.boxes.values():
            if box.fill:
                placed.append((box.x, box.y, box.x + box.width, box.y + box.height))
                continue
            wide = 7.4 * len(box.text)
            left = box.x - {"start": 0.0, "middle": wide / 2, "end": wide}[box.align]
            middle = box.y + box.height / 2
            placed.append((left, middle - 6.5, left + wide, middle + 6.5))
        words = [p for p, box in zip(placed, frame.boxes.values(), strict=True) if not box.fill]
        for word in words:
            for other in placed:
                apart = word[2] <= other[0] or other[2] <= word[0]
                assert word is other or apart or word[3] <= other[1] or other[3] <= word[1]


def test_cross_attention_can_be_animated() -> None:
    given = from_json(
        {"x": [[1, 0], [0, 1]], "context": [[1, 1], [2, 0], [0, 2]], "heads": 1}, origin="test"
    )
    frames = storyboard(compute(given))
    assert sum(name.startswith("A0.") for name in frames[-6].boxes) == 6


@pytest.mark.parametrize(
    "options", [{"text": "a b c d e f g h i"}, {"text": "a b c d e", "heads": 4},
                {"text": "a", "d_model": 16}]
)  # fmt: skip
def test_animations_that_would_be_too_small_to_see(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="animation shows at most"):
        storyboard(animation(**options))


class _Page(html.parser.HTMLParser):
    """Tags, and the text of the data element."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.animation, self.inside = "", False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self.inside = dict(attributes).get("id") == "animation"

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        self.animation += data if self.inside else ""


def test_the_page_holds_everything_and_loads_nothing() -> None:
    walked = animation("<b>a</b> </script> $x &amp;")
    text = animation_page(walked).decode()
    page = _Page()
    page.feed(text)
    data = json.loads(page.animation)
    assert len(data["frames"]) == len(storyboard(walked))
    assert any("</scr" in box[5] for box in data["boxes"])
    assert not any("src" in attributes or "href" in attributes for _, attributes in page.tags)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttp", text)
    assert sum(tag == "script" for tag, _ in page.tags) == 3  # with what made it
    named = {a.get("id") for tag, a in page.tags if tag in ("button", "input")}
    assert {"open-help", "save-svg", "save-csv"} < named
    assert "prefers-reduced-motion" in text


def test_animation_data_is_not_repeated() -> None:
    frames = storyboard(animation())
    data = json.loads(animation_json(frames))
    rebuilt = {data["names"][n]: data["boxes"][b] for n, b in data["frames"][-1]["boxes"]}
    assert rebuilt.keys() == frames[-1].boxes.keys()
    assert rebuilt["Y.0.0"][5] == frames[-1].boxes["Y.0.0"].text
    assert isinstance(frames[0], Frame)


def test_the_animation_plays_by_keys_under_its_policy_and_says_when_it_fails(
    browser: Any, tmp_path: Path
) -> None:
    path = tmp_path / "animation.html"
    path.write_bytes(animation_page(animation()))
    with opened(browser, reduced_motion="reduce") as found:
        page = found.visit(path).page
        last = int(page.eval_on_selector("#seek", "seek => seek.max"))
        assert page.inner_text("#play") == "Play"
        assert page.inner_text("#where") == f"1 / {last + 1}"
        assert page.eval_on_selector_all("#stage text", "all => all.some(one => one.textContent)")
        keys = ("ArrowRight", 2), ("End", last + 1), ("ArrowLeft", last), ("Home", 1)
        for key, where in (*keys, *(("ArrowRight", n) for n in range(2, 10))):
            page.keyboard.press(key)
            assert page.inner_text("#where").split(" / ")[0] == str(where)
        assert page.locator("#stage rect.ring").count() > 0
        ground = "getComputedStyle(document.getElementById('stage')).backgroundColor"
        for theme, color in {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 18, 23)"}.items():
            page.emulate_media(color_scheme=theme)
            assert page.evaluate(ground) == color
        page.keyboard.press("+")
        assert page.input_value("#speed") == "2"
        page.keyboard.press(" ")
        assert page.inner_text("#play") == "Pause"
        assert not page.is_visible("#failure")
        page.evaluate("dispatchEvent(new ErrorEvent('error', { message: 'a mishap' }))")
        assert page.inner_text("#failure") == "This page failed: a mishap"
        assert found.console == ["error: a mishap"]
        page.evaluate(
            "() => { const more = document.createElement('script');"
            " more.textContent = 'window.pwned = 1'; document.body.append(more); }"
        )
        assert page.evaluate("window.pwned") is None
        found.console.clear()
