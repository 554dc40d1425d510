"""Maps of long texts as tiles, filled block by block: a whole map is never in memory.

A tile keeps the largest weight in it and their sum, both exact, and every row its k largest
weights. These lie in the k tiles of the row whose largest weights are largest, so only those are
searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from attnviz.core.arrays import on_torch, to_torch
from attnviz.core.capture import TiledMap
from attnviz.core.heads import Head, Site
from attnviz.core.source import Rows


class TileObserver:
    """Fills the tiles of one text, the only item that runs."""

    def __init__(
        self, heads: Iterable[Head], size: int, rows: range, keys: range, keep: int = 0
    ) -> None:
        self._size, self._rows, self._keys, self._keep = size, rows, keys, keep
        self._indices: dict[Site, list[int]] = {}
        for head in sorted(set(heads)):
            self._indices.setdefault(head.site, []).append(head.index)
        self._kept: dict[Site, _Layer] = {}

    def observe(self, rows: Rows) -> None:
        """Add one block."""
        site = rows.site
        if site not in self._indices:
            return
        first, last = _overlap(rows.start, rows.weights.shape[2], self._rows)
        key_start, key_stop = _overlap(rows.key_start, rows.weights.shape[3], self._keys)
        if first >= last or key_start >= key_stop:
            return
        queries = slice(first - rows.start, last - rows.start)
        keys = slice(key_start - rows.key_start, key_stop - rows.key_start)
        indices = self._indices[site]
        complete = len(indices) == rows.weights.shape[1]
        chosen = slice(None) if complete else indices  # all without a copy
        weights = to_torch(rows.weights[0, chosen, queries, keys]).float()
        if site not in self._kept:
            self._kept[site] = _Layer(len(weights), self._size, self._rows, self._keys, self._keep)
        allowed = None
        if rows.allowed is not None:
            allowed = to_torch(rows.mask[0, :, queries, keys]).any(0)
        layer, start = self._kept[site], first - self._rows.start
        layer.add(weights, allowed, start, key_start - self._keys.start)
        if rows.unselected is not None:  # of all keys, those too that no query of a block may see
            across = slice(self._keys.start, self._keys.stop)
            layer.leave(to_torch(rows.unselected)[0, :, queries, across].any(0), start)

    def maps(self) -> dict[Head, TiledMap]:
        """Return the tiles of every head."""
        return {
            Head(site, index): layer.map(n, self._keys.start)
            for site, layer in self._kept.items()
            for n, index in enumerate(self._indices[site])
        }

    def allowed(self) -> Mapping[Site, NDArray[np.bool_]]:
        """Return the tiles of every layer in which some key may be attended to."""
        return {site: layer.allowed.cpu().numpy() for site, layer in self._kept.items()}

    def unselected(self) -> Mapping[Site, NDArray[np.bool_]]:
        """Those in which none may be, and an indexer left some out; of layers with such tiles."""
        left_out = {
            site: (layer.unselected & ~layer.allowed).cpu().numpy()
            for site, layer in self._kept.items()
        }
        return {site: tiles for site, tiles in left_out.items() if tiles.any()}


class _Layer:
    """The tiles of some heads of a layer."""

    def __init__(self, heads: int, size: int, rows: range, keys: range, keep: int) -> None:
        down, across = (-(-len(side) // size) for side in (rows, keys))
        self.size, self.keep, self.width = size, keep, len(keys)
        self.largest = torch.zeros(heads, down, across)
        self.sums = torch.zeros(heads, down, across, dtype=torch.float64)
        self.allowed = torch.zeros(down, across, dtype=torch.bool)
        self.unselected = torch.zeros(down, across, dtype=torch.bool)
        self.keys = torch.full((heads, len(rows), keep), -1, dtype=torch.int32)
        self.weights = torch.zeros(heads, len(rows), keep)

    def add(self, weights: Tensor, allowed: Tensor | None, start: int, key_start: int) -> None:
        """Add [H, r, s] from a row and a key on, counted from the first that count."""
        count, across = weights.shape[1:]
        first = key_start // self.size
        lead = key_start - first * self.size
        tail = -(lead + across) % self.size
        cut = F.pad(weights, (lead, tail)).unflatten(-1, (-1, self.size))  # type: ignore[no-untyped-call]  # [H, r, C, b]
        tops, sums = cut.amax(-1), cut.sum(-1)
        free = torch.ones(count, across, dtype=torch.bool) if allowed is None else allowed
        free = F.pad(free, (lead, tail)).unflatten(-1, (-1, self.size)).any(-1).cpu()  # type: ignore[no-untyped-call]
        columns = slice(first, first + tops.shape[2])
        for tile in range(start // self.size, (start + count - 1) // self.size + 1):
            inside = slice(
                max(tile * self.size - start, 0), min((tile + 1) * self.size - start, count)
            )
            tiles = self.largest[:, tile, columns]
            torch.maximum(tiles, tops[:, inside].amax(1).cpu(), out=tiles)
            self.sums[:, tile, columns] += on_torch.column_sums(sums[:, inside]).cpu()
            self.allowed[tile, columns] |= free[inside].any(0)
        if self.keep:
            self._keep(cut, tops, start, first)

    def leave(self, left_out: Tensor, start: int) -> None:
        """Note the keys [r, m] that an indexer left out for the rows from one on."""
        tail = -left_out.shape[1] % self.size
        omitted = F.pad(left_out, (0, tail)).unflatten(-1, (-1, self.size)).any(-1).cpu()  # type: ignore[no-untyped-call]
        for tile in range(start // self.size, (start + len(omitted) - 1) // self.size + 1):
            first = max(tile * self.size - start, 0)
            inside = omitted[first : (tile + 1) * self.size - start]
            self.unselected[tile] |= inside.any(0)

    def _keep(self, cut: Tensor, tops: Tensor, start: int, first: int) -> None:
        """Keep the largest weights of rows of tiles [H, r, C, b]."""
        best = tops.topk(min(self.keep, tops.shape[2]), -1).indices  # [H, r, n]
        candidates = cut.gather(2, best[..., None].expand(*best.shape, self.size))
        keys = (best + first)[..., None] * self.size + torch.arange(self.size, device=cut.device)
        top = candidates.flatten(2).topk(min(self.keep, candidates[0, 0].numel()), -1)
        places = keys.flatten(2).gather(2, top.indices)
        places = places.where(top.values > 0, torch.iinfo(torch.int32).max)
        places, order = places.sort(-1)  # in rising order, missing ones last
        values = top.values.gather(2, order)
        rows, held = slice(start, start + cut.shape[1]), slice(0, places.shape[2])
        missing = values <= 0
        self.keys[:, rows, held] = places.masked_fill(missing, -1).to(torch.int32).cpu()
        self.weights[:, rows, held] = values.masked_fill(missing, 0).cpu()

    def map(self, n: int, start: int) -> TiledMap:
        """Return the tiles of one head; keys counted from the text's first token."""
        keys = self.keys[n]
        return TiledMap(
            self.largest[n].numpy(),
            self.sums[n].float().numpy(),
            keys.where(keys < 0, keys + start).numpy(),
            self.weights[n].numpy(),
        )


def _overlap(start: int, count: int, positions: range) -> tuple[int, int]:
    """Give positions of a block that are wanted, as their first one and the one after the last."""
    return max(start, positions.start), min(start + count, positions.stop)
