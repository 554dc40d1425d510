"""Whole words: rows that still sum to 1, against a plain loop, and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from attnviz.core.tokens import Sides, Tokens
from attnviz.scoring.merged import merge_words, word_starts

Array = NDArray[Any]


def spans(tokens: Tokens) -> list[list[int]]:
    """The positions of every word: neighbours with the same number; special tokens alone."""
    found: list[list[int]] = []
    for i in range(len(tokens)):
        joins = (
            i > 0
            and not tokens.special[i]
            and not tokens.special[i - 1]
            and tokens.words[i] >= 0
            and tokens.words[i] == tokens.words[i - 1]
        )
        if joins:
            found[-1].append(i)
        else:
            found.append([i])
    return found


def naive(weights: Array, sides: Sides) -> Array:
    rows, columns = spans(sides.queries), spans(sides.keys)
    merged = np.zeros((len(weights), len(rows), len(columns)))
    for h in range(len(weights)):
        for a, row in enumerate(rows):
            full = [i for i in row if weights[h, i].any()]
            for b, column in enumerate(columns):
                for i in full:
                    merged[h, a, b] += sum(float(weights[h, i, j]) for j in column) / len(full)
    return merged


@st.composite
def worded(draw: st.DrawFn) -> Tokens:
    """Words of one to three pieces, with special tokens between and around them."""
    texts, special, words = [], [], []
    for number in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            texts.append("[X]")
            special.append(True)
            words.append(-1)
        pieces = draw(st.integers(1, 3))
        texts += ["w"] + ["##p"] * (pieces - 1)
        special += [False] * pieces
        words += [number] * pieces
    return Tokens(tuple(texts), special=tuple(special), words=tuple(words))


@given(worded(), st.none() | worded(), st.integers(1, 3), st.integers(0, 999))
def test_merged_maps_are_the_plain_loop(
    queries: Tokens, others: Tokens | None, heads: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    keys = queries if others is None else others
    weights = rng.dirichlet(np.ones(len(keys)), (heads, len(queries)))
    weights[rng.random(weights.shape[:2]) < 0.2] = 0  # rows that had no key
    before = weights.copy()
    sides = Sides(queries, keys)
    merged, words = merge_words(weights, sides)
    assert np.array_equal(weights, before)
    assert merged.shape == (heads, len(words.queries), len(words.keys))
    np.testing.assert_allclose(merged, naive(weights, sides), atol=1e-12)
    sums = merged.sum(-1)
    assert np.all((abs(sums - 1) < 1e-12) | (sums == 0))
    for tokens, names in ((queries, words.queries), (keys, words.keys)):
        assert [t.count("p") + 1 for t in names.texts] == [len(s) for s in spans(tokens)]
        assert list(names.special) == [tokens.special[s[0]] for s in spans(tokens)]
    again, same = merge_words(merged, words)
    assert np.array_equal(again, merged)
    assert same.keys.texts == words.keys.texts


def test_by_hand() -> None:
    """[CLS] un ##do it: the word "undo" gets the sum of its columns, the mean of its rows."""
    tokens = Tokens(
        ("[CLS]", "un", "##do", "it"),
        ids=(101, 5, 6, 7),
        special=(True, False, False, False),
        words=(-1, 0, 0, 1),
        segments=(0, 0, 0, 1),
    )
    weights = np.array(
        [[[0.4, 0.1, 0.2, 0.3], [0.5, 0.2, 0.2, 0.1], [0.1, 0.3, 0.3, 0.3], [0.2, 0.2, 0.2, 0.4]]]
    )
    merged, words = merge_words(weights, Sides(tokens, tokens))
    np.testing.assert_allclose(
        merged, [[[0.4, 0.3, 0.3], [0.3, 0.5, 0.2], [0.2, 0.4, 0.4]]], atol=1e-15
    )
    assert words.queries is words.keys
    assert words.keys.texts == ("[CLS]", "undo", "it")
    assert words.keys.special == (True, False, False)
    assert words.keys.words == (-1, 0, 1)
    assert words.keys.segments == (0, 0, 1)


def test_a_word_of_byte_pieces_keeps_its_leading_space() -> None:
    tokens = Tokens((" atten", "tion", " viz", "##"), words=(0, 0, 1, 2))
    _, words = merge_words(np.full((1, 4, 4), 0.25), Sides(tokens, tokens))
    assert words.keys.texts == (" attention", " viz", "##")


@pytest.mark.parametrize(
    ("pieces", "word"),
    [
        ((" caf", "<C3>", "<A9>"), " café"),
        (("<F0 9F>", "<9A>", "<80>", "!"), "🚀!"),
        (("<E6 88>", "<91>们", "<E9>", "<92 A5>"), "我们钥"),
        (("<E6>", "<88>", "x"), "<E6><88>x"),  # not a character
        (("<C3><A9>",), "<C3><A9>"),  # one token that is spelled so
        (("<4", "1>", "a"), "<41>a"),  # text, not bytes
    ],
)
def test_bytes_that_make_a_character_together_are_shown_as_it(
    pieces: tuple[str, ...], word: str
) -> None:
    tokens = Tokens(pieces, words=(0,) * len(pieces))
    assert word_starts(tokens)[1].texts == (word,)


def test_special_tokens_stay_alone() -> None:
    """Even neighbours, and even where a tokenizer gave them a word's number."""
    tokens = Tokens(("[A]", "[B]", "x", "[C]"), special=(True, True, False, True), words=(-1,) * 4)
    merged, words = merge_words(np.eye(4)[None], Sides(tokens, tokens))
    assert words.keys.texts == ("[A]", "[B]", "x", "[C]")
    assert np.array_equal(merged[0], np.eye(4))
    numbered = Tokens(("x", "[C]", "y"), special=(False, True, False), words=(0, 0, 1))
    assert len(merge_words(np.eye(3)[None], Sides(numbered, numbered))[1].keys) == 3


def test_a_row_without_weight_takes_no_part_in_the_mean() -> None:
    tokens = Tokens(("a", "b", "c"), words=(0, 0, 1))
    weights = np.array([[[0, 0, 0], [0.5, 0.25, 0.25], [0, 0, 0]]])
    merged, _ = merge_words(weights, Sides(tokens, tokens))
    np.testing.assert_allclose(merged, [[[0.75, 0.25], [0, 0]]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_dtype_is_kept(dtype: type) -> None:
    tokens = Tokens(("a", "b"), words=(0, 0))
    merged, _ = merge_words(np.full((2, 2, 2), 0.5, dtype), Sides(tokens, tokens))
    assert merged.dtype == dtype
    assert np.array_equal(merged, np.ones((2, 1, 1)))
