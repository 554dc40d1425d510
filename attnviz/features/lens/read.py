"""The logit lens: every state through the last normalization and the LM head.

nostalgebraist 2020, "interpreting GPT: the logit lens". The readout is the model's own: a pass that
begins behind the last layer, with whatever closes the model (soft caps, scales, an MLM head). It
works position by position, so that states of all layers go through as if they were one long text;
that this is so is seen in the last state, whose logits are compared with the model's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attnviz.core import arrays
from attnviz.core.arrays import Array
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

    ids: Array
    logits: Array
    probabilities: Array
    entropy: Array
    kl: Array
    rank: Array
    probability: Array
    logit: Array
    difference: float


def unembedded(source: Source, inputs: Inputs, states: Array, length: int) -> Iterator[Array]:
    """Logits [m, V] of some states after the other.

    ``source``: with logits, and states between its layers; ``states`` [n, D].
    """
    layers = max(map(source.layout.layers, source.layout.kinds))
    vocabulary = source.vocab_size or 1 << 16
    texts = max(1, AT_ONCE // (vocabulary * length))
    xp, at_once = arrays.of(states).xp, texts * length
    for some in (states[first : first + at_once] for first in range(0, len(states), at_once)):
        items = -(-len(some) // length)
        missing = items * length - len(some)
        padded = xp.concatenate([some, xp.broadcast_to(some[-1:], (missing, some.shape[1]))])
        start = Start(layers, padded.reshape(items, length, -1))
        request = ForwardRequest(hidden=False, logits=True, start=start)
        logits = source.forward([inputs] * items, request=request).logits
        assert logits is not None
        yield arrays.converted(logits, states).reshape(-1, logits.shape[-1])[: len(some)]


def readings(
    source: Source,
    inputs: Inputs,
    states: Array,
    own: Array,
    targets: Array,
    *,
    length: int,
    top: int,
) -> Readings:
    """Read states, and compare each with what the model says in the end.

    ``states`` [L + 1, P, D] at P positions; ``own`` [P, V], the model's logits there; ``targets``:
    int64 [P], the token that is followed at each.
    """
    layers, wide, _ = states.shape
    on = arrays.of(own)
    last = on.log_softmax(on.cast(own, on.float32)).clip(_LEAST)
    shares = on.xp.exp(last)
    surprise = (shares * last).sum(-1)  # [P], minus the entropy of the last state
    blocks, place, apart = [], 0, 0.0
    for logits in unembedded(source, inputs, states.reshape(layers * wide, -1), length):
        rows = on.arange(place, place + len(logits), on.int64, own) % wide
        final = max((layers - 1) * wide - place, 0)
        if final < len(logits):
            there = logits[final:] - own[rows[final:]]
            apart = max(apart, float(abs(there[on.xp.isfinite(there)]).max()))
        place += len(logits)
        blocks.append(
            _reading(on.cast(logits, on.float32), rows, last, shares, surprise, targets, top)
        )
    _check(source, apart, own)
    whole = [on.xp.concatenate(parts) for parts in zip(*blocks, strict=True)]
    return Readings(*whole, difference=apart)  # type: ignore[misc]


def _reading(
    logits: Array,
    rows: Array,
    last: Array,
    shares: Array,
    surprise: Array,
    targets: Array,
    top: int,
) -> tuple[Array, ...]:
    """The fields of :class:`Readings`, of logits [m, V] at ``rows``."""
    on = arrays.of(logits)
    values, indices = on.largest(logits, min(top, logits.shape[-1]))
    most = values[:, :1]
    wanted = on.at_indices(logits, targets[rows, None])
    rank = (logits > wanted).sum(-1) + 1
    logits = logits - most
    on.xp.clip(logits, _LEAST, None, out=logits)
    if len(rows) % len(shares) == 0 and not int(rows[0]):
        across = (shares * logits.reshape(-1, *shares.shape)).sum(-1).reshape(-1)
    else:
        across = (shares[rows] * logits).sum(-1)
    powers = on.xp.exp(logits)
    whole = powers.sum(-1)
    log = on.xp.log(whole)
    entropy = log - (powers * logits).sum(-1) / whole
    kl = surprise[rows] + log - across
    total = most + log[:, None]
    return (
        indices, values, on.xp.exp(values - total), entropy, kl.clip(0), rank,
        on.xp.exp(wanted - total)[:, 0], wanted[:, 0],
    )  # fmt: skip


def _check(source: Source, apart: float, own: Array) -> None:
    """ModelError where the last state's logits are further off than rounding explains."""
    finite = own[arrays.of(own).xp.isfinite(own)]
    allowed = TOLERANCE.get(source.info.dtype, EXACT) * max(1.0, float(abs(finite).max()))
    if not apart <= allowed:
        raise ModelError(
            f"the last layer of {source.info.model} reads up to {apart:.2g} off the model's own "
            "logits: its states are not shown, since they cannot be read position by position"
        )


def at(states: Sequence[Array], places: Sequence[int]) -> Array:
    """States [L + 1, P, D] at some positions, of those [1, T, D] of one text."""
    some = list(places)
    stacked: Array = arrays.of(states[0]).xp.stack([state[0][some] for state in states])
    return stacked
