"""Attention maps of one input, whole or as tiles, and the keys that each query may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import Head, Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.scores import HeadScores
from attnviz.core.tokens import Sides

if TYPE_CHECKING:
    from attnviz.core.arrays import Array
    from attnviz.core.reasons import HeadTerms


LEAST = 1e-30
"""A weight of less than this part of its row's largest is that of a blocked key."""

_FAR, _NEAR = 69.0, 35.0
"""exp(-69) is :data:`LEAST`. A mask leaves a gap above what it blocks; a bias that falls with
distance (ALiBi) leaves none."""
_NEVER = 5e3
"""What is this far below is blocked, gap or not: older masks are -10000, give or take a bias."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyMask:
    """Which keys the queries of a layer may attend to, kept small."""

    # no query sees a key after its own position (the last query's is the last key)
    causal: bool = False
    window: int | None = None  # a query sees only keys less than so many positions away, or None
    # bool [H or 1, T, S], the allowed keys where causality and a window do not say it all
    bits: NDArray[np.bool_] | None = None
    # part of each row went to a learned sink that is no key: rows sum to less than 1
    sink: bool = False
    # bool [1, T, S], keys that a query could have seen and that the layer's indexer did not select;
    # none of them is allowed. None where nothing selects
    unselected: NDArray[np.bool_] | None = None

    @classmethod
    def of(
        cls,
        allowed: NDArray[np.bool_],
        *,
        sink: bool = False,
        unselected: NDArray[np.bool_] | None = None,
    ) -> KeyMask:
        """Return the smallest form of allowed keys, bool [H or 1, T, S]."""
        if unselected is not None and not unselected.any():
            unselected = None
        if (allowed == allowed[:1]).all():
            allowed = allowed[:1]
        distance = _back(allowed.shape[1], allowed.shape[2])
        reached = distance[allowed[0]]
        if allowed.shape[0] == 1 and len(reached):
            farthest = int(abs(reached).max()) + 1
            simple = cls(
                causal=bool((reached >= 0).all()) and bool((distance < 0).any()),
                window=farthest if farthest <= abs(distance).max() else None,
                sink=sink,
                unselected=unselected,
            )
            if (simple.allowed(*allowed.shape[1:]) == allowed).all():
                return simple
        return cls(bits=allowed, sink=sink, unselected=unselected)

    def allowed(self, queries: int, keys: int) -> NDArray[np.bool_]:
        """Bool [H or 1, T, S]."""
        if self.bits is not None:
            return self.bits
        distance = _back(queries, keys)
        reached = distance >= (0 if self.causal else distance.min())
        if self.window is not None:
            reached &= abs(distance) < self.window
        return reached[None]


def _back(queries: int, keys: int) -> NDArray[np.intp]:
    """How far back from its query's position each key stands, [T, S]; the last two are level."""
    return np.arange(queries)[:, None] + (keys - queries) - np.arange(keys)


def blocked_by(mask: Array) -> Array:
    """Tell which keys an additive mask blocks, bool of its shape [..., T, S].

    Blocked is what lies far below the largest of its row, whatever is added to both: by the lowest
    number there is, -1e9, -10000, or -100 where nothing lies between.
    """
    from attnviz.core import arrays

    xp = arrays.of(mask).xp
    lowest = mask <= xp.finfo(mask.dtype).min / 2
    top = xp.amax(xp.where(lowest, xp.zeros_like(mask) - _NEVER, mask), -1)[..., None]
    below = top - mask
    sloping = ((below > _NEAR) & (below < _FAR)).any(-1)[..., None]
    return lowest | (below > _NEVER) | ((below > _FAR) & ~sloping)


