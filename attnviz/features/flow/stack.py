"""Blocks of attention put together: one step for each layer, over all tokens of a prompt.

Where a model has a source and a target, the tokens of both stand side by side: a layer of the
encoder moves the source alone; one of the decoder mixes the target's prefix, then takes from the
source what its cross-attention takes (Ferrando et al. 2022, arXiv:2205.11631).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.contributions import Writes, distances, shaped
from attnviz.core import arrays
from attnviz.core.arrays import Array, to_numpy
from attnviz.core.heads import Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows, Source
from attnviz.core.threads import one_blas_thread
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, ModelError
from attnviz.features.flow.result import LayerFlow, Order

Table = NDArray[np.floating[Any]]

_ROWS = 192  # of a step that are multiplied at once in float64, or up to twice as many


@dataclass(frozen=True, slots=True, eq=False)
class AttentionShares:
    """One attention with the residual path around it."""

    shares: Table  # [T, S], of what leaves it at query i, the share that came through key j
    # [T], the share that the residual path brought; together rows sum to 1. In self-attention that
    # is the position's own, and may be counted in ``shares`` instead.
    residual: Table


@dataclass(frozen=True, slots=True)
class Nodes:
    """The tokens that flow: the source's, then from number ``targets`` on the target's.

    ``targets`` is 0 where there is one text only.
    """

    tokens: Tokens
    targets: int

    def __len__(self) -> int:
        return len(self.tokens)


def nodes(inputs: Inputs) -> Nodes:
    """All tokens of a prompt side by side."""
    sides = inputs.sides
    for kind in ("encoder", "decoder"):
        if kind in sides and len(sides[kind].queries) != len(sides[kind].keys):
            pair = sides[kind]
            raise InputError(
                f"{kind} maps of {len(pair.queries)} queries and {len(pair.keys)} keys are no "
                "self-attention of one text: flow needs every query's own key"
            )
    if "cross" not in sides and len(sides) == 1:
        (only,) = sides.values()
        return Nodes(only.queries, 0)
    source = sides["encoder"].queries if "encoder" in sides else sides["cross"].keys
    target = sides["decoder"].queries if "decoder" in sides else sides["cross"].queries
    if "cross" in sides:
        counts = (len(sides["cross"].keys), len(sides["cross"].queries))
        if counts != (len(source), len(target)):
            raise InputError(
                f"cross-attention has {counts[1]} queries and {counts[0]} keys, and the two stacks "
                f"{len(target)} and {len(source)} tokens: they do not belong together"
            )
    return Nodes(_joined(source, target), len(source))


def peak(count: int, layers: int) -> int:
    """Bytes that a flow of so many tokens through so many layers takes at its worst.

    Tables of all pairs of tokens, in bytes a pair: every layer's shares (4) to the end, and beside
    them first which keys each layer allows (1) with the mean of the weights (8) and the products of
    what is reached (13), then mean, reach (1) and flow (8) with what is compared and drawn of them
    (19).
    """
    return count**2 * (4 * layers + max(layers + 21, 36))


def steps(
    blocks: dict[Site, AttentionShares], inputs: Inputs, tokens: Nodes
) -> tuple[LayerFlow, ...]:
    """Every layer as one table over all tokens."""
    first = tokens.targets
    layers = []
    for kind, layer in layers_of(blocks):
        if len(inputs.sides) == 1 and kind in inputs.sides:
            layers.append(LayerFlow(kind, layer, _mixed(blocks.pop(Site(kind, layer)))))
            continue
        table = np.eye(len(tokens), dtype=np.float32)
        if kind == "encoder":
            stop = len(inputs.sides["encoder"].queries)
            table[:stop, :stop] = _mixed(blocks.pop(Site("encoder", layer)))
        else:
            within, cross = (blocks.pop(Site(k, layer), None) for k in ("decoder", "cross"))
            if within is not None:
                table[first:, first:] = _mixed(within)
            if cross is not None:
                table[first:, first:] *= np.asarray(cross.residual, np.float32)[:, None]
                table[first:, :first] = cross.shares
        layers.append(LayerFlow(kind, layer, table))
    return tuple(layers)


def reached(allowed: dict[Site, NDArray[np.bool_]], tokens: Nodes) -> NDArray[np.bool_]:
    """Which tokens can reach a position through all layers, bool [n, n]; ``allowed`` is used up."""
    reach = np.eye(len(tokens), dtype=np.float32)
    kinds: tuple[SiteKind, ...]
    for kind, layer in layers_of(allowed):
        step = np.eye(len(tokens), dtype=np.float32)
        kinds = ("encoder",) if kind == "encoder" else ("decoder", "cross")
        for stack in kinds:
            table = allowed.pop(Site(stack, layer), None)
            if table is not None:
                rows, columns = corner(stack, table.shape, tokens)
                step[rows, columns] += table
        reach = (step @ reach > 0).astype(np.float32)
    return reach > 0


def corner(kind: SiteKind, shape: Sequence[int], tokens: Nodes) -> tuple[slice, slice]:
    """Where a layer's table [T, S] stands among all tokens."""
    first = tokens.targets
    rows = slice(0, shape[0]) if kind == "encoder" or not first else slice(first, None)
    columns = slice(first, None) if kind == "decoder" and first else slice(0, shape[1])
    return rows, columns


