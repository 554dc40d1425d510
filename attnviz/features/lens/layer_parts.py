"""What a layer added to one logit of the state behind it.

With σ of the state behind layer l, its logit is the sum of what the state before the layer adds,
each head (z_h W_O^h), b_O, the feed-forward part, and what the last normalization and the LM head
add by themselves; see :mod:`attnviz.attention.unembedding`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from attnviz.attention.unembedding import directions, gain
from attnviz.core.heads import Site
from attnviz.core.source import Source
from attnviz.errors import ModelError
from attnviz.features.lens.read import EXACT, TOLERANCE
from attnviz.features.lens.result import Added


def added(
    source: Source,
    states: Tensor,
    mlps: Sequence[Tensor],
    outputs: Mapping[Site, Tensor],
    tokens: Tensor,
    logits: Tensor,
    names: Sequence[str],
) -> Iterator[Added]:
    """Take one logit of every state apart.

    Args:
        source: with a readout.
        states: [L + 1, P, D].
        mlps: [P, D] by layer, what the feed-forward parts add.
        outputs: [P, H, d_v] by layer, the heads' outputs.
        tokens: int64 [L + 1, P], whose logit.
        logits: [L + 1, P], as they were read.
        names: of the tokens, one after the other.

    Raises:
        ModelError: the parts do not add up to the logit.
    """
    named = iter(names)
    for place, now in enumerate(states):
        toward, constants = directions(source.readout(), now, tokens[place])
        sums = [constants, now.new_zeros(len(now)), now.new_zeros(len(now))]
        before, heads = now, now.new_zeros(len(now), 0)
        if place:
            before, site = states[place - 1], source.layout.sites[place - 1]
            heads, bias = _of_heads(source, site, outputs[site], toward)
            sums[1:] = [bias, (mlps[place - 1].double() * toward).sum(-1)]
        columns = torch.stack([(before.double() * toward).sum(-1), *sums], 1)
        whole = columns.sum(-1) + heads.sum(-1)
        _check(source, whole, logits[place])
        rows = zip(whole.tolist(), columns.tolist(), heads.tolist(), strict=True)
        for total, (first, constant, bias_, mlp), each in rows:
            yield Added(next(named), total, first, tuple(each), bias_, mlp, constant)


def _of_heads(source: Source, site: Site, outputs: Tensor, toward: Tensor) -> tuple[Tensor, Tensor]:
    """What the heads of a layer add, [P, H], and its b_O, [P]; in float64.

    Args:
        source: see :func:`added`.
        site: the layer.
        outputs: [P, H, d_v].
        toward: the directions, [P, D].
    """
    out = source.output(site)
    assert out.weight is not None
    heads, size, width = out.weight.shape
    norm = source.readout().after.get(site.layer)
    if norm is not None:
        given = outputs.flatten(1).double() @ out.weight.double().reshape(heads * size, width)
        given = given if out.bias is None else given + out.bias.double()
        toward = toward * gain(norm, given)
    toward = toward * source.readout().share(site.layer)
    each = toward.float() @ out.weight.float().reshape(heads * size, width).T
    added = (outputs.double() * each.view(-1, heads, size).double()).sum(-1)
    bias = added.new_zeros(len(added)) if out.bias is None else toward @ out.bias.double()
    return added, bias


def _check(source: Source, sums: Tensor, logits: Tensor) -> None:
    """ModelError where sums are not the logits that were read."""
    apart = (sums - logits).abs() / logits.abs().clamp(min=1.0)
    if not float(apart.max()) <= TOLERANCE.get(source.info.dtype, EXACT):
        raise ModelError(
            f"what the layers of {source.info.model} add is up to {float(apart.max()):.2g} off the "
            "logits that their states are read as: it is not shown; an ablated head cannot be split"
        )
