"""From texts to where every head's attention rests, and what that costs.

Without a head its output is zero. Without its sink the weight on that goes to the other keys in
proportion, α_ij / (1 - α_is): rows that have no other key keep it. What a text costs is the mean
over its tokens: of the loss where the model predicts the next token, else of the distance of the
last hidden states, 1 - cosine.

Notation in shapes: N heads of the model, S keys of a text.

What goes by of one text that tells sinks: sums, norms, and massive activations between layers.

An activation is massive if its magnitude exceeds 100 and is at least 1,000 times the median
magnitude of its hidden state (Sun et al. 2024, arXiv:2402.17762): of all values of one text's
states after a layer, [T, D].

Notation in shapes: H heads of a layer, G key/value heads, S keys, D width of the residual stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.interventions import written
from attnviz.captures.trials import Trial, predicted
from attnviz.core import arrays
from attnviz.core.arrays import Array, Floats, array, exact, to_numpy
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs
from attnviz.core.result import Interval
from attnviz.core.settings import Progress
from attnviz.core.source import Donor, ForwardRequest, Rows, Source
from attnviz.core.tokens import Tokens
from attnviz.features.sinks import result as records
from attnviz.features.sinks.result import GATE_CLASSES, MASSIVE, TIMES, LayerActivation
from attnviz.interventions import sweep
from attnviz.interventions.metrics import HIDDEN, Metric
from attnviz.scoring.axes import KINDS, kinds
from attnviz.scoring.observe import Recorder, observe
from attnviz.scoring.select import Group
from attnviz.statistics.clusters import ClusterSums

Maps = NDArray[np.floating]
Projection = Callable[[Site], Array | None]
"""W_O of a layer by heads, [H, d_v, D]; None where it is not known."""


@dataclass(eq=False, slots=True)
class SinkSums:
    """One layer on one text; sums over rows."""

    weight: Floats  # [H, S], of the weight on each key
    rows: Floats  # [H or 1, S], how many rows may attend to it
    chance: Floats  # [H or 1, S], of the weight of uniform attention on it
    norms: Floats  # [H, S], of what each key's value adds with all of the weight
    output: Floats  # [H], of ‖z‖, z what W_O gets of a head
    learned: Floats  # [H], of the weight on a learned sink that is no key
    # [H, C], of the openness of the gate on a head's output, by the class of the query's token; NaN
    # where there is none
    gate: Floats
    count: int  # rows with some weight on keys or on that sink


def classed(tokens: Tokens) -> NDArray[np.intp]:
    """[T], the class of every token, a place in :data:`GATE_CLASSES`: the first that it is of."""
    table = kinds(tokens)
    classes = np.full(len(tokens), GATE_CLASSES.index("other"), np.intp)
    for name in ("repeated", "punctuation"):
        classes[table[KINDS.index(name)] > 0] = GATE_CLASSES.index(name)
    classes[:1] = GATE_CLASSES.index("first")
    return classes


class SinkObserver:
    """An observer of a single text."""

    def __init__(self, tokens: Tokens, projection: Projection) -> None:
        self._length, self._projection = len(tokens), projection
        self._classes = classed(tokens)
        self.layers: dict[Site, SinkSums] = {}

    def observe(self, rows: Rows) -> None:
        """Take in one block."""
        weights = rows.weights[0]  # [H, r, s]
        heads, count, width = weights.shape
        keys = slice(rows.key_start, rows.key_start + width)
        sums = self.layers.get(rows.site)
        if sums is None:
            zero, zeros = np.zeros((heads, self._length)), np.zeros(heads)
            sums = self.layers[rows.site] = SinkSums(
                zero, zero[:1].copy(), zero[:1].copy(), zero - 1, zeros, zeros.copy(),
                np.zeros((heads, len(GATE_CLASSES))), 0,
            )  # fmt: skip
        total = to_numpy(arrays.of(weights).column_sums(weights))
        sums.weight[:, keys] += total
        if rows.allowed is None:
            allowed = np.ones((1, count, width))
        else:
            first = to_numpy(rows.allowed)[0]
            allowed = np.broadcast_to(first, (len(first), count, width)).astype(np.float64)
        uniform = allowed / np.maximum(allowed.sum(-1, keepdims=True), 1)
        if len(allowed) > len(sums.rows):
            sums.rows = sums.rows.repeat(len(allowed), 0)
            sums.chance = sums.chance.repeat(len(allowed), 0)
        sums.rows[:, keys] += allowed.sum(1)
        sums.chance[:, keys] += uniform.sum(1)
        sums.count += count
        if rows.sink:
            sums.learned += count - total.sum(-1)
        unknown = np.full((heads, count), np.nan)
        openness = unknown if rows.openness is None else to_numpy(exact(rows.openness)[0])
        classes = self._classes[rows.start : rows.start + count]
        for number in range(len(GATE_CLASSES)):
            sums.gate[:, number] += openness[:, classes == number].sum(-1)
        if rows.values is not None:
            xp = arrays.of(rows.values).xp
            sums.output += to_numpy(xp.linalg.norm(exact(written(rows)[0]), None, -1).sum(-1))
            fresh = np.flatnonzero(sums.norms[0, keys] < 0)
            if len(fresh):
                values = rows.values[0][:, fresh.tolist()]
                sums.norms[:, keys.start + fresh] = self._norms(rows.site, values, heads)

    def _norms(self, site: Site, values: Array, heads: int) -> Floats:
        """[H, keys], of v W_O where that is known, else of v."""
        values, xp = exact(values), arrays.of(values).xp
        shared = heads // len(values)
        values = values[[head // shared for head in range(heads)]]  # [H, keys, d_v]
        weight = self._projection(site)
        if weight is None:
            return to_numpy(xp.linalg.norm(values, None, -1))
        weight = exact(arrays.converted(weight, values))
        gram = weight @ weight.swapaxes(1, 2)  # ‖v W‖² = v (W Wᵀ) vᵀ, never [H, keys, D]
        squares = ((values @ gram) * values).sum(-1)
        return to_numpy(xp.sqrt(squares.clip(0)))


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest activation of one text after one layer."""

    value: float
    position: int
    dimension: int
    median: float

    @property
    def massive(self) -> bool:
        """See the module."""
        return abs(self.value) > MASSIVE and abs(self.value) >= TIMES * self.median


