"""What a score sees: some query rows of one layer, and what is known about their tokens.

:class:`Axes` is computed once for a token sequence, :class:`Place` once for a block of rows,
:class:`Block` holds the weights themselves and whatever several scores share.
Notation in shapes: H heads, r query rows, s keys of the block; A is H, or 1 where all heads share
a mask.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attnviz.records import Sides, SiteKind

LOCAL_WINDOW = 2
"""How far the ``local`` score reaches on either side of the query."""

_FEW_COLUMNS = 8
"""Up to so many key columns are read one by one; more are a matrix-vector product."""

_NEVER_QUERY, _NEVER_KEY = -1, -2
"""Codes that no token has, so that nothing matches them."""


def is_punctuation(text: str) -> bool:
    """Whether a token's readable text is nothing but punctuation (Unicode categories P*)."""
    text = text.strip()
    text = text.removeprefix("##") or text
    return bool(text) and all(unicodedata.category(c).startswith("P") for c in text)


@dataclass(frozen=True, eq=False)
class Columns:
    """Some key positions: as a sorted list, and as ones in a vector [S]."""

    positions: tuple[int, ...]
    ones: Tensor

    @classmethod
    def of(cls, flags: Sequence[bool], like: Tensor) -> Columns:
        """From one flag for each key; ``like`` gives dtype and device."""
        return cls(tuple(i for i, flag in enumerate(flags) if flag), like.new_tensor(flags))

    def within(self, start: int, stop: int) -> tuple[int, ...]:
        """Those of the positions that lie in ``start:stop``."""
        first = bisect_left(self.positions, start)
        return self.positions[first : bisect_left(self.positions, stop, first)]


class Axes:
    """What scores need to know about the tokens on both axes of a map.

    Attributes:
        ordered: whether queries and keys are one sequence, so that distances mean something
            (not so in cross-attention).
        counts: bool [T], False for special tokens, whose rows no score counts.
        sink: position 0 and the special tokens, where attention goes to rest (Clark et al. 2019,
            Xiao et al. 2023); they are never the target of any score but ``first`` and
            ``separator``.
        separators, punctuation: the keys of those scores.
        is_separator, is_punctuation: bool [T], the queries that are such tokens themselves.
        query_codes, key_codes: int64, equal where two tokens are the same token; special tokens
            and position 0 match nothing.
        after_codes: int64 [S], the code of the token before each key that may be a target.
    """

    def __init__(self, sides: Sides, kind: SiteKind, like: Tensor) -> None:
        queries, keys = sides.queries, sides.keys
        device = like.device
        self.ordered = kind != "cross"
        self.counts = ~torch.tensor(queries.special, dtype=torch.bool, device=device)
        sink = [special or i == 0 for i, special in enumerate(keys.special)]
        self.sink = Columns.of(sink, like)
        self.plain = 1 - self.sink.ones
        separators = [flag and i > 0 for i, flag in enumerate(keys.separators)]
        self.separators = Columns.of(separators, like)
        marks = [is_punctuation(text) for text in keys.texts]
        self.punctuation = Columns.of(
            [mark and not rest for mark, rest in zip(marks, sink, strict=True)], like
        )
        own_marks = marks if queries is keys else [is_punctuation(t) for t in queries.texts]
        self.is_separator = torch.tensor(queries.separators, dtype=torch.bool, device=device)
        self.is_punctuation = torch.tensor(own_marks, dtype=torch.bool, device=device)

        number: dict[int | str, int] = {}
        codes = [number.setdefault(token, len(number)) for token in keys.identity]
        own = [number.setdefault(token, len(number)) for token in queries.identity]
        as_key = [_NEVER_KEY if rest else c for c, rest in zip(codes, sink, strict=True)]
        # the token before a key counts even at position 0: the key itself is the target
        before = [_NEVER_KEY, *codes[:-1]]
        special_before = [True, *keys.special[:-1]]
        after = [
            _NEVER_KEY if rest or special else c
            for c, rest, special in zip(before, sink, special_before, strict=True)
        ]
        as_query = [
            _NEVER_QUERY if special else c for c, special in zip(own, queries.special, strict=True)
        ]
        self.query_codes = torch.tensor(as_query, device=device)
        self.key_codes = torch.tensor(as_key, device=device)
        self.after_codes = torch.tensor(after, device=device)
        repeated = len(set(codes)) < len(codes)
        self.repeats = self.ordered and repeated

    def __len__(self) -> int:
        return len(self.counts)


