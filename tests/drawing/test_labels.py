"""Token texts on screen: nothing raw, nothing out of line."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.cells import cell_len

from attnviz.core.scores import Role, Score
from attnviz.core.spans import Span
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing import labels
from attnviz.drawing.fonts import Ruler, choose
from attnviz.drawing.heatmap_figure import fitted
from attnviz.drawing.palette import SPAN_COLORS, luminance
from attnviz.drawing.panels import bracket_name, bracket_room, brackets
from attnviz.drawing.style import Style

ANY_TEXT = st.text(alphabet=st.characters(), max_size=12)


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 texts"), (1, "1 text"), (2, "2 texts"), (1024, "1,024 texts")]
)
def test_counted(number: int, said: str) -> None:
    assert labels.counted(number, "text") == said


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" keys", "·keys"), ("a b ", "a b·"), ("   ", "···"), ("", "∅"), ("\n", "↵"), ("\t", "⇥"),
        ("\x1b[31m", "␛[31m"), ("\x7f", "␡"), ("\x9b31m", "<U+009B>31m"),
        ("\u202etxt", "<U+202E>txt"), ("\u200b", "<U+200B>"), ("\u00a0", "<U+00A0>"),
        ("\u2028", "<U+2028>"), ("\ud800", "<U+D800>"), ("\u0301", "◌\u0301"),
        ("e\u0301", "e\u0301"), ("❤\ufe0f", "❤"), ("\ufe0f", "<U+FE0F>"), ("[bold]", "[bold]"),
        ("你好", "你好"),
    ],
)  # fmt: skip
def test_visible(text: str, shown: str) -> None:
    assert labels.visible(text) == shown


@given(ANY_TEXT)
def test_visible_leaves_nothing_that_acts(text: str) -> None:
    shown = labels.visible(text)
    assert shown
    for char in shown:
        assert char == " " or unicodedata.category(char)[0] not in "CZ"
    assert labels.visible(text, ascii_only=True).isascii()


@given(ANY_TEXT, st.integers(0, 9), st.sampled_from(["left", "right", "center"]))
def test_fit_fills_exactly(text: str, cells: int, align: str) -> None:
    fitted = labels.fit(labels.visible(text), cells, align)
    bare = fitted.replace("\u2068", "").replace("\u2069", "")
    assert cell_len(bare) == cells


def test_shorten_never_splits_a_wide_character() -> None:
    assert labels.shorten("日本語", 6) == "日本語"
    assert labels.shorten("日本語", 5) == "日本…"
    assert labels.shorten("日本語", 4) == "日…"
    assert labels.shorten("e\u0301te\u0301s", 3) == "e\u0301t…"


def test_right_to_left_labels_are_isolated() -> None:
    fitted = labels.fit("שלום", 6, "right")
    assert fitted == "  \u2068שלום\u2069"
    assert labels.fit("keys", 6) == "keys  "


def test_upright_ends_on_the_last_line() -> None:
    lines = labels.upright(["cat", "a", "internationally"], 5)
    assert lines == [["", "", "i"], ["", "", "n"], ["c", "", "t"], ["a", "", "e"], ["t", "a", "…"]]


def test_token_labels_in_ascii() -> None:
    tokens = Tokens((" naïve", "\n", "中"))
    assert labels.token_labels(tokens) == ("·naïve", "↵", "中")
    assert labels.token_labels(tokens, ascii_only=True) == ("_na<U+00EF>ve", "\\n", "<U+4E2D>")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0.000"), (0.0004, "<0.001"), (0.0312, "0.031"), (0.0996, "0.10"), (0.974, "0.97")],
)
def test_number(value: float, shown: str) -> None:
    assert labels.number(value) == shown


def test_head_title() -> None:
    roles = (
        Role("previous", "previous", Score(0.972, 0.1, 9.72, 12), False),
        Role("local", "local", Score(0.99, 0.4, 2.5, 12), False),
    )
    assert labels.head_title("4.11", roles) == "head 4.11: does previous 0.97, local 0.99"
    assert labels.head_title("cross:4.11", ()) == "head cross:4.11"
    few = tuple(replace(role, few_rows=True) for role in roles)
    assert labels.head_title("4.11", few) == "head 4.11: perhaps does previous 0.97, local 0.99"
    assert labels.head_title("4.11", (few[0], roles[1])).startswith("head 4.11: does")
    rests = (replace(few[0], rests=True),)
    assert labels.head_title("4.11", rests) == "head 4.11: sink: previous 0.97"
    assert labels.times(roles[0].evidence) == "9.7×"
    assert labels.times(Score(0.5, 0.01, 49.6, 3)) == "50×"
    assert labels.times(Score(0.5, None, None, 3)) == "–"


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        ("induction:0.61:0.12 first:0.8", "does induction 0.61 where possible (12 % of rows), "
         "sink: first"),
        ("induction_no_sink:0.61:0.004", "does induction 0.61 off the sink where possible "
         "(<1 % of rows)"),
        ("duplicate:0.4:0.3 previous:0.5:0.9", "does duplicate 0.40 where possible (30 % of rows), "
         "previous 0.50"),
        ("previous:0.97:0.95 self:0.6 first:0.5", "does previous 0.97, sink: self, "
         "sink: first"),
        ("first:0.73", "sink: first 0.73"),
        ("entropy_share:0.934", "diffuse 93 % of the maximum"),
        ("", ""),
    ],
)  # fmt: skip
def test_what_a_head_does_and_where_it_rests(roles: str, said: str) -> None:
    made = []
    for text in roles.split():
        score, mean, *possible = text.split(":")
        name = score.removesuffix("_no_sink").replace("entropy_share", "diffuse")
        evidence = Score(float(mean), 0.1, 5.0, 12)
        share = float(possible[0]) if possible else None
        made.append(Role(name, score, evidence, False, not possible, share))
    assert labels.head_phrase(made) == said


def test_ascii_has_the_quotes_and_dashes_of_a_keyboard() -> None:
    text = "“don’t” – it’s ‹5−3›"
    assert labels.visible(text, ascii_only=True) == "\"don't\" - it's '5-3'"
    assert labels.signs(text, True) == "\"don't\" - it's '5-3'"
    assert labels.visible("é", ascii_only=True) == "<U+00E9>"


SPANS = (
    Span("user", ((2, 12),)),
    Span("document one", ((3, 7),)),
    Span("both", ((13, 14), (16, 18))),
)


def tokens(count: int, spans: tuple[Span, ...] = SPANS) -> Tokens:
    return Tokens(tuple(f"w{n}" for n in range(count)), spans=spans)


def test_an_inner_part_stands_nearer_to_the_map() -> None:
    found = brackets(tokens(20))
    assert [(one.name, one.start, one.end, one.level) for one in found] == [
        ("user", 2, 12, 1), ("document one", 3, 7, 0), ("both", 13, 14, 1), ("both", 16, 18, 1),
    ]  # fmt: skip
    assert found[2].color == found[3].color != found[0].color
    assert bracket_room(found) == pytest.approx(2 * 0.17 + 0.03)
    assert bracket_room(()) == 0.0


def strips(figure: Any) -> list[Any]:
    """The axes that hold brackets: those with their lines and no ticks."""
    return [axes for axes in figure.axes if axes.lines and not axes.axison]


@pytest.mark.parametrize("count", [20, 400])
@pytest.mark.parametrize("maps", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_they_stand_along_their_tokens(count: int, maps: int) -> None:
    sides = Sides(tokens(count), tokens(count))
    weights = np.tril(np.ones((count, count))) / count
    figure = fitted([(f"head {n}", weights, sides) for n in range(maps)], Style())
    drawn = [axes for axes in figure.axes if axes.axison and axes.get_xlim() == (-0.5, count - 0.5)]
    assert len(drawn) == maps
    found = strips(figure)
    assert found
    for strip in found:
        box = strip.get_position()
        down = strip.get_ylim() == (count, 0)
        beside = [
            one.get_position()
            for one in drawn
            if abs((one.get_position().y0 - box.y0) if down else (one.get_position().x0 - box.x0))
            < 1e-9
        ]
        assert beside, "a strip is as long as its map and stands at its edge"
        edge = min(abs((b.x0 - box.x1) if down else (b.y0 - box.y1)) for b in beside)
        assert edge < 1e-9
        ends = [sorted(line.get_ydata() if down else line.get_xdata()) for line in strip.lines]
        for (start, *_, end), one in zip(ends, brackets(sides.keys), strict=True):
            assert one.start <= start < one.start + 0.2
            assert one.end - 0.2 < end <= one.end


def test_no_names_reach_into_another() -> None:
    figure = fitted([("", np.eye(20), Sides(tokens(20), tokens(20)))], Style())
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    for strip in strips(figure):
        boxes = [text.get_window_extent(renderer) for text in strip.texts if text.get_text()]
        assert boxes
        overlapping = [(a, b) for n, a in enumerate(boxes) for b in boxes[n + 1 :] if a.overlaps(b)]
        assert not overlapping


def test_names_are_cut_to_their_brackets() -> None:
    ruler = Ruler(choose(["document one…"])[0], 150)
    assert bracket_name("document one", 5.0, ruler) == "document one"
    short = bracket_name("document one", 0.3, ruler)
    assert short.endswith("…")
    assert "document one".startswith(short[:-1])
    assert ruler.width(short, 6) <= 0.3
    assert bracket_name("document one", 0.02, ruler) == ""


def test_pictures_say_names_that_were_cut() -> None:
    sides = Sides(tokens(400), tokens(400))
    figure = fitted([("", np.eye(400), sides)], Style())
    assert any("brackets: user, document one, both" in text.get_text() for text in figure.texts)


def test_maps_without_labels_have_none() -> None:
    figure = fitted([("", np.eye(20), Sides(tokens(20), tokens(20)))], Style(hide="labels"))
    assert strips(figure) == []


@pytest.mark.parametrize("color", SPAN_COLORS)
def test_colours_stand_out_from_white_and_from_black(color: str) -> None:
    """WCAG 2 asks for 3 to 1 of graphics."""
    light = luminance(color)
    assert 1.05 / (light + 0.05) >= 3
    assert (light + 0.05) / (luminance("#14171c") + 0.05) >= 3
