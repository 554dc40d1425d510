"""Kinds of tokens: what attention can go to, and what a gate is open at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnviz.core.tokens import Tokens
from attnviz.scoring.axes import is_punctuation

KINDS = ("initial", "continuation", "punctuation", "digit", "special", "repeated")
"""A token is one of the first five; ``repeated`` says besides that it occurred before."""


def kinds(tokens: Tokens) -> NDArray[np.float64]:
    """Which tokens are of which kind.

    Returns [len(KINDS), T] of 0 and 1: ``special`` for what the tokenizer added, else
    ``punctuation``, else ``digit`` for numbers, else ``continuation`` for all but the first token
    of a word, else ``initial``; and ``repeated`` for a token that is none of the tokenizer's and
    occurred earlier in the text.
    """
    features = np.zeros((len(KINDS), len(tokens)))
    seen: set[object] = set()
    for place, text in enumerate(tokens.texts):
        features[KINDS.index(_kind(tokens, place, text)), place] = 1
        identity = tokens.identity[place]
        if identity in seen and not tokens.special[place]:
            features[KINDS.index("repeated"), place] = 1
        seen.add(identity)
    return features


def _kind(tokens: Tokens, place: int, text: str) -> str:
    if tokens.special[place]:
        return "special"
    if is_punctuation(text):
        return "punctuation"
    if text.strip().removeprefix("##").isnumeric():
        return "digit"
    inside = place > 0 and tokens.words[place] == tokens.words[place - 1]
    return "continuation" if inside else "initial"
