"""What a picture shows of a map: without the sink rows sum to 1 again, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.core.media import Picture
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError
from attnviz.scoring.merged import merge_words, selected_query, shown_map, shown_sides

PAIR = Tokens(
    ("[CLS]", "a", "b", "[SEP]", "c"),
    separators=(False, False, False, True, False),
    special=(True, False, False, True, False),
    segments=(0, 0, 0, 0, 1),
)
EVERYTHING = np.ones((5, 5), bool)


def test_without_the_sink_by_hand() -> None:
    weights = np.full((5, 5), 0.2, np.float32)
    weights[1] = (0.9, 0.02, 0.06, 0.0, 0.02)
    weights[2] = (0.5, 0.0, 0.0, 0.5, 0.0)
    sides = Sides(PAIR, PAIR)
    shown = shown_sides(sides, words=False, hide_sink=True)
    assert shown.queries.texts == shown.keys.texts == ("a", "b", "c")
    assert shown.keys.segments == (0, 0, 1)
    got = shown_map(weights, EVERYTHING, sides, words=False, hide_sink=True)
    assert got.dtype == np.float32
    assert np.allclose(got, [[0.2, 0.6, 0.2], [0, 0, 0], [1 / 3, 1 / 3, 1 / 3]], atol=1e-6)


def test_masked_keys_stay_masked() -> None:
    sides = Sides(PAIR, PAIR)
    allowed = np.tril(EVERYTHING)
    weights = np.where(allowed, 1.0, 0.0) / allowed.sum(1, keepdims=True)
    got = shown_map(weights, allowed, sides, words=False, hide_sink=True)
    assert np.ma.getmaskarray(got).tolist() == np.triu(np.ones((3, 3), bool), 1).tolist()
    assert np.allclose(got.sum(1), 1)


def test_other_queries_than_keys_all_stay() -> None:
    queries = Tokens(("x", "y"))
    weights = np.array([[0.5, 0.25, 0.25, 0.0, 0.0], [0.0, 0.1, 0.0, 0.8, 0.1]])
    sides = Sides(queries, PAIR)
    shown = shown_sides(sides, words=False, hide_sink=True)
    assert (shown.queries, shown.keys.texts) == (queries, ("a", "b", "c"))
    got = shown_map(weights, EVERYTHING[:2], sides, words=False, hide_sink=True)
    assert np.allclose(got, [[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])


def test_words_are_merged_before_the_sink_goes() -> None:
    pieces = Tokens(("un", "##do", "it", "now"), words=(0, 0, 1, 2))
    weights = np.array([[0.25] * 4, [0.4, 0.2, 0.3, 0.1], [0.2, 0.2, 0.3, 0.3], [0, 0, 0.2, 0.8]])
    sides = Sides(pieces, pieces)
    shown = shown_sides(sides, words=True, hide_sink=True)
    assert shown.keys.texts == ("it", "now")
    got = shown_map(weights, EVERYTHING[:4, :4], sides, words=True, hide_sink=True)
    assert np.allclose(got, [[0.5, 0.5], [0.2, 0.8]])


def test_a_text_of_sinks_alone_is_refused() -> None:
    alone = Tokens(("[CLS]", "[SEP]"), separators=(False, True))
    with pytest.raises(InputError, match="nothing is left"):
        shown_sides(Sides(alone, alone), words=False, hide_sink=True)


TEXT = "The kettle sang and the candle burned while the kettle sang and the candle burned."
SPANS = {"first": "The kettle sang", "second": "#2:kettle sang"}


@pytest.fixture(scope="module")
def capture() -> av.Capture:
    return av.capture(av.Prompt(TEXT, spans=SPANS))


def drawn(capture: av.Capture, **options: Any) -> tuple[np.ndarray, Any]:
    ((_, weights, sides),) = av.heatmap(capture, "2.4", **options).maps
    return np.ma.filled(weights, np.nan), sides


def test_ranges_and_names_are_rows_and_keys_of_the_map(capture: av.Capture) -> None:
    weights, sides = drawn(capture, rows="9-12,15", keys="1-3")
    np.testing.assert_array_equal(weights, capture["2.4"][[9, 10, 11, 12, 15], 1:4])
    assert sides.keys.texts == capture.inputs.sides["decoder"].keys.texts[1:4]
    spans = {span.name: span.positions for span in capture.inputs.sides["decoder"].keys.spans}
    weights, sides = drawn(capture, rows="second", keys="first")
    np.testing.assert_array_equal(weights, capture["2.4"][np.ix_(spans["second"], spans["first"])])
    assert [span.ranges for span in sides.keys.spans] == [((0, len(spans["first"])),)]


def test_one_side_leaves_the_other_whole(capture: av.Capture) -> None:
    weights, sides = drawn(capture, rows="5")
    assert weights.shape == (1, len(capture.inputs.sides["decoder"].keys))
    assert len(sides.queries) == 1


def test_words_and_a_hidden_sink_are_cut_by_their_first_tokens(capture: av.Capture) -> None:
    tokens = capture.inputs.sides["decoder"]
    _, words = merge_words(capture["2.4"][None], tokens)
    starts = [n for n, w in enumerate(tokens.keys.words) if n == 0 or w != tokens.keys.words[n - 1]]
    wanted = [n for n, start in enumerate(starts) if 4 <= start <= 10]
    weights, sides = drawn(capture, rows="4-10", words=True)
    whole, _ = drawn(capture, words=True)
    np.testing.assert_array_equal(weights, whole[wanted])
    assert sides.queries.texts == tuple(words.queries.texts[n] for n in wanted)
    hidden, sides = drawn(capture, rows="4-6", keys="0-3", hide="sink")
    assert sides.keys.texts == tokens.keys.texts[1:4], "the sink stays hidden"
    uncut, _ = drawn(capture, hide="sink")
    np.testing.assert_array_equal(hidden, uncut[3:6, :3])


def test_what_there_is_not_is_refused(capture: av.Capture) -> None:
    with pytest.raises(UsageError, match="rows='3-90' ends at token 90; there are"):
        av.heatmap(capture, "2.4", rows="3-90")
    with pytest.raises(UsageError, match="tokens such as 12-40, or a span: first, second"):
        av.heatmap(capture, "2.4", keys="third")
    with pytest.raises(InputError, match="none of the tokens that were asked for"):
        av.heatmap(capture, "2.4", keys="0", hide="sink")


def test_the_command_cuts(capsys: Any, tmp_path: Any) -> None:
    assert main(["heatmap", TEXT, "-s", "2.4", "--rows", "9-12", "--keys", "1-3", "-q"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len([line for line in shown if "│" in line]) == 4
    out = str(tmp_path / "cut.svg")
    assert main(["heatmap", TEXT, "-s", "2.4", "--rows", "9-12", "-o", out, "-q"]) == 0
    assert "queries 9–12 of demo-gpt2" in (tmp_path / "cut.svg").read_text()


PICTURE = Picture(np.zeros((2, 2, 3), np.uint8), 2, 2)
PATCHES = ((0, 0), (0, 1), (1, 0), (1, 1))


def seen(*before: str, after: tuple[str, ...] = ()) -> Tokens:
    """Four patches, between tokens of text; the first of those before is special."""
    texts = (*before, "p", "q", "r", "s", *after)
    places = (*((),) * len(before), *PATCHES, *((),) * len(after))
    special = tuple(text == "[CLS]" for text in texts)
    return Tokens(texts, special=special, places=places)


@pytest.mark.parametrize(
    ("tokens", "query", "rows"),
    [
        (seen("[CLS]"), None, (0,)), (seen(), None, (0, 1, 2, 3)),
        (Tokens(("a", "cat", "sits")), None, (2,)),
        (Tokens(("[CLS]", "cat"), special=(True, False)), None, (0,)),
        (seen("[CLS]", after=("a", "cat")), None, (6,)), (seen("[CLS]"), "cls", (0,)),
        (seen("[CLS]"), "mean", (1, 2, 3, 4)), (seen("[CLS]"), "1,0", (3,)),
        (seen("[CLS]"), "4", (4,)),
    ],
)  # fmt: skip
def test_rows(tokens: Tokens, query: str | None, rows: tuple[int, ...]) -> None:
    assert selected_query(tokens, PICTURE, query).rows == rows


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("cls", "has no [CLS]"),
        ("2,0", "rows go from 0 to 1, columns from 0 to 1"),
        ("4", "from 0 to 3"),
        ("left", "no query 'left'"),
    ],
)
def test_what_is_not_there_is_refused(query: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        selected_query(seen(), PICTURE, query)
    assert says in str(raised.value)


def test_words_beside_a_picture_have_no_patches() -> None:
    with pytest.raises(UsageError) as raised:
        selected_query(Tokens(("a", "cat")), PICTURE, "mean")
    assert "no patches" in str(raised.value)
