"""Rows that show a role: for each head the best of a corpus, and some at random.

Of each text at most one row is kept for a head and role, so that examples differ. What is kept does
not depend on the order in which texts come: equally good rows are told apart by their hashes, and
random ones are those with the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import Array, to_numpy
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.features.profile.tasks import mixed
from attnviz.scoring.roles import ROLES

KEPT = 3
"""Rows of each sort."""
SORTS = ("best", "random")
LONGEST_TEXT = 500
"""Characters of a text that are kept."""

Floats = NDArray[np.floating[Any]]

_NONE = -1
_FINE = 14
"""Bits of a row's value that count; rows that are equal up to that are equally good."""


def scores_shown() -> tuple[str, ...]:
    """What says how well a row shows a role, in the order of the roles."""
    return tuple(role.evidence[0].score for role in ROLES.values())


@dataclass(frozen=True, slots=True)
class ShownText:
    """A text of which a row is an example.

    Attributes:
        number: of the text, from 1.
        place: file and line.
        text: what ran, cut after :data:`LONGEST_TEXT` characters.
        window: which part of a long text it is, from 0.
        tokens: the readable texts of the rows that are examples, by kind of site and position.
    """

    number: int
    place: str
    text: str
    window: int = 0
    tokens: dict[tuple[SiteKind, int], str] = field(default_factory=dict)


class Examples:
    """The examples of H heads and R roles.

    Attributes:
        ranks: int64 [2, R, H, KEPT], the larger the better; -1 where there is none.
        texts: uint64 of the same shape, the keys of the texts.
        rows: int32, the positions of the rows.
        values: float32, how well they show the role.
        shown: the texts by their keys.
    """

    def __init__(self, heads: int, count: int = KEPT) -> None:
        shape = (len(SORTS), len(ROLES), heads, count)
        self.ranks = np.full(shape, _NONE, np.int64)
        self.texts = np.zeros(shape, np.uint64)
        self.rows = np.zeros(shape, np.int32)
        self.values = np.zeros(shape, np.float32)
        self.shown: dict[int, ShownText] = {}

    def merge(self, *others: Examples) -> None:
        """Keep the best of all."""
        everyone = (self, *others)
        for other in others:
            for key, shown in other.shown.items():
                mine = self.shown.get(key)
                tokens = {**mine.tokens, **shown.tokens} if mine else shown.tokens
                self.shown[key] = replace(shown, tokens=tokens)
        ranks = np.concatenate([examples.ranks for examples in everyone], axis=-1)
        order = np.argsort(ranks, axis=-1, kind="stable")[..., ::-1][..., :KEPT]
        for name in ("ranks", "texts", "rows", "values"):
            both = np.concatenate([getattr(examples, name) for examples in everyone], axis=-1)
            setattr(self, name, np.take_along_axis(both, order, axis=-1))

    def prune(self) -> None:
        """Forget texts that no example is of any more."""
        used = set(self.texts[self.ranks != _NONE].tolist())
        self.shown = {key: shown for key, shown in self.shown.items() if key in used}

    def renumber(self, offset: int) -> None:
        """Count the texts from ``offset`` on, since others came before them."""
        for key, shown in self.shown.items():
            self.shown[key] = replace(shown, number=shown.number + offset)


class Watching:
    """Finds the examples of a batch; give :meth:`watch` to a score observer.

    A layer's values have one place from the start: a small array for every block would stand
    between the large ones that are freed, and memory would grow by holes.
    """

    def __init__(self, batch: Sequence[Inputs], keys: Sequence[int], layout: Layout) -> None:
        self._batch, self._keys, self._layout = tuple(batch), tuple(keys), layout
        self._shown = scores_shown()
        self._seen: list[dict[Site, Floats]] = [{} for _ in keys]

    def watch(self, item: int, site: Site, start: int, names: Sequence[str], values: Array) -> None:
        """Keep those scores [n, H, r] of some rows that show roles."""
        layer = self._layer(item, site)
        rows = slice(start, start + values.shape[-1])
        for place, name in enumerate(self._shown):  # cross-attention lacks some scores
            if name in names:
                layer[place, :, rows] = to_numpy(values[names.index(name)])

    def _layer(self, item: int, site: Site) -> Floats:
        """[R, H, T] of a layer, NaN where nothing was seen."""
        if site not in self._seen[item]:
            length = len(self._batch[item].sides[site.kind].queries)
            shape = (len(self._shown), self._layout.heads[site.kind][site.layer], length)
            self._seen[item][site] = np.full(shape, np.nan, np.float32)
        return self._seen[item][site]

    def examples(self, item: int, inputs: Inputs, shown: ShownText) -> Examples:
        """The rows of one item, one for each head and role where there is any."""
        key, first = self._keys[item], 0
        examples = Examples(len(self._layout), 1)
        for kind in self._layout.kinds:
            texts = inputs.sides[kind].queries.texts
            sites = (site for site in self._layout.sites if site.kind == kind)
            seen = np.concatenate([self._layer(item, site) for site in sites], axis=1)
            heads = slice(first, first + seen.shape[1])
            first = heads.stop
            there = ~np.isnan(seen)
            for sort, every in enumerate(_ranks(seen, mixed(key, np.arange(len(texts))))):
                ranks = np.where(there, every, _NONE)
                rows = ranks.argmax(-1)[..., None]
                examples.ranks[sort, :, heads] = np.take_along_axis(ranks, rows, -1)
                examples.values[sort, :, heads] = np.take_along_axis(seen, rows, -1)
                examples.rows[sort, :, heads] = rows
            used = np.unique(examples.rows[:, :, heads][examples.ranks[:, :, heads] != _NONE])
            shown.tokens.update({(kind, row): texts[row] for row in used.tolist()})
        none = examples.ranks == _NONE
        examples.texts[...] = key
        for table in (examples.texts, examples.rows, examples.values):
            table[none] = 0
        if shown.tokens:
            examples.shown[key] = shown
        return examples


def _ranks(values: Floats, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], ...]:
    """How good each row is of each sort: by its value and then its hash, and by its hash alone."""
    fine = np.nan_to_num(values * ((1 << _FINE) - 1)).round().astype(np.int64)
    best = (fine << (62 - _FINE)) | (hashes >> np.uint64(2 + _FINE)).astype(np.int64)
    return best, np.broadcast_to((hashes >> np.uint64(1)).astype(np.int64), values.shape)
