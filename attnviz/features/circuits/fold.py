"""Normalizations taken into the matrices around them, all but the division by σ.

A layer reads n = γ ⊙ (x - mean x) / σ + β. Then n W = (x C diag(γ) W) / σ + β W with C = I - 1/D:
C diag(γ) W reads the stream itself. RMS normalization has no C.
"""

from __future__ import annotations

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.weights import Normalization, OutputProjection, Reading


def widened(x: Array) -> Array:
    """In float32 or better."""
    on = arrays.of(x)
    wide: Array = on.cast(x, on.float32) if on.is_half(x) else x
    return wide


def folded(norm: Normalization | None, weight: Array) -> Array:
    """What reads normalized states as what reads the states, but for σ."""
    weight = widened(weight)
    if norm is None:
        return weight
    weight = widened(norm.scale)[:, None] * weight
    return weight - weight.mean(-2)[..., None, :] if norm.centred else weight


def passed(norm: Normalization, weight: Array) -> Array:
    """What is written, [..., D], as it leaves a normalization of the whole, but for σ and β."""
    weight = centred(weight) if norm.centred else weight
    return weight * widened(norm.scale)


def written(reading: Reading, output: OutputProjection) -> Array:
    """W_O of every head, [H, d_v, D], as it is added to the stream, but for σ."""
    assert output.weight is not None
    weight = widened(output.weight)
    return weight if reading.gain is None else weight * widened(reading.gain)


def centred(x: Array) -> Array:
    """[..., D] without its mean."""
    x = widened(x)
    return x - x.mean(-1)[..., None]


def divided(norm: Normalization | None, x: Array) -> Array:
    """(x - mean x) / σ, [..., D]: a normalization without γ and β."""
    x = widened(x)
    if norm is None:
        return x
    x = centred(x) if norm.centred else x
    xp = arrays.of(x).xp
    size: Array = xp.sqrt(xp.square(x).mean(-1)[..., None] + norm.eps)
    return x / size


def normalized(norm: Normalization | None, x: Array) -> Array:
    """γ ⊙ (x - mean x) / σ + β, [..., D]."""
    x = divided(norm, x)
    if norm is None:
        return x
    x = x * widened(norm.scale)
    return x if norm.shift is None else x + widened(norm.shift)