def largest(states: Sequence[Array]) -> list[Largest]:
    """Of every state [1, T, D] of one text, in their order."""
    peaks = []
    for state in states:
        values = to_numpy(exact(state[0]))
        size = np.abs(values)
        index = int(size.argmax())
        position, dimension = divmod(index, values.shape[1])
        value = float(values[position, dimension])
        peaks.append(
            Largest(value, position, dimension, float(np.sort(size, None)[(size.size - 1) // 2]))
        )
    return peaks


@dataclass(frozen=True, slots=True)
class TextCosts:
    """One text."""

    base: float  # the loss; 0 where the states are compared
    without: Mapping[Head, float]  # of every head that was ablated; ``without_sink`` likewise
    without_sink: Mapping[Head, float]
    tokens: int  # that the mean is over


def predicts(source: Source) -> bool:
    """Whether costs are of the loss."""
    return source.layout.kinds == ("decoder",) and not source.no_logits


def costs(source: Source, inputs: Inputs, sinks: Mapping[Head, int]) -> TextCosts:
    """Return what each of some heads costs on one text, and the sink of each."""
    loss, ids = predicts(source), predicted(inputs).ids
    metric = Metric("loss", exact=True) if loss else HIDDEN
    trial = Trial(0, inputs, tuple(range(len(ids) - loss)), ids[1:] if loss else ())
    full = sweep.baseline(source, [trial], metric)
    base = float(full.base[0].mean()) if loss else 0.0
    without: dict[Head, float] = {}
    moved: dict[Head, float] = {}
    for site in dict.fromkeys(head.site for head in sinks):
        heads = [head for head in sinks if head.site == site]
        recorder = Recorder([inputs], [site])
        observe(source, [inputs], recorder)
        (of_layer,) = recorder.maps().values()
        maps = of_layer[None]  # [1, H, T, S]
        around = maps.copy()
        for head in heads:
            around[:, head.index] = _without_key(maps[:, head.index], sinks[head])
        single = [Group(source.layout.name(head), (head,)) for head in heads]
        layer, patched = sweep.first_layer(source, [site]), array(around)
        values = sweep.sweep_trials(
            source,
            [trial],
            [
                *sweep.ablations(source, single, 1),
                *(sweep.Intervention(layer, partial(_taking, patched, head)) for head in heads),
            ],
            metric,
            tokens=sweep.affordable(source, metric),
            unchanged=full,
        )
        changes = [float(of_trial.mean()) - base for (of_trial,) in values]
        without |= zip(heads, changes, strict=False)
        moved |= zip(heads, changes[len(heads) :], strict=True)
    return TextCosts(base, without, moved, len(ids) - loss)


def _taking(maps: Array, head: Head) -> ForwardRequest:
    """Let a head take the weights of these maps, [1, H, T, S]."""
    share = np.zeros((1, maps.shape[1]), np.float32)
    share[:, head.index] = 1
    return ForwardRequest(donors={head.site: [Donor("pattern", maps, array(share))]})


def _without_key(maps: Maps, key: int) -> Maps:
    """Weights whose rows go round one key; rows with no other keep it."""
    remaining = maps.copy()
    remaining[..., key] = 0
    spare, total = remaining.sum(-1, keepdims=True), maps.sum(-1, keepdims=True)
    return np.where(spare > 0, remaining * (total / np.maximum(spare, 1e-30)), maps)


V = TypeVar("V")
_FIGURES = ("share", "chance", "weight", "norm", "written", "learned", "output", "gate")
_GATES = tuple(f"gate {name}" for name in records.GATE_CLASSES)


@dataclass(frozen=True, eq=False, slots=True)
class TextSinks:
    """One text."""

    tokens: Tokens  # of it
    places: NDArray[np.int64]  # [N], the key with the most weight
    # [N] each, by the names of fields of :class:`~attnviz.features.sinks.result.HeadSink`; NaN
    # where not known
    figures: dict[str, Floats]
    states: list[Largest]  # the largest activation after every layer


def norm_of(source: Source) -> records.NormOf:
    """Return what norms are of: of all layers the same."""
    return "output" if all(source.output(s).weight is not None for s in _sites(source)) else "value"


def measured(source: Source, inputs: Inputs) -> TextSinks:
    """Where every head's attention rests on a text."""
    tokens = predicted(inputs)
    by_output = norm_of(source) == "output"
    observer = SinkObserver(tokens, lambda site: source.output(site).weight if by_output else None)
    states = source.start_kind is not None
    output = source.forward([inputs], [observer], ForwardRequest(hidden=False, states=states))
    counts = np.bincount(classed(tokens), minlength=len(records.GATE_CLASSES))
    parts = [_figures(observer.layers[site], counts) for site in _sites(source)]
    return TextSinks(
        tokens,
        np.concatenate([places for places, _ in parts]),
        {
            name: np.concatenate([figures[name] for _, figures in parts])
            for name in (*_FIGURES, *_GATES)
        },
        largest(output.states),
    )


def _figures(
    sums: SinkSums, counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], dict[str, Floats]]:
    """Give sinks of a layer's heads, [H], and their figures; ``counts`` are rows of every class."""
    weight = sums.weight
    heads = np.arange(len(weight))
    places = weight.argmax(1)
    norms = sums.norms
    rows = np.broadcast_to(sums.rows, weight.shape)
    chance = np.broadcast_to(sums.chance, weight.shape)
    total = weight.sum(1)
    nothing = np.full(len(weight), np.nan)
    figures = {
        "share": weight[heads, places] / np.maximum(rows[heads, places], 1),
        "chance": chance[heads, places] / np.maximum(rows[heads, places], 1),
        "weight": weight[heads, places] / np.maximum(total + sums.learned, 1e-300),
        "norm": nothing,
        "written": nothing,
        "learned": sums.learned / max(1, sums.count),
        "output": nothing,
        "gate": sums.gate.sum(1) / max(1, sums.count),
    }
    for name, gate, count in zip(_GATES, sums.gate.T, counts.tolist(), strict=True):
        figures[name] = gate / count if count else nothing
    if (norms >= 0).any():
        sizes_of_keys = np.maximum(norms, 0)
        of_sink = sizes_of_keys[heads, places]
        elsewhere = (sizes_of_keys.sum(1) - of_sink) / max(1, sizes_of_keys.shape[1] - 1)
        adds = (weight * sizes_of_keys).sum(1)
        with np.errstate(invalid="ignore", divide="ignore"):
            figures["norm"] = np.where(elsewhere > 0, of_sink / elsewhere, np.nan)
            figures["written"] = np.where(adds > 0, weight[heads, places] * of_sink / adds, np.nan)
            sizes = sums.output
            figures["output"] = sizes / sizes.mean() if sizes.mean() > 0 else nothing
    return places, figures


def sinks_of(
    source: Source, texts: Sequence[TextSinks], threshold: float, spent: Sequence[TextCosts]
) -> tuple[records.HeadSink, ...]:
    """All heads, over all texts."""
    sinks = []
    for number, head in enumerate(source.layout):
        values = {
            name: [text.figures[name][number] for text in texts] for name in (*_FIGURES, *_GATES)
        }
        gates = [mean(values.pop(name)) for name in _GATES]
        places = [int(text.places[number]) for text in texts]
        named = [text.tokens.texts[key] for text, key in zip(texts, places, strict=True)]
        (position, in_texts), (token, times) = _most(places), _most(named)
        sinks.append(
            records.HeadSink(
                head,
                texts=sum(bool(value > threshold) for value in values["share"]),
                position=position,
                at=in_texts,
                token=token,
                token_texts=times,
                chance=float(np.mean(values.pop("chance"))),
                **{name: mean(by_text) for name, by_text in values.items()},
                gates=records.GateByToken(*gates)
                if any(gate.value is not None for gate in gates)
                else None,
                without=_cost([costs.without.get(head) for costs in spent]),
                without_sink=_cost([costs.without_sink.get(head) for costs in spent]),
            )
        )
    return tuple(sinks)


def mean(values: Sequence[float]) -> Interval:
    """Of texts, each counting once; those without a figure are left out."""
    present = np.array([value for value in values if not np.isnan(value)])
    if not len(present):
        return Interval(None)
    sums = ClusterSums(())
    sums.add(present, np.ones(len(present), np.int64))
    value, half = float(present.mean()), float(sums.half())
    return Interval(value) if np.isnan(half) else Interval(value, value - half, value + half)


def spent_on(
    source: Source,
    ready: Sequence[Inputs],
    texts: Sequence[TextSinks],
    threshold: float,
    progress: Progress,
) -> list[TextCosts]:
    """Return what the heads cost that have a sink in most texts."""
    heads = [
        (number, head)
        for number, head in enumerate(source.layout)
        if 2 * sum(text.figures["share"][number] > threshold for text in texts) > len(texts)
    ]
    spent = []
    for count, (inputs, text) in enumerate(zip(ready, texts, strict=True)):
        progress("costs", count, len(texts))
        places: dict[Head, int] = {head: int(text.places[number]) for number, head in heads}
        spent.append(costs(source, inputs, places))
    progress("costs", len(texts), len(texts))
    return spent


def activations(texts: Sequence[TextSinks]) -> tuple[LayerActivation, ...]:
    """Return the largest of all texts after every layer; nothing where the states are not shown."""
    layers = []
    for number in range(len(texts[0].states)):
        peaks = [text.states[number] for text in texts]
        text = max(range(len(peaks)), key=lambda n: abs(peaks[n].value))
        peak = peaks[text]
        layers.append(
            LayerActivation(
                number - 1,
                peak.value,
                peak.dimension,
                peak.position,
                text,
                texts[text].tokens.texts[peak.position],
                peak.median,
                sum(state.massive for state in peaks),
            )
        )
    return tuple(layers)


def _cost(values: Sequence[float | None]) -> Interval | None:
    present = [value for value in values if value is not None]
    return mean(present) if present else None


def _most(values: Sequence[V]) -> tuple[V, int]:
    return Counter(values).most_common(1)[0]


def _sites(source: Source) -> tuple[Site, ...]:
    return tuple(dict.fromkeys(head.site for head in source.layout))
