"""What a layer added to one logit of the state behind it.

With σ of the state behind layer l, its logit is the sum of what the state before the layer adds,
each head (z_h W_O^h), b_O, the feed-forward part, a part that mixes tokens without attention, and
what the last normalization and the LM head add by themselves; see
:mod:`attnviz.attention.unembedding`. Where the layer normalizes the stream, that is with these σ
held, and its β counts as bias (:mod:`attnviz.attention.carrying`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attnviz.attention.carrying import Carrying
from attnviz.attention.unembedding import directions, gain
from attnviz.core import arrays
from attnviz.core.arrays import Array, exact
from attnviz.core.heads import Site
from attnviz.core.source import Source
from attnviz.errors import ModelError
from attnviz.features.lens.read import EXACT, TOLERANCE
from attnviz.features.lens.result import Added


def added(
    source: Source,
    states: Array,
    mlps: Sequence[Array],
    mixers: Mapping[int, Array],
    outputs: Mapping[Site, Array],
    tokens: Array,
    logits: Array,
    names: Sequence[str],
    deviations: Mapping[int, Array],
) -> Iterator[Added]:
    """Take one logit of every state apart.

    ``states`` [L + 1, P, D]; ``mlps`` [P, D] by layer, what the feed-forward parts add; ``mixers``
    [P, D] of some layers, what parts add that mix tokens without attention; ``outputs`` [P, H, d_v]
    by layer, the heads' outputs; ``tokens``: int64 [L + 1, P], whose logit; ``logits`` [L + 1, P],
    as they were read; ``deviations`` [P, n] by layer, σ of the normalizations that it puts over the
    stream.
    """
    named, on, readout = iter(names), arrays.of(states), source.readout().converted(states)
    carrying = Carrying(readout, deviations)
    for place, now in enumerate(states):
        toward, constants = directions(readout, now, tokens[place])
        none = on.xp.zeros_like(constants)
        sums, before, heads = [constants, none, none, none], exact(now), none[:, None][:, :0]
        if place:
            layer, site = place - 1, source.layout.sites[place - 1]
            before, bias = exact(states[layer]), none
            if readout.residual_scales:
                before = before * readout.residual_scales[layer]
            attended, fed = (carrying.inside(toward, layer, n) for n in carrying.passed(layer))
            if site in outputs:
                heads, bias = _of_heads(source, site, outputs[site], attended)
            if layer in readout.biases:
                bias = bias + toward @ exact(readout.biases[layer])
            shift = carrying.shifts(toward, layer)
            bias = bias if shift is None else bias + shift
            parts = ((mlps[layer], fed), (mixers.get(layer), attended))
            sums[1:] = [bias, *(none if part is None else (exact(part) * direction).sum(-1)
                                for part, direction in parts)]  # fmt: skip
            toward = carrying.inside(toward, layer)
        columns = on.xp.stack([(before * toward).sum(-1), *sums], 1)
        whole = columns.sum(-1) + heads.sum(-1)
        _check(source, whole, logits[place])
        rows = zip(whole.tolist(), columns.tolist(), heads.tolist(), strict=True)
        for total, (first, constant, bias_, mlp, mixer), each in rows:
            yield Added(next(named), total, first, tuple(each), bias_, mlp, constant, mixer)


def _of_heads(source: Source, site: Site, outputs: Array, toward: Array) -> tuple[Array, Array]:
    """What the heads of a layer add, [P, H], and its b_O, [P]; in float64.

    ``outputs`` [P, H, d_v]; ``toward``: the directions, [P, D].
    """
    out, on = source.output(site).moved_to(outputs), arrays.of(outputs)
    assert out.weight is not None
    heads, size, width = out.weight.shape
    readout = source.readout().converted(outputs)
    norm = readout.after.get(site.layer)
    if norm is not None:
        flat = exact(out.weight).reshape(heads * size, width)
        given = exact(outputs.reshape(len(outputs), -1)) @ flat
        given = given if out.bias is None else given + exact(out.bias)
        toward = toward * gain(norm, given)
    toward = toward * readout.share(site.layer)
    each = on.cast(toward, on.float32) @ on.cast(out.weight, on.float32).reshape(-1, width).T
    added = (exact(outputs) * exact(each.reshape(-1, heads, size))).sum(-1)
    bias = on.xp.zeros_like(added[:, 0]) if out.bias is None else toward @ exact(out.bias)
    return added, bias


def _check(source: Source, sums: Array, logits: Array) -> None:
    """ModelError where sums are not the logits that were read."""
    apart = abs(sums - logits) / abs(logits).clip(1.0)
    if not float(apart.max()) <= TOLERANCE.get(source.info.dtype, EXACT):
        raise ModelError(
            f"what the layers of {source.info.model} add is up to {float(apart.max()):.2g} off the "
            "logits that their states are read as: it is not shown; an ablated head cannot be split"
        )
