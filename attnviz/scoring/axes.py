"""What scores need to know about the tokens of maps, worked out once for each batch."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, Integers
from attnviz.core.heads import SiteKind
from attnviz.core.media import Space
from attnviz.core.tokens import Sides, Tokens


@lru_cache(maxsize=1 << 16)
def is_punctuation(text: str) -> bool:
    """Whether a token's readable text is nothing but punctuation (Unicode categories P*)."""
    text = text.strip()
    text = text.removeprefix("##") or text
    return bool(text) and all(unicodedata.category(c).startswith("P") for c in text)


class Repeats:
    """Which tokens of some sequences are the same token.

    Attributes:
        order: int64 [n], positions sorted by item, then by token, and within one token by position.
        first: int64 [B, T], for each position where its token starts in ``order``.
        earlier: int64 [B, T], for each position how often its token occurred before; 0 after the
            end of a sequence.
    """

    def __init__(self, items: Sequence[Tokens]) -> None:
        places: dict[tuple[int, object], list[int]] = {}
        width = max(len(tokens) for tokens in items)
        earlier = np.zeros((len(items), width), np.int64)
        for item, tokens in enumerate(items):
            for i, token in enumerate(tokens.identity):
                positions = places.setdefault((item, token), [])
                earlier[item, i] = len(positions)
                positions.append(i)
        first = np.zeros_like(earlier)
        start = 0
        for (item, _), positions in places.items():
            first[item, positions] = start
            start += len(positions)
        self.order = np.array([i for positions in places.values() for i in positions], np.int64)
        self.first, self.earlier = first, earlier

    def pairs(self, items: slice, start: int, stop: int) -> tuple[Integers, Integers, Integers]:
        """Give queries ``start:stop`` of some items, and positions of their token before.

        Int64 [n] each: items and rows, from 0, and keys; n is the number of repetitions.
        """
        counts = self.earlier[items, start:stop]
        width = counts.shape[1]
        flat = counts.reshape(-1)
        rows = np.repeat(np.arange(len(flat)), flat)
        shift = self.first[items, start:stop].reshape(-1) - (flat.cumsum(0) - flat)
        keys = self.order[np.arange(len(rows)) + shift[rows]]
        return rows // width, rows % width, keys


REGISTER = "[REG"
"""What the texts of register tokens begin with."""


class Axes:
    """What scores need to know about the tokens on both axes of the maps of a batch.

    What lies after the end of a sequence is no query and no key. All is worked out on the host, and
    moved to where the weights are in one piece.

    Attributes:
        sides: the tokens themselves.
        ordered: whether queries and keys are one sequence, so that distances mean something
            (not so in cross-attention).
        lengths: of the items' queries and keys.
        counts: bool [B, T], False for special tokens, whose rows no score counts.
        real: bool [B, T], the queries, and ``keys``: bool [B, S], the keys that there are.
        plain: [B, S], 1 for keys outside the sink. The sink is position 0 and the special tokens,
            where attention goes to rest (Clark et al. 2019, Xiao et al. 2023); they are never the
            target of any score but ``first`` and ``separator``.
        columns: [B, 3, S], 1 for keys in the sink, separators, and punctuation outside the sink.
        is_separator, is_punctuation: bool [B, T], the queries that are such tokens themselves.
        repeats: where tokens occur again; None in cross-attention.
        outside: bool [B, S], the keys outside the sink, on the host.
        space: what the keys are laid out in.
        places: [B, S, 2] or [B, S, 1], where patches or frames stand, NaN for others; None for text
            and in cross-attention.
        registers: [B, S], 1 for register tokens.
        follows: bool [B, T], the queries after the first that is no special token.
    """

    def __init__(self, items: Sequence[Sides], kind: SiteKind, like: Array) -> None:
        queries, keys = [sides.queries for sides in items], [sides.keys for sides in items]
        self.sides = tuple(items)
        self.ordered = kind != "cross"
        self.lengths = [(len(q), len(k)) for q, k in zip(queries, keys, strict=True)]

        exact = np.float64 if like.dtype == arrays.of(like).float64 else np.float32

        def flags(rows: Iterable[Sequence[bool]]) -> NDArray[np.bool_]:
            return np.array(list(zip_longest(*rows, fillvalue=False)), np.bool_).T

        marks = [[is_punctuation(text) for text in tokens.texts] for tokens in keys]
        own_marks = (
            marks
            if all(q is k for q, k in zip(queries, keys, strict=True))
            else [[is_punctuation(text) for text in tokens.texts] for tokens in queries]
        )
        real = flags([[True] * len(tokens) for tokens in queries])
        present = flags([[True] * len(tokens) for tokens in keys])
        counts = real & ~flags([tokens.special for tokens in queries])
        sink = flags([tokens.special for tokens in keys])
        sink[:, 0] = True
        separators = flags([tokens.separators for tokens in keys])
        separators[:, 0] = False
        self.outside = present & ~sink
        columns = np.stack([sink & present, separators, flags(marks) & ~sink], 1)
        self.space = _space(keys)
        textual = self.ordered and self.space == "text"
        self.repeats = Repeats(queries) if textual else None
        located = self.ordered and self.space != "text"
        registers = [[text.startswith(REGISTER) for text in tokens.texts] for tokens in keys]
        self.real, self.keys, self.counts, self.is_separator, self.is_punctuation, self.follows, \
            self.plain, self.columns, self.registers, places = arrays.of(like).together((
                real, present, counts, flags([tokens.separators for tokens in queries]),
                flags(own_marks), counts.cumsum(1) > counts, self.outside.astype(exact),
                columns.astype(exact), flags(registers).astype(exact),
                _places(keys, exact) if located else np.zeros(0, exact),
            ), like)  # fmt: skip
        self.places = places if located else None


def _space(keys: Sequence[Tokens]) -> Space:
    """Return what all of some sequences are laid out in; text where they differ."""
    spaces = {tokens.space for tokens in keys}
    return spaces.pop() if len(spaces) == 1 else "text"


def _places(keys: Sequence[Tokens], exact: type[np.floating]) -> NDArray[np.floating]:
    """[B, S, 2] or [B, S, 1], NaN where a token has no place."""
    size = max(len(p) for tokens in keys for p in tokens.places)
    places = np.full((len(keys), max(map(len, keys)), size), math.nan, exact)
    for item, tokens in enumerate(keys):
        places[item, : len(tokens)] = [p or (math.nan,) * size for p in tokens.places]
    return places


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
    earlier: set[object] = set()
    for position, text in enumerate(tokens.texts):
        features[KINDS.index(_kind(tokens, position, text)), position] = 1
        identity = tokens.identity[position]
        if identity in earlier and not tokens.special[position]:
            features[KINDS.index("repeated"), position] = 1
        earlier.add(identity)
    return features


def _kind(tokens: Tokens, position: int, text: str) -> str:
    if tokens.special[position]:
        return "special"
    if is_punctuation(text):
        return "punctuation"
    if text.strip().removeprefix("##").isnumeric():
        return "digit"
    inside = position > 0 and tokens.words[position] == tokens.words[position - 1]
    return "continuation" if inside else "initial"
