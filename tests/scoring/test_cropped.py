"""Maps that are cut to some rows and keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.errors import InputError, UsageError
from attnviz.scoring.merged import merge_words

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
