"""From tokens to words: a map whose rows and columns are whole words.

A word gets the weight of all its tokens, and gives the mean of what its tokens give (Clark et al.
2019, arXiv:1906.04341, section 4.1), so that every row still sums to 1. Special tokens stay alone.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.spans import picked
from attnviz.core.tokens import Sides, Tokens

Map = NDArray[np.floating[Any]]

_BYTES = re.compile(r"(?:<[89A-F][0-9A-F](?: [89A-F][0-9A-F])*>)+")
"""Parts of characters in UTF-8, as texts of tokens show them."""
GOES_ON = re.compile(r"(?<=\w)@@$")
"""The mark behind a piece that goes on, as some vocabularies write it."""


def merge_words(weights: Map, sides: Sides) -> tuple[Map, Sides]:
    """Merge subwords into words.

    ``weights`` [H, T, S].
    """
    starts, queries = word_starts(sides.queries)
    key_starts, keys = (starts, queries) if sides.keys is sides.queries else word_starts(sides.keys)
    summed = np.add.reduceat(weights, key_starts, axis=2)
    given = np.add.reduceat(summed, starts, axis=1)
    full = np.add.reduceat(weights.any(-1), starts, axis=1, dtype=np.int64)
    merged: Map = (given / np.maximum(full, 1)[..., None]).astype(weights.dtype)
    return merged, Sides(queries, keys)


def in_words(sides: Sides) -> Sides:
    """The words on both axes, as :func:`merge_words` gives them."""
    _, queries = word_starts(sides.queries)
    return Sides(queries, queries if sides.keys is sides.queries else word_starts(sides.keys)[1])


def word_starts(tokens: Tokens) -> tuple[list[int], Tokens]:
    """Where each word starts, and the words as tokens; special tokens are words of their own."""
    starts = [
        i
        for i, (word, special) in enumerate(zip(tokens.words, tokens.special, strict=True))
        if i == 0 or special or word < 0 or word != tokens.words[i - 1]
    ]
    spans = list(zip(starts, [*starts[1:], len(tokens)], strict=True))
    return starts, Tokens(
        texts=tuple(_joined(tokens.texts[a:b]) for a, b in spans),
        special=tuple(tokens.special[a] for a in starts),
        separators=tuple(tokens.separators[a] for a in starts),
        words=tuple(tokens.words[a] for a in starts),
        segments=tuple(tokens.segments[a] for a in starts),
        places=tuple(tokens.places[a] for a in starts) if tokens.places else (),
        written=sum(a >= len(tokens) - tokens.written for a in starts),
        spans=picked(tokens.spans, starts),
    )


def _joined(texts: tuple[str, ...]) -> str:
    """The text of a word: pieces without the mark of continuation, their bytes as characters."""
    bare = [GOES_ON.sub("", text) for text in texts]
    joined = bare[0] + "".join(text.removeprefix("##") for text in bare[1:])
    return _BYTES.sub(_decoded, joined) if len(texts) > 1 else joined


def _decoded(match: re.Match[str]) -> str:
    """The characters that the bytes of several pieces make; unchanged if they make none."""
    try:
        return bytes.fromhex(match[0].replace("<", " ").replace(">", " ")).decode()
    except UnicodeDecodeError:
        return match[0]
