"""What it costs to take a head away, or the sink from its attention.

Without the head its output is zero. Without the sink its weight on the sink goes to the other keys
in proportion, α_ij / (1 - α_is): rows that have no other key keep it. What a text costs is the mean
over its tokens: of the loss where the model predicts the next token, else of the distance of the
last hidden states, 1 - cosine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.trials import predicted
from attnviz.core.arrays import array, exact, on_numpy, to_numpy
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Donor, ForwardRequest, Gate, Source
from attnviz.scoring.observe import Recorder
from attnviz.scoring.passes import observe

Floats = NDArray[np.float64]
Maps = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class TextCosts:
    """One text.

    Attributes:
        base: the loss; 0 where the states are compared.
        without: of every head that was ablated; ``without_sink`` likewise.
        without_sink: see ``without``.
        tokens: that the mean is over.
    """

    base: float
    without: Mapping[Head, float]
    without_sink: Mapping[Head, float]
    tokens: int


def predicts(source: Source) -> bool:
    """Whether costs are of the loss."""
    return source.layout.kinds == ("decoder",) and not source.no_logits


def costs(source: Source, inputs: Inputs, sinks: Mapping[Head, int]) -> TextCosts:
    """What each of some heads costs on one text, and the sink of each."""
    loss = predicts(source)
    ids = np.array(predicted(inputs).ids)
    request = ForwardRequest(hidden=not loss, logits=loss)
    whole = _looked_at(source, inputs, request)

    def cost(changed: ForwardRequest) -> float:
        outcome = _looked_at(source, inputs, changed)
        if loss:
            return _loss(outcome, ids) - base
        return float((1 - _cosine(whole, outcome)).mean())

    base = _loss(whole, ids) if loss else 0.0
    reference, moved = {}, {}
    for site, heads in _by_site(sinks).items():
        maps = _maps(source, inputs, site)
        for head in heads:
            count = source.layout.heads[site.kind][site.layer]
            share = np.ones(count, np.float32)
            share[head.index] = 0
            reference[head] = cost(
                ForwardRequest({site: Gate(array(share))}, hidden=not loss, logits=loss)
            )
            moving = array(_without_key(maps, sinks[head]))
            donor = Donor("pattern", moving, array(1 - share[None]))
            moved[head] = cost(ForwardRequest(donors={site: [donor]}, hidden=not loss, logits=loss))
    return TextCosts(base, reference, moved, len(ids) - loss)


def _looked_at(source: Source, inputs: Inputs, request: ForwardRequest) -> Floats:
    output = source.forward([inputs], request=request)
    output_states = output.logits if request.logits else output.hidden
    assert output_states is not None
    return to_numpy(exact(output_states[0]))


def _loss(logits: Floats, ids: NDArray[np.int64]) -> float:
    """Mean -log p of the token that comes next, in nats."""
    before = logits[:-1]
    right = before[np.arange(len(before)), ids[1:]]
    return float((on_numpy.log_sum_exp(before)[:, 0] - right).mean())


def _cosine(a: Floats, b: Floats) -> Floats:
    """Of every row of [T, D] with the other's."""
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosine: Floats = (a * b).sum(-1) / np.maximum(norms, 1e-16)
    return cosine


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
