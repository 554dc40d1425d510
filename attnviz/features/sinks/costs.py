"""What it costs to take a head away, or the sink from its attention.

Without the head its output is zero. Without the sink its weight on the sink goes to the other keys
in proportion, α_ij / (1 - α_is): rows that have no other key keep it. What a text costs is the mean
over its tokens: of the loss where the model predicts the next token, else of the distance of the
last hidden states, 1 - cosine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from attnviz.captures.trials import predicted
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Donor, ForwardRequest, Gate, Source
from attnviz.scoring.observe import Recorder


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
    """What each of some heads costs on one text, and the sink of each.

    Args:
        source: the model.
        inputs: the text.
        sinks: the position of the sink of each head.
    """
    loss = predicts(source)
    ids = torch.tensor(predicted(inputs).ids)
    request = ForwardRequest(hidden=not loss, logits=loss)
    whole = _looked_at(source, inputs, request)

    def cost(changed: ForwardRequest) -> float:
        outcome = _looked_at(source, inputs, changed)
        if loss:
            return _loss(outcome, ids) - base
        return float((1 - F.cosine_similarity(whole.double(), outcome.double(), dim=-1)).mean())

    base = _loss(whole, ids) if loss else 0.0
    without, moved = {}, {}
    for site, heads in _by_site(sinks).items():
        maps = _maps(source, inputs, site)
        for head in heads:
            count = source.layout.heads[site.kind][site.layer]
            share = torch.ones(count, device=maps.device)
            share[head.index] = 0
            without[head] = cost(ForwardRequest({site: Gate(share)}, hidden=not loss, logits=loss))
            donor = Donor("pattern", _without_key(maps, sinks[head]), 1 - share[None])
            moved[head] = cost(ForwardRequest(donors={site: [donor]}, hidden=not loss, logits=loss))
    return TextCosts(base, without, moved, len(ids) - loss)


def _looked_at(source: Source, inputs: Inputs, request: ForwardRequest) -> Tensor:
    output = source.forward([inputs], request=request)
    output_states = output.logits if request.logits else output.hidden
    assert output_states is not None
    return output_states[0].cpu()


def _loss(logits: Tensor, ids: Tensor) -> float:
    """Mean -log p of the token that comes next, in nats."""
    return float(F.cross_entropy(logits[:-1].double(), ids[1:]))


def _by_site(heads: Mapping[Head, int]) -> dict[Site, list[Head]]:
    by_site: dict[Site, list[Head]] = {}
    for head in heads:
        by_site.setdefault(head.site, []).append(head)
    return by_site


def _maps(source: Source, inputs: Inputs, site: Site) -> Tensor:
    """The layer's weights, [1, H, T, S]."""
    recorder = Recorder([inputs], [site])
    source.forward([inputs], [recorder], ForwardRequest(hidden=False))
    (maps,) = recorder.maps().values()
    return torch.as_tensor(maps)[None].to(source.info.device)


def _without_key(maps: Tensor, key: int) -> Tensor:
    """Weights whose rows go round one key; rows with no other keep it."""
    others = maps.clone()
    others[..., key] = 0
    left, whole = others.sum(-1, keepdim=True), maps.sum(-1, keepdim=True)
    return torch.where(left > 0, others * (whole / left.clamp(min=1e-30)), maps)
