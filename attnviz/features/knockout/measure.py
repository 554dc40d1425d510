"""One text with each of its cuts, and with the random controls beside them.

A cut in layer l leaves everything below it as it was, so a pass begins at the first layer that is
cut, with the states of the whole model's, and several cuts that begin there run as one batch.

Notation in shapes: H heads, T queries, S keys, n runs of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.cuts import SPARE
from attnviz.core import arrays
from attnviz.core.arrays import Array, doubles, on_numpy
from attnviz.core.cuts import Cut, CutMethod
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import ForwardRequest, Output, Rows, Source, Start
from attnviz.features.knockout.places import Edges
from attnviz.statistics.exact import Floats


@dataclass(frozen=True, slots=True)
class CutMetric:
    """A metric of one text.

    Attributes:
        name: ``loss``, ``kl``, ``logit-diff``, ``prob`` or ``log-prob``.
        targets: ids that belong at the positions, for the loss.
        answer: an id; -1 where none is asked for, as for ``against`` (of labels, whose logit may
            stand by itself).
        against: an id.
    """

    name: str
    targets: tuple[int, ...] = ()
    answer: int = -1
    against: int = -1

    def of(self, logits: Floats, whole: Floats) -> float:
        """The metric.

        ``logits`` [n, V], at n positions.
        """
        if self.name == "logit-diff":
            other = logits[:, self.against] if self.against >= 0 else 0.0
            return float((logits[:, self.answer] - other).mean())
        chances = on_numpy.log_softmax(logits)
        if self.name == "kl":
            before = on_numpy.log_softmax(whole)
            return float((np.exp(before) * (before - chances)).sum(-1).mean())
        if self.name == "loss":
            return float(-chances[np.arange(len(chances)), list(self.targets)].mean())
        log = chances[:, self.answer]
        return float((np.exp(log) if self.name == "prob" else log).mean())


def at(logits: Array, item: int, positions: Sequence[int]) -> Floats:
    """Logits [B, T, V] of an item at some positions, float64 [n, V]."""
    return doubles(logits[item][list(positions)])


ROOM = 1 << 26
"""Logits of a batch at most: 256 MiB in float32."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One cut of a text.

    Attributes:
        edges: between which tokens.
        heads: in which heads.
        positions: where it is measured; ``metric`` what.
        metric: see ``positions``.
    """

    edges: Edges
    heads: tuple[Head, ...]
    positions: tuple[int, ...]
    metric: CutMetric

    @property
    def layer(self) -> int:
        """The first layer that it touches."""
        return min(head.layer for head in self.heads)


@dataclass(frozen=True, slots=True)
class Measured:
    """What one cut of a text did.

    Attributes:
        lost: mean share of the rows' weight that was cut, over rows and heads, in the whole model.
        matched: how much of that a control can take.
        alone: share of the rows that the cut leaves with their own token alone.
        base: the metric of the whole model.
        change: of the metric.
        controls: the changes of the random controls.
    """

    lost: float
    matched: float
    alone: float
    base: float
    change: float
    controls: tuple[float, ...]


class EdgeWeights:
    """An observer of the weight on edges, and of rows that have no other key.

    Attributes:
        lost: by edges and layer, [H]: the weight on them, a sum over rows that see any of the keys.
        matched: as much of it as controls (:class:`~attnviz.core.cuts.Cut`) take from other keys.
        rows: how many rows see any of the keys; of the last layer seen.
        alone: how many see no other, likewise.
        themselves: how many see no other but their own token, likewise.
    """

    def __init__(self, edges: Sequence[Edges], method: CutMethod = "before") -> None:
        self._edges, self._method = tuple(dict.fromkeys(edges)), method
        self.lost: dict[tuple[Edges, Site], NDArray[np.float64]] = {}
        self.matched: dict[tuple[Edges, Site], NDArray[np.float64]] = {}
        self.rows: dict[tuple[Edges, Site], int] = {}
        self.alone: dict[tuple[Edges, Site], int] = {}
        self.themselves: dict[tuple[Edges, Site], int] = {}

    def observe(self, rows: Rows) -> None:
        """Add up a block."""
        heads, count, width = rows.weights.shape[1:]
        for edges in self._edges:
            if edges.kind != rows.site.kind:
                continue
            mine = [n - rows.start for n in edges.rows if 0 <= n - rows.start < count]
            keys = [n - rows.key_start for n in edges.keys if 0 <= n - rows.key_start < width]
            place = (edges, rows.site)
            self.lost.setdefault(place, np.zeros(heads))
            self.matched.setdefault(place, np.zeros(heads))
            if not mine or not keys:
                continue
            weights = arrays.to_numpy(arrays.exact(rows.weights[0][:, mine]))  # [H, rows, s]
            lost, total = weights[..., keys].sum(-1), weights.sum(-1)
            seen = np.ones((len(mine), width), np.bool_)
            if rows.allowed is not None:
                allowed = arrays.to_numpy(rows.allowed)[0, 0]
                seen = np.broadcast_to(allowed, (count, width))[mine]
            sees = seen[:, keys].any(1)
            others = seen.copy()
            others[:, keys] = False
            self.rows[place] = self.rows.get(place, 0) + int(sees.sum())
            alone = sees & ~others.any(1)
            self.alone[place] = self.alone.get(place, 0) + int(alone.sum())
            if edges.kind != "cross":
                own = others.copy()
                for number, row in enumerate(mine):
                    own[number, rows.start + row - rows.key_start] = False
                alone = sees & ~own.any(1)
            self.themselves[place] = self.themselves.get(place, 0) + int(alone.sum())
            self.lost[place] += lost.sum(-1)
            possible = self._possible(lost, total - lost, others.sum(1))
            self.matched[place] += np.where(possible, lost, 0.0).sum(-1)

    def _possible(
        self, lost: NDArray[np.float64], there: NDArray[np.float64], count: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """In which rows a control can take as much from other keys, [H, rows].

        ``lost``: the weight on the edges, [H, rows]; ``count``: how many other keys there are,
        [rows].
        """
        if self._method == "redirect":
            return np.ones(lost.shape, np.bool_)
        if self._method == "zero":
            return there >= lost
        whole = 1.0 if self._method == "before" else lost + there
        return (there > lost) & (whole - 2 * lost > SPARE) & (count > 1)

    def sees(self, edges: Edges, heads: Sequence[Head]) -> bool:
        """Whether any row sees any of the keys, in some layer of these heads."""
        return any(self.rows.get((edges, head.site), 0) for head in heads)

    def without_others(self, edges: Edges, heads: Sequence[Head]) -> int:
        """How many rows see no other key, in the layer of these heads that has most of them."""
        return max(self.alone.get((edges, head.site), 0) for head in heads)

    def shares(self, edges: Edges, heads: Sequence[Head]) -> tuple[float, float, float]:
        """Mean share of the weight on the edges over rows and heads, and how much has its match.

        And the share of rows that are left with their own token alone.
        """
        lost, matched, count, alone = 0.0, 0.0, 0, 0
        for head in heads:
            place = (edges, head.site)
            lost += float(self.lost[place][head.index])
            matched += float(self.matched[place][head.index])
            count += self.rows.get(place, 0)
            alone += self.themselves.get(place, 0)
        return lost / max(count, 1), matched / lost if lost else 1.0, alone / max(count, 1)


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole model on a text.

    Attributes:
        output: logits, and states where a pass can begin at one.
        weights: on all edges.
    """

    output: Output
    weights: EdgeWeights


