"""What goes by of one text that tells sinks: column sums, norms of values and of heads' outputs.

Notation in shapes: H heads of a layer, G key/value heads, S keys, D width of the residual stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.attention.donors import mixed
from attnviz.core.heads import Site
from attnviz.core.source import Rows

Projection = Callable[[Site], Tensor | None]
"""W_O of a layer by heads, [H, d_v, D]; None where it is not known."""


@dataclass(eq=False, slots=True)
class SinkSums:
    """One layer on one text; sums over rows.

    Attributes:
        weight: [H, S], of the weight on each key.
        rows: [H or 1, S], how many rows may attend to it.
        chance: [H or 1, S], of the weight of uniform attention on it.
        norms: [H, S], of what each key's value adds with all of the weight.
        output: [H], of ‖z‖, z what a head hands to W_O.
        learned: [H], of the weight on a learned sink that is no key.
        count: rows with some weight on keys or on that sink.
    """

    weight: Tensor
    rows: Tensor
    chance: Tensor
    norms: Tensor
    output: Tensor
    learned: Tensor
    count: int


class SinkObserver:
    """An observer of a single text.

    Args:
        length: tokens of it.
        projection: see :data:`Projection`.
    """

    def __init__(self, length: int, projection: Projection) -> None:
        self._length, self._projection = length, projection
        self.layers: dict[Site, SinkSums] = {}

    def observe(self, rows: Rows) -> None:
        """Take in one block."""
        weights = rows.weights[0]  # [H, r, s]
        heads, count, width = weights.shape
        keys = slice(rows.key_start, rows.key_start + width)
        sums = self.layers.get(rows.site)
        if sums is None:
            sums = self.layers[rows.site] = self._empty(heads)
        total = weights.sum(1, dtype=torch.float64).cpu()
        sums.weight[:, keys] += total
        if rows.allowed is None:
            allowed = torch.ones(1, count, width)
        else:
            allowed = rows.allowed.expand(len(rows.weights), -1, count, width)[0].cpu().double()
        uniform = allowed / allowed.sum(-1, keepdim=True).clamp(min=1)
        if len(allowed) > len(sums.rows):
            sums.rows = sums.rows.expand(len(allowed), -1).clone()
            sums.chance = sums.chance.expand(len(allowed), -1).clone()
        sums.rows[:, keys] += allowed.sum(1)
        sums.chance[:, keys] += uniform.sum(1)
        sums.count += count
        if rows.sink:
            sums.learned += count - total.sum(-1)
        if rows.values is not None:
            sums.output += mixed(rows)[0].double().norm(dim=-1).sum(-1).cpu()
            fresh = (sums.norms[0, keys] < 0).nonzero().flatten()
            if len(fresh):
                values = rows.values[0][:, fresh.to(rows.values.device)]
                sums.norms[:, keys.start + fresh] = self._norms(rows.site, values, heads).cpu()

    def _empty(self, heads: int) -> SinkSums:
        zero = torch.zeros(heads, self._length, dtype=torch.float64)
        zeros = torch.zeros(heads, dtype=torch.float64)
        few = zero[:1]
        return SinkSums(zero, few.clone(), few.clone(), zero - 1, zeros, zeros.clone(), 0)

    def _norms(self, site: Site, values: Tensor, heads: int) -> Tensor:
        """[H, keys], of v W_O where that is known, else of v."""
        values = values.double()
        values = values.repeat_interleave(heads // len(values), 0)  # [H, keys, d_v]
        weight = self._projection(site)
        if weight is None:
            norms: Tensor = torch.linalg.vector_norm(values, dim=-1)
            return norms
        weight = weight.double()
        gram = weight @ weight.transpose(1, 2)  # ‖v W‖² = v (W Wᵀ) vᵀ, never [H, keys, D]
        squares = ((values @ gram) * values).sum(-1)
        lengths: Tensor = squares.clamp(min=0).sqrt()
        return lengths
