"""What scores need to know about the tokens of a map, worked out once for each sequence."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from attnviz.records import Sides, SiteKind, Tokens


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


class Repeats:
    """Which tokens of a sequence are the same token.

    Attributes:
        order: int64 [T], positions sorted by token, and within one token by position.
        first: int64 [T], for each position where its token starts in ``order``.
        earlier: int64 [T], for each position how often its token occurred before.
    """

    def __init__(self, tokens: Tokens, device: torch.device) -> None:
        places: dict[object, list[int]] = {}
        earlier = []
        for i, token in enumerate(tokens.identity):
            same = places.setdefault(token, [])
            earlier.append(len(same))
            same.append(i)
        order = [i for same in places.values() for i in same]
        starts = dict(zip(places, accumulate(map(len, places.values()), initial=0), strict=False))
        self.order = torch.tensor(order, device=device)
        self.first = torch.tensor([starts[token] for token in tokens.identity], device=device)
        self.earlier = torch.tensor(earlier, device=device)
        self.any = any(earlier)

    def pairs(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Rows from 0 (int64 [n]) of queries ``start:stop``, and positions of their token before.

        Their number n is that of the repetitions, not of all pairs of positions.
        """
        counts = self.earlier[start:stop]
        rows = torch.repeat_interleave(counts)
        ends = counts.cumsum(0)
        shift = self.first[start:stop] - (ends - counts)
        return rows, self.order[torch.arange(len(rows), device=rows.device) + shift[rows]]


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
        repeats: where tokens occur again; None in cross-attention.
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

        self.repeats = Repeats(queries, like.device) if self.ordered else None

    def __len__(self) -> int:
        return len(self.counts)
