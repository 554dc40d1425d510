"""ALTI (Ferrando et al. 2022, arXiv:2203.04212): shares by how near each token's part comes.

What a layer makes of position i is y_i, the sum of a vector T_i(x_j) for every token j: what heads
write from it and, for i itself, what the residual path carries. Token j gets
c_ij = max(0, ‖y_i‖₁ - ‖y_i - T_i(x_j)‖₁), and rows are divided by their sums. Where the sum is
normalized afterwards (BERT) the parts go through that normalization with it; where layers
normalize before (GPT-2) they stay as they are (Ferrando et al. 2023, arXiv:2305.12535). In
cross-attention the residual path is a part of its own, the target's (Ferrando et al. 2022,
arXiv:2205.11631).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnviz.attention.contributions import Writes, distances, shaped
from attnviz.core import arrays
from attnviz.core.arrays import Array, to_numpy
from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows, Source
from attnviz.core.weights import Normalization, Sublayer
from attnviz.errors import ModelError
from attnviz.features.flow.result import Order
from attnviz.features.flow.stack import AttentionShares, Table


def missing(source: Source) -> str:
    """Why a model does not tell what its layers move, as a clause; empty where it does."""
    for site in source.layout.sites:
        reasons = (source.output(site).reason, source.sublayer(site).reason)
        for reason in filter(None, reasons):
            return f"in {site.kind} layer {site.layer}, {reason}"
    return ""


class Contributions:
    """An observer of one item that keeps the shares of every layer."""

    def __init__(
        self, source: Source, inputs: Inputs, progress: Callable[[int, int], None]
    ) -> None:
        self._source, self._inputs, self._progress = source, inputs, progress
        self._projections = {site: source.output(site) for site in source.layout.sites}
        self._sublayers = {site: source.sublayer(site) for site in source.layout.sites}
        self.blocks: dict[Site, AttentionShares] = {}

    def observe(self, rows: Rows) -> None:
        """Take in one block of rows."""
        site = rows.site
        if rows.values is None or rows.residual is None:
            raise ModelError(
                f"{self._source.info.model} does not show what {site.kind} layer {site.layer} "
                "moves, which alti needs; take rollout"
            )
        if site not in self.blocks:
            sides = self._inputs.sides[site.kind]
            shape = (len(sides.queries), len(sides.keys))
            self.blocks[site] = AttentionShares(
                np.zeros(shape, np.float32), np.zeros(shape[0], np.float32)
            )
        norm = norm_after(self._sublayers[site])
        writes = Writes.of(rows, self._projections[site], residual=True, norm=norm)
        shares, residual = shares_of(writes)
        block = self.blocks[site]
        queries = slice(rows.start, rows.start + shares.shape[1])
        keys = slice(rows.key_start, rows.key_start + shares.shape[2])
        block.shares[queries, keys] = to_numpy(shares[0])
        block.residual[queries] = to_numpy(residual[0])
        self._progress(len(self.blocks), len(self._projections))


def norm_after(sublayer: Sublayer) -> Normalization | None:
    """What a layer's sum goes through before it goes on."""
    return sublayer.norm if sublayer.order == "post" else None


def shares_of(writes: Writes) -> tuple[Array, Array]:
    """What each key and, in cross-attention, the residual path has of every query.

    Returns [B, r, s] and [B, r], together with rows that sum to 1. Where no part comes near to the
    whole, all of it is the second.
    """
    output = writes.output
    size = abs(output).sum(-1)  # [B, r]
    keys = (size[..., None] - distances(writes)).clip(0)
    xp = arrays.of(size).xp
    own: Array = xp.zeros_like(size)
    if writes.own is None and writes.residual is not None:
        past = shaped(writes.residual, writes.norm) / writes.deviation
        own = (size - abs(output - past).sum(-1)).clip(0)
    total = keys.sum(-1) + own
    own = xp.where(total > 0, own, 1)
    total = xp.where(total > 0, total, 1)
    return keys / total[..., None], own / total


def order(source: Source) -> Order:
    """Where the layers of a model normalize."""
    orders = {source.sublayer(site).order for site in source.layout.sites}
    if orders == {"post"}:
        return "post"
    return "pre" if orders == {"pre"} else "mixed"


def block(weights: Table) -> AttentionShares:
    """A layer's mean weights [T, S] with the residual path; they are divided in place.

    A row that sums to less than 1 (a learned sink, a query without keys) leaves more to the
    residual path.
    """
    sums = weights.sum(axis=1) + 1
    weights /= sums[:, None]
    return AttentionShares(weights, 1 / sums)
