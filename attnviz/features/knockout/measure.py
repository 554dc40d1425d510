"""One text with each of its cuts, with the random controls beside them, and what it then writes.

Notation in shapes: H heads, T queries, S keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.interventions import SPARE
from attnviz.captures.trials import Trial
from attnviz.core import arrays
from attnviz.core.arrays import fetched
from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.source import Cut, CutMethod, ForwardRequest, Output, Rows, Source
from attnviz.core.spans import EVERY, LAST
from attnviz.errors import UsageError
from attnviz.features.knockout.result import MOST, CutEffect, Written
from attnviz.features.knockout.settings import KnockoutSettings
from attnviz.features.knockout.texts import CutText, Edges, edges_of
from attnviz.interventions.metrics import Metric
from attnviz.interventions.sweep import TOKENS, Intervention, first_layer, full_logits, item, sweep


@dataclass(frozen=True, slots=True)
class CutRun:
    """One cut of a text, between which tokens and in which heads, and where what is measured."""

    edges: Edges
    heads: tuple[Head, ...]
    trial: Trial
    metric: Metric


class Measured(NamedTuple):
    """What one cut of a text did."""

    # mean share of the rows' weight that was cut, over rows and heads, in the whole model
    lost: float
    matched: float  # how much of that a control can take
    base: float  # the metric of the whole model
    change: float  # of the metric
    control: float  # the mean change of the random controls; NaN for none
    alone: float  # share of the rows that the cut leaves with their own token alone


@dataclass(slots=True)
class EdgeSums:
    """The weight on edges of one layer, and rows that have no other key."""

    lost: NDArray[np.float64]  # [H], the weight on them, a sum over rows that see any of the keys
    # [H], as much of it as controls (:class:`~attnviz.core.source.Cut`) take from other keys
    matched: NDArray[np.float64]
    rows: int = 0  # how many rows see any of the keys
    alone: int = 0  # how many of them see no other
    themselves: int = 0  # how many see no other but their own token


class EdgeWeights:
    """An observer of the weight on edges, in sums by edges and layer."""

    def __init__(self, edges: Sequence[Edges], method: CutMethod = "mask") -> None:
        self._edges, self._method = tuple(dict.fromkeys(edges)), method
        self.sums: dict[tuple[Edges, Site], EdgeSums] = {}

    def observe(self, rows: Rows) -> None:
        """Add up a block."""
        heads, count, width = rows.weights.shape[1:]
        for edges in self._edges:
            if edges.kind != rows.site.kind:
                continue
            mine = [n - rows.start for n in edges.rows if 0 <= n - rows.start < count]
            keys = [n - rows.key_start for n in edges.keys if 0 <= n - rows.key_start < width]
            empty = EdgeSums(np.zeros(heads), np.zeros(heads))
            sums = self.sums.setdefault((edges, rows.site), empty)
            if not mine or not keys:
                continue
            weights = arrays.to_numpy(arrays.exact(rows.weights[0][:, mine]))  # [H, rows, s]
            lost, total = weights[..., keys].sum(-1), weights.sum(-1)
            visible = np.ones((len(mine), width), np.bool_)
            if rows.allowed is not None:
                allowed = arrays.to_numpy(rows.allowed)[0, 0]
                visible = np.broadcast_to(allowed, (count, width))[mine]
            sees = visible[:, keys].any(1)
            remaining = visible.copy()
            remaining[:, keys] = False
            sums.rows += int(sees.sum())
            isolated = sees & ~remaining.any(1)
            sums.alone += int(isolated.sum())
            if edges.kind != "cross":
                without_self = remaining.copy()
                for number, row in enumerate(mine):
                    without_self[number, rows.start + row - rows.key_start] = False
                isolated = sees & ~without_self.any(1)
            sums.themselves += int(isolated.sum())
            sums.lost += lost.sum(-1)
            possible = self._possible(lost, total - lost, remaining.sum(1))
            sums.matched += np.where(possible, lost, 0.0).sum(-1)

    def _possible(
        self, lost: NDArray[np.float64], available: NDArray[np.float64], count: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Say in which rows a control can take ``lost`` [H, rows] from ``count`` other keys."""
        if self._method == "redirect":
            return np.ones(lost.shape, np.bool_)
        if self._method == "zero":
            return available >= lost
        total = 1.0 if self._method == "mask" else lost + available
        return (available > lost) & (total - 2 * lost > SPARE) & (count > 1)

    def sees(self, edges: Edges, heads: Sequence[Head]) -> bool:
        """Whether any row sees any of the keys, in some layer of these heads."""
        return any(self.sums[edges, head.site].rows for head in heads)

    def without_others(self, edges: Edges, heads: Sequence[Head]) -> int:
        """How many rows see no other key, in the layer of these heads that has most of them."""
        return max(self.sums[edges, head.site].alone for head in heads)

    def shares(self, edges: Edges, heads: Sequence[Head]) -> tuple[float, float, float]:
        """Average the weight on edges, what has its match, and rows left with themselves."""
        lost, matched, count, isolated = 0.0, 0.0, 0, 0
        for head in heads:
            sums = self.sums[edges, head.site]
            lost += float(sums.lost[head.index])
            matched += float(sums.matched[head.index])
            count += sums.rows
            isolated += sums.themselves
        return lost / max(count, 1), matched / lost if lost else 1.0, isolated / max(count, 1)


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole model on a text."""

    output: Output  # logits, and states where a pass can begin at one
    weights: EdgeWeights  # on all edges


def whole(source: Source, inputs: Inputs, edges: Sequence[Edges], method: CutMethod) -> Whole:
    """Run the model as it is, once for all cuts, which are made by one method."""
    weights = EdgeWeights(edges, method)
    states = source.start_kind is not None
    request = ForwardRequest(hidden=False, logits=True, states=states)
    return Whole(source.forward([inputs], [weights], request), weights)


def measure(
    source: Source,
    inputs: Inputs,
    runs: Sequence[CutRun],
    model: Whole,
    *,
    method: CutMethod,
    draws: int,
    seed: Sequence[int],
    tokens: int | None = None,
) -> list[Measured]:
    """Every cut of a text."""
    full, layout = model.output, source.layout
    assert full.logits is not None

    def values(changed: Output, numbers: Sequence[int], *_: int) -> list[float]:
        pairs = [(item(changed, n), runs[of]) for n, of in enumerate(numbers)]
        values = [run.metric.of(full, output, [run.trial])[0] for output, run in pairs]
        return [float(mean) for mean in fetched([of_run.mean() for of_run in values])]

    def request(run: CutRun, places: Mapping[SiteKind, NDArray[np.int64]]) -> ForwardRequest:
        order = places.get(run.edges.kind)
        return ForwardRequest(cuts=cuts_of(run.edges, run.heads, inputs, layout, method, order))

    base: list[float] = [values(full, [n])[0] for n in range(len(runs))]
    changes = []
    for draw in range(-1, draws):
        order = None if draw < 0 else np.random.default_rng([*seed, draw])
        places = _orders(order, inputs)
        cuts = [
            Intervention(
                first_layer(source, {head.site for head in run.heads}),
                partial(request, run, places),
            )
            for run in runs
        ]
        after = sweep(
            full_logits(source), [inputs], cuts, values, full, tokens=tokens or TOKENS,
            width=full.logits.shape[-1],
        )  # fmt: skip
        changes.append([value - before for value, before in zip(after, base, strict=True)])
    measured = []
    for run, before, (cut, *controls) in zip(runs, base, zip(*changes, strict=True), strict=True):
        lost, matched, alone = model.weights.shares(run.edges, run.heads)
        control = sum(controls) / len(controls) if controls else math.nan
        measured.append(Measured(lost, matched, before, cut, control, alone))
    return measured


def cuts_of(
    edges: Edges,
    heads: Sequence[Head],
    inputs: Inputs,
    layout: Layout,
    method: CutMethod,
    places: NDArray[np.int64] | None = None,
    *,
    onward: bool = False,
) -> dict[Site, Cut]:
    """Cut edges in some heads, by layer; a control where ``places`` of keys, [S], are given."""
    cuts, redirects = {}, method == "redirect"
    sides = inputs.sides[edges.kind]
    rows, keys, instead = (
        _marked(places, len(side))
        for places, side in ((edges.rows, sides.queries), (edges.keys, sides.keys),
                             (edges.instead, sides.keys))
    )  # fmt: skip
    if places is not None and redirects:
        instead = _elsewhere(edges, places)[None]
    for site in dict.fromkeys(head.site for head in heads if head.site.kind == edges.kind):
        mine = [head.index for head in heads if head.site == site]
        cuts[site] = Cut(
            arrays.array(_marked(mine, layout.heads[site.kind][site.layer])),
            arrays.array(rows),
            arrays.array(keys),
            method,
            onward,
            arrays.array(instead) if redirects else None,
            None if redirects or places is None else arrays.array(places[None]),
        )
    return cuts


def _marked(places: Sequence[int], count: int) -> NDArray[np.bool_]:
    """[1, count], where some places are."""
    mask = np.zeros((1, count), np.bool_)
    mask[:, list(places)] = True
    return mask


def _elsewhere(edges: Edges, places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """As many other keys as those that get the weight, the first in a random order."""
    excluded = {*edges.keys, *edges.instead}
    end = max(edges.rows) + 1 if edges.kind == "decoder" else len(places)
    free = [n for n in np.argsort(places).tolist() if n not in excluded and n < end]
    chosen = np.zeros(len(places), np.bool_)
    chosen[free[: len(edges.instead)]] = True
    return chosen


def _orders(draw: np.random.Generator | None, inputs: Inputs) -> dict[SiteKind, NDArray[np.int64]]:
    """Draw the keys' places in one random order, by kind of layers; none for the cuts."""
    if draw is None:
        return {}
    return {
        kind: np.asarray(draw.permutation(len(sides.keys)), np.int64)
        for kind, sides in inputs.sides.items()
    }


