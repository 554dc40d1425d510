"""Normalizations taken into the matrices around them, all but the division by σ.

A layer reads n = γ ⊙ (x - mean x) / σ + β. Then n W = (x C diag(γ) W) / σ + β W with C = I - 1/D:
C diag(γ) W reads the stream itself. RMS normalization has no C.
"""

from __future__ import annotations

from torch import Tensor

from attnviz.core.source import Normalization


def exact(x: Tensor) -> Tensor:
    """In float32 or better."""
    return x if x.element_size() >= 4 else x.float()


def folded(norm: Normalization | None, weight: Tensor) -> Tensor:
    """What reads normalized states as what reads the states, but for σ.

    Args:
        norm: None where states are read as they are.
        weight: [..., D, n].
    """
    weight = exact(weight)
    if norm is None:
        return weight
    weight = exact(norm.scale)[:, None] * weight
    return weight - weight.mean(-2, keepdim=True) if norm.centred else weight


def passed(norm: Normalization, weight: Tensor) -> Tensor:
    """What is written, [..., D], as it leaves a normalization of the whole, but for σ and β."""
    weight = centred(weight) if norm.centred else weight
    return weight * exact(norm.scale)


def centred(x: Tensor) -> Tensor:
    """[..., D] without its mean."""
    x = exact(x)
    return x - x.mean(-1, keepdim=True)


def divided(norm: Normalization | None, x: Tensor) -> Tensor:
    """(x - mean x) / σ, [..., D]: a normalization without γ and β."""
    x = exact(x)
    if norm is None:
        return x
    x = centred(x) if norm.centred else x
    return x * (x.square().mean(-1, keepdim=True) + norm.eps).rsqrt()


def normalized(norm: Normalization | None, x: Tensor) -> Tensor:
    """γ ⊙ (x - mean x) / σ + β, [..., D]."""
    x = divided(norm, x)
    if norm is None:
        return x
    x = x * exact(norm.scale)
    return x if norm.shift is None else x + exact(norm.shift)
