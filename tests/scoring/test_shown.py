"""What a picture shows of a map: without the sink rows sum to 1 again, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError
from attnviz.scoring.merged import shown_map, shown_sides

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