def written(
    source: Source,
    text: CutText,
    inputs: Inputs,
    effects: Sequence[CutEffect],
    settings: KnockoutSettings,
) -> tuple[Written, ...]:
    """Write with the model as it is and with each cut but windows, cutting new tokens alike."""
    generation = text.prompt.generate
    if generation is None:
        return ()
    if "cross" in source.layout.kinds:
        raise UsageError(
            "{} writes with an encoder; {generate} cuts only models with a single stack",
            source.info.model,
            generate=generation.tokens,
        )
    prompt = replace(text.prompt, generate=replace(generation, tell=None))
    texts = [Written("", "", "", source.prepare(prompt).output)]
    method = cast("CutMethod", "redirect" if settings.instead else settings.cut)
    cut_effects = [effect for effect in effects if effect.kind == "all"]
    cut_effects += [effect for effect in effects if effect.kind == "heads"]
    for effect in cut_effects[:MOST]:
        edges = edges_of(inputs, effect.rows, effect.keys, settings.instead)
        if edges is None:
            continue
        order = np.random.default_rng([settings.seed, 0, 0])
        places = np.asarray(order.permutation(len(inputs.sides[edges.kind].keys)), np.int64)
        outputs = []
        for control in (None, places)[: 1 + bool(settings.draws)]:
            cuts = cuts_of(
                edges,
                effect.heads,
                inputs,
                source.layout,
                method,
                control,
                onward=effect.rows in (LAST, EVERY),
            )
            with source.cutting(cuts):
                outputs.append(source.prepare(prompt).output)
        texts.append(Written(effect.rows, effect.keys, effect.name, *outputs))
    return tuple(texts)
