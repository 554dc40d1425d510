"""The logit lens: every state through the last normalization and the LM head.

nostalgebraist 2020, "interpreting GPT: the logit lens". The readout is the model's own: a pass that
begins behind the last layer, with whatever closes the model (soft caps, scales, an MLM head). It
works position by position, so that states of all layers go through as if they were one long text;
that this is so is seen in the last state, whose logits are compared with the model's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.core.prompt import Inputs
from attnviz.core.source import ForwardRequest, Source, Start
from attnviz.errors import ModelError

AT_ONCE = 1 << 25
"""Logits that are held at a time: 128 MiB in float32."""
_LEAST = -1e30
"""In place of the logarithm of 0, which times 0 is 0."""

TOLERANCE = {"float16": 0.05, "bfloat16": 0.05}
"""Largest difference of two logits, relative to the largest where that is above 1."""
EXACT = 1e-4
"""The same for every other precision."""


@dataclass(frozen=True, eq=False)
class Readings:
    """What n states were read as; k of the words each.

    Attributes:
        ids: int64 [n, k], the most probable words.
        logits: [n, k], theirs.
        probabilities: [n, k].
        entropy: [n], in nats.
        kl: [n], D(last ∥ this) in nats.
        rank: int64 [n], of the followed token, from 1.
        probability: [n], of the followed token.
        logit: [n], of the followed token.
        difference: the largest difference between the last state's logits and the model's own.
    """

    ids: Tensor
    logits: Tensor
    probabilities: Tensor
    entropy: Tensor
    kl: Tensor
    rank: Tensor
    probability: Tensor
    logit: Tensor
    difference: float


def unembedded(source: Source, inputs: Inputs, states: Tensor, length: int) -> Iterator[Tensor]:
    """Logits [m, V] of some states after the other.

    Args:
        source: with logits, and states between its layers.
        inputs: of the text that they are from.
        states: [n, D].
        length: T, of the sequence that is predicted.
    """
    layers = max(map(source.layout.layers, source.layout.kinds))
    vocabulary = source.vocab_size or 1 << 16
    texts = max(1, AT_ONCE // (vocabulary * length))
    for some in torch.split(states, texts * length):
        items = -(-len(some) // length)
        padded = torch.cat([some, some[-1:].expand(items * length - len(some), -1)])
        start = Start(layers, padded.view(items, length, -1))
        request = ForwardRequest(hidden=False, logits=True, start=start)
        logits = source.forward([inputs] * items, request=request).logits
        assert logits is not None
        yield logits.flatten(0, 1)[: len(some)]


@torch.inference_mode()
def readings(
    source: Source,
    inputs: Inputs,
    states: Tensor,
    own: Tensor,
    targets: Tensor,
    *,
    length: int,
    top: int,
) -> Readings:
    """Read states, and compare each with what the model says in the end.

    Args:
        source: see :func:`unembedded`, as for ``inputs`` and ``length``.
        inputs: see there.
        states: [L + 1, P, D] at P positions.
        own: [P, V], the model's logits there.
        targets: int64 [P], the token that is followed at each.
        length: see ``source``.
        top: how many words to keep.

    Raises:
        ModelError: the last state does not read as the model's own logits.
    """
    layers, wide, _ = states.shape
    last = own.float().log_softmax(-1).clamp_(min=_LEAST)
    shares = last.exp()
    surprise = torch.linalg.vecdot(shares, last)  # [P], minus the entropy of the last state
    blocks, place, apart = [], 0, 0.0
    for logits in unembedded(source, inputs, states.flatten(0, 1), length):
        rows = torch.arange(place, place + len(logits), device=logits.device) % wide
        final = max((layers - 1) * wide - place, 0)
        if final < len(logits):
            there = logits[final:] - own[rows[final:]]
            apart = max(apart, float(there[there.isfinite()].abs().max()))
        place += len(logits)
        blocks.append(_reading(logits.float(), rows, last, shares, surprise, targets, top))
    _check(source, apart, own)
    whole = [torch.cat(parts) for parts in zip(*blocks, strict=True)]
    return Readings(*whole, difference=apart)  # type: ignore[arg-type, misc]


def _reading(
    logits: Tensor,
    rows: Tensor,
    last: Tensor,
    shares: Tensor,
    surprise: Tensor,
    targets: Tensor,
    top: int,
) -> tuple[Tensor, ...]:
    """The fields of :class:`Readings`, of logits [m, V] at ``rows``; these are changed."""
    best = logits.topk(min(top, logits.shape[-1]))
    most = best.values[:, :1].clone()
    wanted = logits.gather(1, targets[rows, None])
    rank = (logits > wanted).sum(-1) + 1
    logits.sub_(most).clamp_(min=_LEAST)
    if len(rows) % len(shares) == 0 and not int(rows[0]):
        across = torch.linalg.vecdot(shares, logits.view(-1, *shares.shape)).flatten()
    else:
        across = torch.linalg.vecdot(shares[rows], logits)
    powers = logits.exp()
    whole = powers.sum(-1)
    log = whole.log()
    entropy = log - torch.linalg.vecdot(powers, logits) / whole
    kl = surprise[rows] + log - across
    total = most + log[:, None]
    return (
        best.indices, best.values, (best.values - total).exp(), entropy, kl.clamp_(min=0), rank,
        (wanted - total).exp()[:, 0], wanted[:, 0],
    )  # fmt: skip


def _check(source: Source, apart: float, own: Tensor) -> None:
    """ModelError where the last state's logits are further off than rounding explains."""
    finite = own[own.isfinite()]
    allowed = TOLERANCE.get(source.info.dtype, EXACT) * max(1.0, float(finite.abs().max()))
    if not apart <= allowed:
        raise ModelError(
            f"the last layer of {source.info.model} reads up to {apart:.2g} off the model's own "
            "logits: its states are not shown, since they cannot be read position by position"
        )


def at(states: Sequence[Tensor], places: Sequence[int]) -> Tensor:
    """States [L + 1, P, D] at some positions, of those [1, T, D] of one text."""
    where = torch.tensor(places, device=states[0].device)
    return torch.stack([state[0].index_select(0, where) for state in states])