class Place:
    """Where a block stands: its rows and keys, and which of them may meet.

    Args:
        axes: the tokens.
        start: position of the first query.
        key_start: position of the first key.
        allowed: bool [A, r, s], the keys each query may attend to.
        like: a tensor of the dtype and on the device of the weights.
    """

    def __init__(
        self, axes: Axes, start: int, key_start: int, allowed: Tensor, like: Tensor
    ) -> None:
        self.axes, self.start, self.key_start = axes, start, key_start
        self.allowed = allowed
        self.rows, self.keys = allowed.shape[-2:]
        self._like = like

    @cached_property
    def choices(self) -> Tensor:
        """[A, r], how many keys each query may attend to."""
        return self.allowed.sum(-1).to(self._like.dtype)

    @cached_property
    def positions(self) -> Tensor:
        """Int64 [r], the queries' positions."""
        return torch.arange(self.start, self.start + self.rows, device=self._like.device)

    @cached_property
    def key_positions(self) -> Tensor:
        """Int64 [s]."""
        first = self.key_start
        return torch.arange(first, first + self.keys, device=self._like.device)

    @cached_property
    def back(self) -> Tensor:
        """Int64 [r, s], how far each key lies behind its query."""
        return self.positions[:, None] - self.key_positions

    @cached_property
    def distance(self) -> Tensor:
        """[r, s], |i - j|."""
        return self.back.abs().to(self._like.dtype)

    @cached_property
    def near(self) -> tuple[Tensor, Tensor]:
        """Columns [r, 2w+1] of the keys i-w..i+w, and 1 where that key can be a target, else 0."""
        offsets = torch.arange(-LOCAL_WINDOW, LOCAL_WINDOW + 1, device=self._like.device)
        columns = self.positions[:, None] + offsets - self.key_start
        inside = (columns >= 0) & (columns < self.keys)
        columns = columns.clamp(0, self.keys - 1)
        plain = self.axes.plain[self._slice][columns]
        return columns, torch.where(inside, plain, 0)

    @cached_property
    def duplicate(self) -> Tensor:
        """[r, s], 1 for an earlier key of the same token, at least two positions back."""
        return self._matches(self.axes.key_codes)

    @cached_property
    def induction(self) -> Tensor:
        """[r, s], 1 for a key right after an earlier same token, at least two positions back."""
        return self._matches(self.axes.after_codes)

    def columns(self, columns: Columns) -> tuple[Tensor | None, Tensor]:
        """Of a few columns their numbers in the block (else None), and the vector [s] of ones."""
        inside = columns.within(self.key_start, self.key_start + self.keys)
        if len(inside) > _FEW_COLUMNS:
            return None, columns.ones[self._slice]
        numbers = torch.tensor(inside, dtype=torch.int64, device=self._like.device)
        return numbers - self.key_start, columns.ones[self._slice]

    def queries(self, flags: Tensor) -> Tensor:
        """The block's part [r] of a vector over all queries."""
        return flags[self.start : self.start + self.rows]

    @property
    def _slice(self) -> slice:
        return slice(self.key_start, self.key_start + self.keys)

    def _matches(self, key_codes: Tensor) -> Tensor:
        same = self.queries(self.axes.query_codes)[:, None] == key_codes[self._slice]
        return (same & (self.back >= 2)).to(self._like.dtype)


class Block:
    """Attention weights of some query rows, with what several scores share computed once.

    Args:
        weights: [H, r, s], rows of a distribution over keys, or zero.
        place: where they stand.
        scratch: memory of the same shape to work in; fresh by default.
    """

    def __init__(self, weights: Tensor, place: Place, scratch: Tensor | None = None) -> None:
        self.weights, self.place = weights, place
        self._scratch = torch.empty_like(weights) if scratch is None else scratch

    @classmethod
    def uniform(cls, place: Place, like: Tensor) -> Block:
        """Uniform attention over the allowed keys, [A, r, s]: what chance is."""
        return cls(place.allowed.to(like.dtype) / place.choices.clamp(min=1)[..., None], place)

    @cached_property
    def top(self) -> Tensor:
        """[H, r], the largest weight."""
        return self.weights.amax(-1)

    @cached_property
    def entropy(self) -> Tensor:
        """[H, r], -Σ w log₂ w in bits."""
        logs = torch.add(self.weights, torch.finfo(self.weights.dtype).tiny, out=self._scratch)
        return -logs.log2_().mul_(self.weights).sum(-1).clamp(max=0)

    @cached_property
    def sink(self) -> Tensor:
        """[H, r], the weight on position 0 and special tokens."""
        return self.on_columns(self.place.axes.sink)

    @cached_property
    def duplicate(self) -> Tensor:
        """[H, r], the weight on earlier keys of the same token."""
        return self.on(self.place.duplicate)

    @cached_property
    def induction(self) -> Tensor:
        """[H, r], the weight on keys right after an earlier same token."""
        return self.on(self.place.induction)

    @cached_property
    def near(self) -> Tensor:
        """[H, r, 2w+1], the weight on each key within the local window that can be a target."""
        columns, plain = self.place.near
        return self.weights.gather(2, columns.expand(self.weights.shape[0], -1, -1)) * plain

    def on(self, targets: Tensor) -> Tensor:
        """[H, r], Σ w over targets [r, s], weighted by their values."""
        return torch.mul(self.weights, targets, out=self._scratch).sum(-1)

    def on_columns(self, columns: Columns) -> Tensor:
        """[H, r], the weight on the same keys in every row."""
        numbers, ones = self.place.columns(columns)
        if numbers is None:
            return self.weights @ ones
        return self.weights.index_select(2, numbers).sum(-1)