def product(all_steps: Sequence[LayerFlow]) -> NDArray[np.float64]:
    """All steps one after the other, [n, n]."""
    total = all_steps[0].shares.astype(np.float64)
    after, ends = np.empty_like(total), range(_ROWS, len(total) - _ROWS + 1, _ROWS)
    with one_blas_thread():
        for step in all_steps[1:]:
            pairs = (np.split(table, ends) for table in (step.shares, after))
            for shares, rows in zip(*pairs, strict=True):
                np.matmul(shares.astype(np.float64), total, out=rows)
            total, after = after, total
    return total


def layers_of(sites: Iterable[Site]) -> list[tuple[SiteKind, int]]:
    """Stacks and layers in the order in which they run; cross-attention belongs to the decoder."""
    stacks: dict[tuple[SiteKind, int], None] = {}
    for kinds in (("encoder",), ("decoder", "cross")):
        name: SiteKind = "encoder" if kinds == ("encoder",) else "decoder"
        for site in sorted((s for s in sites if s.kind in kinds), key=lambda s: s.layer):
            stacks[name, site.layer] = None
    return list(stacks)


def _mixed(block: AttentionShares) -> NDArray[np.float32]:
    """Its shares with the residual path on the diagonal, in place."""
    table = np.asarray(block.shares, np.float32)
    table[np.diag_indices(len(table))] += np.asarray(block.residual, np.float32)
    return table


def _joined(source: Tokens, target: Tokens) -> Tokens:
    """Both texts as one, told apart by their segments."""
    last = max(source.words, default=-1) + 1
    pair: Any = (source, target)
    return Tokens(
        texts=source.texts + target.texts,
        special=tuple(chain.from_iterable(tokens.special for tokens in pair)),
        separators=tuple(chain.from_iterable(tokens.separators for tokens in pair)),
        words=source.words + tuple(w if w < 0 else w + last for w in target.words),
        segments=(0,) * len(source) + (1,) * len(target),
        spans=source.spans,
    )


class MeanWeights:
    """An observer of one item that keeps the mean of its heads' weights, never the heads' own.

    Attributes:
        weights: [T, S] by layer, float32: the mean over heads, where layers are kept.
        allowed: bool [T, S] by layer: the keys that any head may attend to.
    """

    def __init__(self, inputs: Inputs, tokens: Nodes, *, layers: bool) -> None:
        self.inputs, self.tokens, self._layers = inputs, tokens, layers
        self._sum = np.zeros((len(tokens), len(tokens)))
        self._heads = np.zeros((len(tokens), 1))
        self.weights: dict[Site, NDArray[np.float32]] = {}
        self.allowed: dict[Site, NDArray[np.bool_]] = {}

    def observe(self, rows: Rows) -> None:
        """Take in one block of rows."""
        site = rows.site
        sides = self.inputs.sides[site.kind]
        _, heads, count, width = rows.weights.shape
        shape = (len(sides.queries), len(sides.keys))
        places = corner(site.kind, shape, self.tokens)
        if site not in self.allowed:
            self.allowed[site] = np.zeros(shape, np.bool_)
            if self._layers:
                self.weights[site] = np.zeros(shape, np.float32)
            self._heads[places[0]] += heads
        queries = slice(rows.start, rows.start + count)
        keys = slice(rows.key_start, rows.key_start + width)
        mean = np.asarray(to_numpy(rows.weights[0].mean(0)), np.float32)
        total = self._sum[places]  # a view
        total[queries, keys] += heads * mean.astype(np.float64)
        if self._layers:
            self.weights[site][queries, keys] = mean
        visible: Any = True if rows.allowed is None else to_numpy(rows.allowed[0].any(0))
        self.allowed[site][queries, keys] = visible

    def mean(self) -> NDArray[np.float64]:
        """Return the mean over all heads and layers of a query, [n, n]; to be taken once."""
        self._sum /= np.maximum(self._heads, 1)
        return self._sum

    def rolled(self) -> dict[Site, AttentionShares]:
        """Return rollout's shares of every layer; to be taken once."""
        return {site: block(self.weights.pop(site)) for site in list(self.weights)}


