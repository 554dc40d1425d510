"""Training rows: text, repeated sequences, sentence pairs, masks.

Every function draws from the generator it is given and from nothing else, so that a
step's batch is a function of (seed, step): runs repeat, and resuming needs no state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from .tokens import Ids
from .turns import Turns

IGNORED = -100
"""The label of a position without loss (PyTorch's default ``ignore_index``)."""


def join(books: Mapping[str, Ids]) -> Ids:
    """All books, one after the other, in the order of their names."""
    return np.concatenate([books[name] for name in sorted(books)])


def tile(segment: Ids, length: int) -> Ids:
    """``segment`` over and over, cut to ``length``."""
    return np.resize(segment, length)


def random_tokens(rng: Generator, length: int, vocabulary: int, special: int) -> Ids:
    """Uniform ids, without the ``special`` lowest ones."""
    return rng.integers(special, vocabulary, length)


def twice(rng: Generator, length: int, vocabulary: int, special: int) -> Ids:
    """Random tokens in random order, each of them exactly twice (the last perhaps once)."""
    distinct = rng.choice(vocabulary - special, (length + 1) // 2, replace=False) + special
    return rng.permutation(np.repeat(distinct, 2))[:length]


@dataclass(frozen=True)
class CausalRows:
    """Rows for next-token prediction, a share of them repeated sequences.

    A repeated row is, in turn of chance, a segment of random tokens over and over
    (``RANDOM``), a segment of text over and over (``TEXT``), or random tokens each of which
    comes exactly twice in random order (the rest). Segments are between 4 tokens and half
    the row. All but ``BARE`` of the rows begin with the begin-of-text token.
    """

    stream: Ids
    vocabulary: int
    begin: int = 0
    special: int = 1
    """Ids below this one are never drawn at random."""
    turns: Turns | None = None

    RANDOM = 0.45
    TEXT = 0.35
    BARE = 0.15

    def text(self, rng: Generator, length: int) -> Ids:
        """Return a stretch of the books from a random place."""
        start = rng.integers(0, len(self.stream) - length)
        return self.stream[start : start + length]

    def repeated(self, rng: Generator, length: int, lead: float = 0.0) -> Ids:
        """One repeated row of the mix above; ``lead`` of them after up to half a row of text."""
        if lead and rng.random() < lead:
            start = int(rng.integers(1, length // 2 + 1))
            return np.concatenate([self.text(rng, start), self.repeated(rng, length - start)])
        kind = rng.random()
        if kind >= self.RANDOM + self.TEXT:
            return twice(rng, length, self.vocabulary, self.special)
        period = int(rng.integers(4, length // 2 + 1))
        if kind < self.RANDOM:
            return tile(random_tokens(rng, period, self.vocabulary, self.special), length)
        return tile(self.text(rng, period), length)

    def batch(
        self,
        rng: Generator,
        rows: int,
        window: int,
        repeats: float,
        lead: float = 0.0,
        turns: float = 0.0,
    ) -> Ids:
        """[rows, window + 1] ids: inputs are all but the last column, targets all but the first.

        Of the share ``repeats`` that is not plain text, ``turns`` of all rows are questions on
        documents, and the rest repeated sequences.
        """
        out = np.empty((rows, window + 1), dtype=np.int64)
        for row in out:
            start = 0 if rng.random() < self.BARE else 1
            row[:start] = self.begin
            length = window + 1 - start
            kind = rng.random()
            if self.turns is not None and kind < turns:
                row[start:] = self.turns.row(rng, length)
            elif kind < repeats:
                row[start:] = self.repeated(rng, length, lead)
            else:
                row[start:] = self.text(rng, length)
        return out


@dataclass(frozen=True)
class PairRows:
    """Rows ``[CLS] A [SEP] B [SEP]`` for masked-token prediction.

    A begins at a sentence. B goes on where A ends (the most of the rows), comes from
    elsewhere (``elsewhere``), or repeats A (``repeated``; half of those are random tokens);
    a share of the rows is a single segment (``single``).
    """

    stream: Ids
    starts: Ids
    vocabulary: int
    cls: int
    sep: int
    mask: int

    elsewhere: float = 0.10
    repeated: float = 0.15
    single: float = 0.20

    @classmethod
    def of(cls, stream: Ids, stops: Ids, vocabulary: int, special: Mapping[str, int]) -> PairRows:
        """Rows of ``stream``, whose sentences end with any of the tokens ``stops``."""
        starts = np.flatnonzero(np.isin(stream[:-1], stops)) + 1
        return cls(
            stream, starts, vocabulary, special["[CLS]"], special["[SEP]"], special["[MASK]"]
        )

    def plain(self) -> PairRows:
        """Return the same, but every B goes on where its A ends."""
        return replace(self, elsewhere=0.0, repeated=0.0, single=0.0)

    def sentence(self, rng: Generator, room: int) -> int:
        """Return the start of a random sentence with ``room`` tokens after it."""
        last = np.searchsorted(self.starts, len(self.stream) - room)
        return int(self.starts[rng.integers(0, last)])

    def split(self, start: int, wish: int, room: int) -> int:
        """Give the length near ``wish`` at which a sentence ends; ``wish`` itself if none does."""
        near = np.searchsorted(self.starts, start + wish)
        ends = self.starts[max(0, near - 1) : near + 1] - start
        ends = ends[(ends >= room // 6) & (ends <= room - room // 6)]
        return int(ends[np.argmin(abs(ends - wish))]) if len(ends) else wish

    def pair(self, rng: Generator, room: int) -> tuple[Ids, Ids]:
        """Segments A and B of ``room`` tokens in all."""
        kind, start = rng.random(), self.sentence(rng, room)
        if kind < self.repeated:
            length = room // 2
            first = (
                self.stream[start : start + length]
                if kind < self.repeated / 2
                else random_tokens(rng, length, self.vocabulary, self.mask + 1)
            )
            return first, tile(first, room - length)
        length = self.split(start, int(rng.integers(room // 4, room - room // 4 + 1)), room)
        then = start + length
        if kind < self.repeated + self.elsewhere:
            then = self.sentence(rng, room)
        return self.stream[start : start + length], self.stream[then : then + room - length]

    def batch(self, rng: Generator, rows: int, window: int) -> tuple[Ids, Ids]:
        """[rows, window] ids and their segments, 0 or 1."""
        ids = np.empty((rows, window), dtype=np.int64)
        segments = np.zeros_like(ids)
        ids[:, 0], ids[:, -1] = self.cls, self.sep
        for row, segment in zip(ids, segments, strict=True):
            if rng.random() < self.single:
                start = self.sentence(rng, window - 2)
                row[1:-1] = self.stream[start : start + window - 2]
                continue
            first, second = self.pair(rng, window - 3)
            end = 1 + len(first)
            row[1:end], row[end], row[end + 1 : -1] = first, self.sep, second
            segment[end + 1 :] = 1
        return ids, segments


def mask_tokens(
    rng: Generator, ids: Ids, share: float, special: int, mask: int, vocabulary: int
) -> tuple[Ids, Ids]:
    """Return inputs and labels of masked-token prediction, BERT's way.

    ``share`` of the ordinary tokens are to be predicted: 80 % of them are replaced by the
    mask, 10 % by a random token, 10 % are left. Ids below ``special`` are never chosen.
    """
    chosen = (rng.random(ids.shape) < share) & (ids >= special)
    labels = np.where(chosen, ids, IGNORED)
    fate = rng.random(ids.shape)
    inputs = np.where(chosen & (fate < 0.8), mask, ids)
    noise = random_tokens(rng, ids.size, vocabulary, special).reshape(ids.shape)
    return np.where(chosen & (fate >= 0.9), noise, inputs), labels