def whole(source: Source, inputs: Inputs, edges: Sequence[Edges], method: CutMethod) -> Whole:
    """Run the model as it is, once for all cuts, which are made by one method."""
    weights = EdgeWeights(edges, method)
    states = source.start_kind is not None
    request = ForwardRequest(hidden=False, logits=True, states=states)
    return Whole(source.forward([inputs], [weights], request), weights)


def measure(
    source: Source,
    inputs: Inputs,
    trials: Sequence[Trial],
    model: Whole,
    *,
    method: CutMethod,
    draws: int,
    seed: Sequence[int],
    tokens: int | None = None,
    told: Callable[[int], None] = lambda runs: None,
) -> list[Measured]:
    """Every cut of a text."""
    logits = model.output.logits
    assert logits is not None
    length = inputs.length
    at_once = max(1, ROOM // max(1, length * logits.shape[-1]))
    at_once = min(at_once, max(1, (tokens or 4096) // length))
    values = np.zeros((1 + draws, len(trials)))
    for draw in range(-1, draws):
        order = None if draw < 0 else np.random.default_rng([*seed, draw])
        places = _orders(order, inputs, trials)
        for layer, numbers in _by_layer(trials, source):
            for first in range(0, len(numbers), at_once):
                some = numbers[first : first + at_once]
                cuts = cuts_of(
                    [trials[n].edges for n in some],
                    [trials[n].heads for n in some],
                    inputs,
                    source.layout,
                    method,
                    None if places is None else [places[n] for n in some],
                )
                changed = _pass(source, inputs, len(some), cuts, model.output, layer)
                for item, number in enumerate(some):
                    trial = trials[number]
                    before = at(logits, 0, trial.positions)
                    after = at(changed, item, trial.positions)
                    values[1 + draw, number] = trial.metric.of(after, before)
                told(len(some))
    made = []
    for number, trial in enumerate(trials):
        before = at(logits, 0, trial.positions)
        base = trial.metric.of(before, before)
        lost, matched, alone = model.weights.shares(trial.edges, trial.heads)
        cut, *others = (float(value) - base for value in values[:, number])
        made.append(Measured(lost, matched, alone, base, cut, tuple(others)))
    return made


def cuts_of(
    edges: Sequence[Edges],
    heads: Sequence[Sequence[Head]],
    inputs: Inputs,
    layout: Layout,
    method: CutMethod,
    places: Sequence[NDArray[np.int64]] | None = None,
    *,
    onward: bool = False,
) -> dict[Site, Cut]:
    """Cuts of several runs of one text, by layer."""
    made = {}
    for site in dict.fromkeys(head.site for some in heads for head in some):
        sides = inputs.sides[site.kind]
        queries, keys = len(sides.queries), len(sides.keys)
        chosen = np.zeros((len(edges), layout.heads[site.kind][site.layer]), np.bool_)
        rows = np.zeros((len(edges), queries), np.bool_)
        lost, instead = (np.zeros((len(edges), keys), np.bool_) for _ in range(2))
        order = np.tile(np.arange(keys), (len(edges), 1))
        for number, (edge, some) in enumerate(zip(edges, heads, strict=True)):
            mine = [head.index for head in some if head.site == site]
            if not mine or edge.kind != site.kind:
                continue
            chosen[number, mine] = True
            rows[number, list(edge.rows)] = True
            lost[number, list(edge.keys)] = True
            instead[number, list(edge.instead)] = True
            if places is not None and method == "redirect":
                instead[number] = _elsewhere(edge, places[number])
            elif places is not None:
                order[number] = places[number]
        controls = places is not None and method != "redirect"
        made[site] = Cut(
            arrays.array(chosen),
            arrays.array(rows),
            arrays.array(lost),
            method,
            onward,
            arrays.array(instead) if method == "redirect" else None,
            arrays.array(order) if controls else None,
        )
    return made


def _elsewhere(edges: Edges, places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """As many other keys as those that get the weight, the first in a random order."""
    taken = {*edges.keys, *edges.instead}
    seen = max(edges.rows) + 1 if edges.kind == "decoder" else len(places)
    others = [n for n in np.argsort(places).tolist() if n not in taken and n < seen]
    chosen = np.zeros(len(places), np.bool_)
    chosen[others[: len(edges.instead)]] = True
    return chosen


def _orders(
    draw: np.random.Generator | None, inputs: Inputs, trials: Sequence[Trial]
) -> list[NDArray[np.int64]] | None:
    """The places of keys in one random order for each length; None for the cuts themselves."""
    if draw is None:
        return None
    orders = {
        kind: np.asarray(draw.permutation(len(sides.keys)), np.int64)
        for kind, sides in inputs.sides.items()
    }
    return [orders[trial.edges.kind] for trial in trials]


def _by_layer(trials: Sequence[Trial], source: Source) -> Iterator[tuple[int | None, list[int]]]:
    """Numbers of trials by the layer that their pass can begin at; None for a whole pass."""
    starts: dict[int | None, list[int]] = {}
    for number, trial in enumerate(trials):
        late = trial.edges.kind == source.start_kind
        starts.setdefault(trial.layer if late else None, []).append(number)
    yield from starts.items()


def _pass(
    source: Source,
    inputs: Inputs,
    count: int,
    cuts: dict[Site, Cut],
    model: Output,
    layer: int | None,
) -> arrays.Array:
    """The logits [n, T, V] of one pass with the text repeated for each cut."""
    start = None if layer is None else Start(layer, model.states[layer])
    request = ForwardRequest(cuts=cuts, hidden=False, logits=True, start=start)
    logits = source.forward([inputs] * count, request=request).logits
    assert logits is not None
    return logits
