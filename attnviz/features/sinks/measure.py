"""From texts to where every head's attention rests, and what that costs.

Without a head its output is zero. Without its sink the weight on that goes to the other keys in
proportion, α_ij / (1 - α_is): rows that have no other key keep it. What a text costs is the mean
over its tokens: of the loss where the model predicts the next token, else of the distance of the
last hidden states, 1 - cosine.

Notation in shapes: N heads of the model, S keys of a text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.trials import Trial, predicted
from attnviz.core.arrays import Array, array
from attnviz.core.findings import Interval
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs
from attnviz.core.settings import Progress
from attnviz.core.source import Donor, ForwardRequest, Source
from attnviz.core.tokens import Tokens
from attnviz.features.sinks import result as records
from attnviz.features.sinks.observe import (
    Largest,
    SinkObserver,
    SinkSums,
    by_layer,
    classed,
    largest,
)
from attnviz.interventions import sweep
from attnviz.interventions.metrics import HIDDEN, Metric
from attnviz.scoring.observe import Recorder
from attnviz.scoring.passes import observe
from attnviz.scoring.select import Group
from attnviz.statistics.clusters import ClusterSums

Floats = NDArray[np.float64]
Maps = NDArray[np.floating]


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
    """What each of some heads costs on one text, and the sink of each."""
    loss, ids = predicts(source), predicted(inputs).ids
    metric = Metric("loss", exact=True) if loss else HIDDEN
    trial = Trial(0, inputs, tuple(range(len(ids) - loss)), ids[1:] if loss else ())
    whole = sweep.baseline(source, [trial], metric)
    base = float(whole.base[0].mean()) if loss else 0.0
    without: dict[Head, float] = {}
    moved: dict[Head, float] = {}
    for site, heads in _by_site(sinks).items():
        maps = _maps(source, inputs, site)
        around = maps.copy()
        for head in heads:
            around[:, head.index] = _without_key(maps[:, head.index], sinks[head])
        alone = [Group(source.layout.name(head), (head,)) for head in heads]
        layer, others = sweep.first_layer(source, [site]), array(around)
        values = sweep.sweep_trials(
            source,
            [trial],
            [
                *sweep.ablations(source, alone, 1),
                *(sweep.Intervention(layer, partial(_taking, others, head)) for head in heads),
            ],
            metric,
            tokens=sweep.affordable(source, metric),
            whole=whole,
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


def _by_site(heads: Mapping[Head, int]) -> dict[Site, list[Head]]:
    by_site: dict[Site, list[Head]] = {}
    for head in heads:
        by_site.setdefault(head.site, []).append(head)
    return by_site


def _maps(source: Source, inputs: Inputs, site: Site) -> Maps:
    """The layer's weights, [1, H, T, S]."""
    recorder = Recorder([inputs], [site])
    observe(source, [inputs], recorder)
    (maps,) = recorder.maps().values()
    return maps[None]


def _without_key(maps: Maps, key: int) -> Maps:
    """Weights whose rows go round one key; rows with no other keep it."""
    others = maps.copy()
    others[..., key] = 0
    left, whole = others.sum(-1, keepdims=True), maps.sum(-1, keepdims=True)
    return np.where(left > 0, others * (whole / np.maximum(left, 1e-30)), maps)


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
    """What norms are of: of all layers the same."""
    return "output" if all(source.output(s).weight is not None for s in _sites(source)) else "value"


def measured(source: Source, inputs: Inputs) -> TextSinks:
    """Where every head's attention rests on a text."""
    tokens = predicted(inputs)
    whole = norm_of(source) == "output"
    observer = SinkObserver(tokens, lambda site: source.output(site).weight if whole else None)
    shown = source.start_kind is not None
    output = source.forward([inputs], [observer], ForwardRequest(hidden=False, states=shown))
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
    """The sinks of a layer's heads, [H], and their figures; ``counts`` are rows of every class."""
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
        some = np.maximum(norms, 0)
        own = some[heads, places]
        others = (some.sum(1) - own) / max(1, some.shape[1] - 1)
        adds = (weight * some).sum(1)
        with np.errstate(invalid="ignore", divide="ignore"):
            figures["norm"] = np.where(others > 0, own / others, np.nan)
            figures["written"] = np.where(adds > 0, weight[heads, places] * own / adds, np.nan)
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
        named = [text.tokens.texts[place] for text, place in zip(texts, places, strict=True)]
        (position, at), (token, times) = _most(places), _most(named)
        sinks.append(
            records.HeadSink(
                head,
                texts=sum(bool(value > threshold) for value in values["share"]),
                position=position,
                at=at,
                token=token,
                token_texts=times,
                chance=float(np.mean(values.pop("chance"))),
                **{name: mean(some) for name, some in values.items()},
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
    some = np.array([value for value in values if not np.isnan(value)])
    if not len(some):
        return Interval(None)
    sums = ClusterSums(())
    sums.add(some, np.ones(len(some), np.int64))
    value, half = float(some.mean()), float(sums.half())
    return Interval(value) if np.isnan(half) else Interval(value, value - half, value + half)


def spent_on(
    source: Source,
    ready: Sequence[Inputs],
    texts: Sequence[TextSinks],
    threshold: float,
    progress: Progress,
) -> list[TextCosts]:
    """What the heads cost that have a sink in most texts."""
    heads = [
        (number, head)
        for number, head in enumerate(source.layout)
        if 2 * sum(text.figures["share"][number] > threshold for text in texts) > len(texts)
    ]
    spent = []
    for done, (inputs, text) in enumerate(zip(ready, texts, strict=True)):
        progress("costs", done, len(texts))
        places: dict[Head, int] = {head: int(text.places[number]) for number, head in heads}
        spent.append(costs(source, inputs, places))
    progress("costs", len(texts), len(texts))
    return spent


def activations(texts: Sequence[TextSinks]) -> tuple[records.LayerActivation, ...]:
    """The largest of all texts after every layer; nothing where the states are not shown."""
    return by_layer([(text.states, text.tokens) for text in texts]) if texts[0].states else ()


def _cost(values: Sequence[float | None]) -> Interval | None:
    some = [value for value in values if value is not None]
    return mean(some) if some else None


def _most(values: Sequence[V]) -> tuple[V, int]:
    return Counter(values).most_common(1)[0]


def _sites(source: Source) -> tuple[Site, ...]:
    return tuple(dict.fromkeys(head.site for head in source.layout))