_UNIT = 1 << 30
"""Capacities are whole numbers of 2⁻³⁰, for which the algorithm is exact.

What arrives at a position is 1 in all, so that no flow leaves the 32 bits that SciPy has for it.
"""

LONGEST = 128  # tokens; there is one maximum flow to find for every pair of them


def check(count: int) -> None:
    """Raise InputError for too many tokens."""
    if count > LONGEST:
        raise InputError(
            f"{count} tokens are too many for max-flow, which takes up to {LONGEST}; shorten the "
            "text, or take rollout"
        )


def max_flow(
    steps: Sequence[LayerFlow], progress: Callable[[int, int], None] = lambda count, total: None
) -> NDArray[np.float64]:
    """Maximum flows to every position from every token, rows divided by their sums, [n, n]."""
    raw = flows(steps, progress)
    sums = raw.sum(axis=1, keepdims=True)
    return np.divide(raw, sums, out=np.zeros_like(raw), where=sums > 0)


def flows(
    steps: Sequence[LayerFlow], progress: Callable[[int, int], None] = lambda count, total: None
) -> NDArray[np.float64]:
    """Return the maximum flows themselves, [n, n]; arguments as for :func:`max_flow`."""
    from scipy.sparse.csgraph import maximum_flow

    tables = [np.rint(step.shares.astype(np.float64) * _UNIT).astype(np.int32) for step in steps]
    count = len(tables[0])
    totals = np.zeros((count, count))
    for end in range(count):
        graph, tokens = _upstream(tables, end)
        for node, token in enumerate(tokens):
            totals[end, token] = maximum_flow(graph, node, graph.shape[0] - 1).flow_value / _UNIT
        progress(end + 1, count)
    return totals


def _upstream(tables: Sequence[NDArray[np.int32]], end: int) -> tuple[Any, NDArray[np.int64]]:
    """Return the part of the graph from which a position behind the last layer is reached."""
    from scipy.sparse import csr_array

    ends = [np.array([end])]
    for table in reversed(tables):
        ends.insert(0, np.flatnonzero(table[ends[0]].any(axis=0)))
    starts = np.cumsum([0, *map(len, ends)])
    edges = []
    for layer, table in enumerate(tables):
        part = table[np.ix_(ends[layer + 1], ends[layer])]
        after, before = np.nonzero(part)
        edges.append((before + starts[layer], after + starts[layer + 1], part[after, before]))
    rows, columns, capacities = map(np.concatenate, zip(*edges, strict=True))
    places = rows.astype(np.int32), columns.astype(np.int32)  # older SciPys take no others
    return csr_array((capacities, places), shape=(starts[-1], starts[-1])), ends[0]


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
        sublayer = self._sublayers[site]
        norm = sublayer.norm if sublayer.order == "post" else None
        writes = Writes.of(rows, self._projections[site], residual=True, norm=norm)
        shares, residual = shares_of(writes)
        block = self.blocks[site]
        queries = slice(rows.start, rows.start + shares.shape[1])
        keys = slice(rows.key_start, rows.key_start + shares.shape[2])
        block.shares[queries, keys] = to_numpy(shares[0])
        block.residual[queries] = to_numpy(residual[0])
        self._progress(len(self.blocks), len(self._projections))


def shares_of(writes: Writes) -> tuple[Array, Array]:
    """Share every query among keys [B, r, s] and the residual path [B, r], all of it for none."""
    output = writes.output
    size = abs(output).sum(-1)  # [B, r]
    keys = (size[..., None] - distances(writes)).clip(0)
    xp = arrays.of(size).xp
    residual: Array = xp.zeros_like(size)
    if writes.offset is None and writes.residual is not None:
        past = shaped(writes.residual, writes.norm) / writes.deviation
        residual = (size - abs(output - past).sum(-1)).clip(0)
    total = keys.sum(-1) + residual
    residual = xp.where(total > 0, residual, 1)
    total = xp.where(total > 0, total, 1)
    return keys / total[..., None], residual / total


def order(source: Source) -> Order:
    """Where the layers of a model normalize."""
    orders = {source.sublayer(site).order for site in source.layout.sites}
    if orders == {"post"}:
        return "post"
    return "pre" if orders == {"pre"} else "mixed"


def block(weights: Table) -> AttentionShares:
    """Add the residual path to mean weights [T, S] in place; it takes what a row lacks to 1."""
    sums = weights.sum(axis=1) + 1
    weights /= sums[:, None]
    return AttentionShares(weights, 1 / sums)
