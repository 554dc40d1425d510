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
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows
from attnviz.core.tokens import Tokens

ROW, COLUMN = 0, 1
"""Directions: where a word looks, and who looks most at it."""


class WordMaps:
    """Weights from word to word of one layer at a time, handed on as soon as a layer is complete.

    Args:
        batch: the sentences, in the order of the batch axis; ``Tokens.words`` says what is a word.

    Attributes:
        width: W, words of the longest sentence.
    """

    def __init__(self, batch: Sequence[Inputs], device: str | torch.device = "cpu") -> None:
        sides = [next(iter(inputs.sides.values())).queries for inputs in batch]
        self._length = max(map(len, sides))
        self.width = max(max(tokens.words, default=-1) for tokens in sides) + 1
        self._device = "cpu" if str(device).startswith("mps") else device  # it has no float64
        member = torch.zeros(len(sides), self._length, self.width, dtype=torch.float64)
        for number, tokens in enumerate(sides):
            for token, word in enumerate(tokens.words):
                if word >= 0:
                    member[number, token, word] = 1
        share = member / member.sum(1, keepdim=True).clamp(min=1)
        self._member = member[:, None].to(self._device)  # [B, 1, T, W]
        self._share = share.transpose(1, 2)[:, None].to(self._device)  # [B, 1, W, T]
        self._sums: dict[Site, Tensor] = {}

    def add(self, rows: Rows) -> Tensor | None:
        """Take in a block; [B, H, W, W] in float64 with the layer's last one, else None."""
        _, _, count, width = rows.weights.shape
        weights = rows.weights.to(self._device).double()
        keys = slice(rows.key_start, rows.key_start + width)
        queries = slice(rows.start, rows.start + count)
        to_words = weights @ self._member[:, :, keys]
        maps = self._share[..., queries] @ to_words
        before = self._sums.pop(rows.site, None)
        maps = maps if before is None else before + maps
        if queries.stop < self._length:
            self._sums[rows.site] = maps
            return None
        return maps


class Pointing:
    """An observer that keeps where every head points, [N, 2, W] for each sentence.

    Args:
        batch: the sentences, in the order of the batch axis.
        layout: the N heads.
        device: where the weights are.
        candidates: [W, W] for each sentence, whether a head may point from the first word to the
            second; by default to every other word that has a token.
    """

    def __init__(
        self,
        batch: Sequence[Inputs],
        layout: Layout,
        device: str | torch.device = "cpu",
        candidates: Sequence[NDArray[np.bool_]] | None = None,
    ) -> None:
        self._maps = WordMaps(batch, device)
        width = self._maps.width
        there = torch.zeros(len(batch), width, dtype=torch.bool)
        for number, inputs in enumerate(batch):
            words = _tokens(inputs).words
            there[number, [word for word in words if word >= 0]] = True
        other = there[:, :, None] & there[:, None, :] & ~torch.eye(width, dtype=torch.bool)
        for number, wanted in enumerate(candidates or ()):
            allowed = torch.from_numpy(wanted[:width, :width])
            other[number, : len(allowed), : len(allowed)] &= allowed
        self._other = other[:, None].to(self._maps._device)
        self._alike = candidates is None  # whether both directions have the same candidates
        self._hits: dict[Site, NDArray[np.int64]] = {}
        self._sites = tuple(dict.fromkeys(head.site for head in layout))

    def observe(self, rows: Rows) -> None:
        """Take in one block."""
        maps = self._maps.add(rows)
        if maps is None:
            return
        back = maps if self._alike else maps.masked_fill(~self._other.transpose(2, 3), -1.0)
        maps = maps.masked_fill_(~self._other, -1.0)
        both = torch.stack([maps.argmax(3), back.argmax(2)], 2)  # [B, H, 2, W]
        self._hits[rows.site] = both.cpu().numpy()

    def heads(self, item: int) -> NDArray[np.int64]:
        """[N, 2, W]: the word that each head points to from each word, by row and by column."""
        return np.concatenate([self._hits[site][item] for site in self._sites])


def _tokens(inputs: Inputs) -> Tokens:
    return next(iter(inputs.sides.values())).queries


def present(inputs: Inputs, words: int) -> NDArray[np.bool_]:
    """Which of a sentence's words have a token at all."""
    in_text = np.zeros(words, np.bool_)
    in_text[[word for word in _tokens(inputs).words if word >= 0]] = True
    return in_text
