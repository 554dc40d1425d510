"""Where every head points from each word of a sentence, in both directions.

Clark et al. 2019 (arXiv:1906.04341): the weight to a word is the sum over its tokens, the weight
from it the mean; tokens outside of every word are dropped, the others are not scaled up. A head
points from a word to the other word with the largest weight, to the first of several. Rows say
where a word looks, columns who looks most at it.

Notation in shapes: B sentences, T tokens, W words, H heads of a layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows
from attnviz.core.tokens import Tokens

ROW, COLUMN = 0, 1
"""Directions: where a word looks, and who looks most at it."""


class WordMaps:
    """Weights from word to word of one layer at a time, handed on as soon as a layer is complete.

    Attributes:
        width: W, words of the longest sentence.
    """

    def __init__(self, batch: Sequence[Inputs]) -> None:
        sides = [next(iter(inputs.sides.values())).queries for inputs in batch]
        self._length = max(map(len, sides))
        self.width = max(max(tokens.words, default=-1) for tokens in sides) + 1
        member = np.zeros((len(sides), self._length, self.width))
        for number, tokens in enumerate(sides):
            for token, word in enumerate(tokens.words):
                if word >= 0:
                    member[number, token, word] = 1
        share = member / member.sum(1, keepdims=True).clip(1)
        self._member = arrays.array(member[:, None])  # [B, 1, T, W]
        self._share = arrays.array(share.swapaxes(1, 2)[:, None])  # [B, 1, W, T]
        self._sums: dict[Site, Array] = {}

    def add(self, rows: Rows) -> Array | None:
        """Take in a block; [B, H, W, W] in float64 with the layer's last one, else None."""
        _, _, count, width = rows.weights.shape
        weights = _exact(rows.weights)
        self._member = arrays.converted(self._member, weights)
        self._share = arrays.converted(self._share, weights)
        keys = slice(rows.key_start, rows.key_start + width)
        queries = slice(rows.start, rows.start + count)
        to_words = weights @ self._member[:, :, keys]
        maps = self._share[..., queries] @ to_words
        before = self._sums.pop(rows.site, None)
        maps = maps if before is None else arrays.converted(before, maps) + maps
        if queries.stop < self._length:
            self._sums[rows.site] = maps
            return None
        return maps


class Pointing:
    """An observer that keeps where every head points, [N, 2, W] for each sentence.

    ``candidates`` [W, W] for each sentence, whether a head may point from the first word to the
    second; by default to every other word that has a token.
    """

    def __init__(
        self,
        batch: Sequence[Inputs],
        layout: Layout,
        candidates: Sequence[NDArray[np.bool_]] | None = None,
    ) -> None:
        self._maps = WordMaps(batch)
        width = self._maps.width
        there = np.zeros((len(batch), width), np.bool_)
        for number, inputs in enumerate(batch):
            words = _tokens(inputs).words
            there[number, [word for word in words if word >= 0]] = True
        other = there[:, :, None] & there[:, None, :] & ~np.eye(width, dtype=np.bool_)
        for number, wanted in enumerate(candidates or ()):
            allowed = wanted[:width, :width]
            other[number, : len(allowed), : len(allowed)] &= allowed
        self._other = arrays.array(other[:, None])
        self._alike = candidates is None  # whether both directions have the same candidates
        self._hits: dict[Site, NDArray[np.int64]] = {}
        self._sites = tuple(dict.fromkeys(head.site for head in layout))

    def observe(self, rows: Rows) -> None:
        """Take in one block."""
        maps = self._maps.add(rows)
        if maps is None:
            return
        xp = arrays.of(maps).xp
        self._other = other = arrays.converted(self._other, maps)
        ahead = xp.where(other, maps, -1.0)
        back = ahead if self._alike else xp.where(other.swapaxes(2, 3), maps, -1.0)
        both = xp.stack([ahead.argmax(3), back.argmax(2)], 2)  # [B, H, 2, W]
        self._hits[rows.site] = arrays.to_numpy(both)

    def heads(self, item: int) -> NDArray[np.int64]:
        """[N, 2, W]: the word that each head points to from each word, by row and by column."""
        return np.concatenate([self._hits[site][item] for site in self._sites])


def _exact(weights: Array) -> Array:
    """In float64, where they are; of devices that have none (MPS) in NumPy."""
    on = arrays.of(weights)
    if on.largest_float(weights) == on.float64:
        return arrays.exact(weights)
    return arrays.array(arrays.doubles(weights))


def _tokens(inputs: Inputs) -> Tokens:
    return next(iter(inputs.sides.values())).queries


def present(inputs: Inputs, words: int) -> NDArray[np.bool_]:
    """Which of a sentence's words have a token at all."""
    in_text = np.zeros(words, np.bool_)
    in_text[[word for word in _tokens(inputs).words if word >= 0]] = True
    return in_text