def seen_keys(weights: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Tell which keys any head gives weight to, bool [T, S], by weights [H, T, S]."""
    sizes = abs(weights)
    with np.errstate(invalid="ignore"):
        visible: NDArray[np.bool_] = (sizes > LEAST * sizes.max(-1, keepdims=True)).any(0)
    return visible


def empty_rows(maps: Mapping[Site, NDArray[Any]]) -> int:
    """Count the rows of maps [H, T, S] that are all zero in some head."""
    return sum(int((layer == 0).all(-1).any(0).sum()) for layer in maps.values())


@dataclass(frozen=True, eq=False)
class Capture:
    """Attention maps of one input, and where they came from.

    ``maps`` holds [H, T, S] float arrays by site, for the layers that were asked for; ``quantity``
    says of what, a name of :data:`attnviz.core.quantities.QUANTITIES`;
    ``empty_rows`` counts query rows that had no key to attend to (all zero); ``reach`` says which
    keys each query may attend to, for layers where that is known and not read off the weights;
    ``terms`` what the weights of some heads are made of, for those that were asked for;
    ``kept`` the heads of a layer, by index, where ``maps`` holds only some of them, in its order.
    """

    source: SourceInfo
    layout: Layout
    inputs: Inputs
    maps: Mapping[Site, NDArray[np.floating[Any]]]
    empty_rows: int = 0
    reach: Mapping[Site, KeyMask] = field(default_factory=dict)
    quantity: str = "weights"
    terms: Mapping[Head, HeadTerms] = field(default_factory=dict)
    kept: Mapping[Site, tuple[int, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        quantity = "" if self.quantity == "weights" else f", {self.quantity}"
        return f"<Capture {described(self.source, self.inputs, self.layout)}{quantity}>"

    def __getitem__(self, head: Head) -> NDArray[np.floating[Any]]:
        """Return the [T, S] map of one head."""
        return self.maps[head.site][self.place(head)]

    def indices(self, site: Site) -> Sequence[int]:
        """Which heads of a layer are held, in the order of its maps."""
        return self.kept.get(site) or range(len(self.maps[site]))

    def place(self, head: Head) -> int:
        """Where a head's map stands among those of its layer; ValueError where it is not held."""
        return self.indices(head.site).index(head.index)

    def holds(self, head: Head) -> bool:
        """Whether a head's map is held."""
        return head.site in self.maps and head.index in self.indices(head.site)

    def finite(self) -> Capture:
        """Return the capture with rows of NaN, to which no key is left, as zeros, to be drawn."""
        if all(np.isfinite(maps).all() for maps in self.maps.values()):
            return self
        maps: dict[Site, NDArray[np.floating[Any]]] = {}
        empty = self.empty_rows
        for site, layer in self.maps.items():
            reach = self.reach.get(site)
            lost = np.isnan(layer)
            if reach is None:
                lost &= False
            else:
                lost &= ~np.asarray(reach.allowed(*layer.shape[1:]).any(-1))[..., None]
            maps[site] = np.where(lost, 0, layer)
            empty += int(lost.any((0, 2)).sum())
        return replace(self, maps=maps, empty_rows=empty)

    def sides(self, head: Head) -> Sides:
        """Return the tokens on the two axes of a head's map."""
        return self.inputs.sides[head.site.kind]


def described(source: SourceInfo, inputs: Inputs, layout: Layout) -> str:
    """Model, backend, tokens and layers, for the repr of what was made of them."""
    lengths = " + ".join(
        str(len(side.queries))
        if side.queries is side.keys
        else f"{len(side.queries)}×{len(side.keys)}"
        for side in inputs.sides.values()
    )
    layers = " + ".join(str(layout.layers(kind)) for kind in layout.kinds)
    sizes = f"{lengths} token{'s' * (lengths != '1')}, {layers} layer{'s' * (layers != '1')}"
    return f"{source.model}, {source.backend} backend, {sizes}"


@dataclass(frozen=True, eq=False, slots=True)
class TiledMap:
    """One head's map over n rows and m keys, in tiles of b × b tokens (smaller at the ends)."""

    largest: NDArray[np.float32]  # float32 [⌈n/b⌉, ⌈m/b⌉], the largest weight in every tile
    sums: NDArray[np.float32]  # float32 of the same shape, all weight in it
    # int32 [n, k], the keys of the k largest weights of every row, in rising order, counted from
    # the text's first token; -1 where a row has fewer
    keys: NDArray[np.int32]
    weights: NDArray[np.float32]  # float32 [n, k], these weights; 0 where there is none


@dataclass(frozen=True, eq=False, slots=True)
class Tiled:
    """Maps of one text as tiles."""

    source: SourceInfo  # where they are from
    inputs: Inputs  # the tokens
    size: int  # tokens along a tile, b
    rows: range  # the queries that the maps are over, and ``keys`` the keys, as ranges of positions
    keys: range
    maps: Mapping[Head, TiledMap]  # of every head that was asked for
    # bool [⌈n/b⌉, ⌈m/b⌉] of every layer, the tiles in which any key may be attended to
    allowed: Mapping[Site, NDArray[np.bool_]]
    scores: tuple[HeadScores, ...]  # what these heads do, over the whole text
    empty_rows: int = 0  # query rows without any key, counted once a layer
    # bool likewise, those of the other tiles some of whose keys an indexer left out; of layers that
    # have such
    unselected: Mapping[Site, NDArray[np.bool_]] = field(default_factory=dict)

    def shown(self, head: Head, tile: str) -> Any:
        """Return a head's tiles [⌈n/b⌉, ⌈m/b⌉] as they are drawn, masked where no key is allowed.

        Among these, tiles whose keys an indexer did not select hold no number.
        """
        tiles = self.maps[head]
        values = tiles.largest
        if tile == "sum":
            starts = np.arange(0, len(self.rows), self.size)
            lengths = np.minimum(self.size, len(self.rows) - starts)
            values = np.divide(tiles.sums, lengths[:, None], dtype=np.float32)
        hidden = ~self.allowed[head.site]
        if head.site in self.unselected:
            values = np.where(self.unselected[head.site], np.float32(np.nan), values)
        return np.ma.MaskedArray(values, hidden) if hidden.any() else values
