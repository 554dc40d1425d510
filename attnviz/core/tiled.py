"""Maps of long texts: tiles that were filled on the way, and the largest weights of every row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.scores import HeadScores

TILES = ("max", "sum")
"""What a tile shows: the largest weight in it; or the sum over its keys, a mean over its rows."""


@dataclass(frozen=True, eq=False, slots=True)
class TiledMap:
    """One head's map over n rows and m keys, in tiles of b × b tokens (those at the ends smaller).

    Attributes:
        largest: float32 [⌈n/b⌉, ⌈m/b⌉], the largest weight in every tile.
        sums: float32 of the same shape, all weight in it.
        keys: int32 [n, k], the keys of the k largest weights of every row, in rising order, counted
            from the text's first token; -1 where a row has fewer.
        weights: float32 [n, k], these weights; 0 where there is none.
    """

    largest: NDArray[np.float32]
    sums: NDArray[np.float32]
    keys: NDArray[np.int32]
    weights: NDArray[np.float32]


@dataclass(frozen=True, eq=False, slots=True)
class Tiled:
    """Maps of one text as tiles.

    Attributes:
        source: where they are from.
        inputs: the tokens.
        size: tokens along a tile, b.
        rows: the queries that the maps are over, and ``keys`` the keys, as ranges of positions.
        keys: see ``rows``.
        maps: of every head that was asked for.
        allowed: bool [⌈n/b⌉, ⌈m/b⌉] of every layer, the tiles in which any key may be attended to.
        scores: what these heads do, over the whole text.
        empty_rows: query rows without any key, counted once a layer.
        unselected: bool likewise, those of the other tiles some of whose keys an indexer left out;
            of layers that have such.
    """

    source: SourceInfo
    inputs: Inputs
    size: int
    rows: range
    keys: range
    maps: Mapping[Head, TiledMap]
    allowed: Mapping[Site, NDArray[np.bool_]]
    scores: tuple[HeadScores, ...]
    empty_rows: int = 0
    unselected: Mapping[Site, NDArray[np.bool_]] = field(default_factory=dict)

    def shown(self, head: Head, what: str) -> Any:
        """A head's tiles [⌈n/b⌉, ⌈m/b⌉] as they are drawn, masked where no key is allowed.

        Among these, tiles whose keys an indexer did not select hold no number.
        """
        tiles = self.maps[head]
        values = tiles.largest
        if what == "sum":
            starts = np.arange(0, len(self.rows), self.size)
            lengths = np.minimum(self.size, len(self.rows) - starts)
            values = np.divide(tiles.sums, lengths[:, None], dtype=np.float32)
        hidden = ~self.allowed[head.site]
        if head.site in self.unselected:
            values = np.where(self.unselected[head.site], np.float32(np.nan), values)
        return np.ma.MaskedArray(values, hidden) if hidden.any() else values
