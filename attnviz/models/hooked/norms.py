"""Layer and RMS normalization of a hooked model: known by what they compute, not by name."""

from __future__ import annotations

from torch import Tensor, nn

from attnviz.core.weights import Normalization
from attnviz.models.hooked.agreement import is_low

TOLERANCE = 1e-5
"""Largest difference of a sum, relative to its largest number, that counts as none."""

TOLERANCE_LOW = 2e-2
"""The same for float16 and bfloat16, in which the model rounds every sum."""

_EPSILONS = ("eps", "variance_epsilon", "epsilon")
"""Where normalizations keep their ε."""

_UNNAMED = (1e-5, 1e-6, 1e-8, 0.0)
"""What ε may be where a normalization without weights does not name it (OLMo)."""


def normalization(module: nn.Module, entered: Tensor, left: Tensor) -> Normalization | None:
    """γ, β, ε and whether the mean goes, if the module makes what left it of what entered.

    Returns None if it computes anything else.
    """
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    named = [float(getattr(module, name)) for name in _EPSILONS if hasattr(module, name)][:1]
    if weight is None and bias is None and entered.shape == left.shape:
        scales, epsilons = [entered.new_ones(entered.shape[-1])], named or list(_UNNAMED)
    elif isinstance(weight, Tensor) and weight.shape == entered.shape[-1:]:
        scales = [weight.detach(), 1 + weight.detach()]  # Gemma keeps γ - 1
        epsilons = named or [0.0]
    else:
        return None
    for scale in scales:
        for centred in (True, False):
            x = entered.to(scale.device).float()
            x = x - x.mean(-1, keepdim=True) if centred else x
            for eps in epsilons:
                made = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * scale.float()
                if close(made if bias is None else made + bias.float(), left):
                    shift = None if bias is None else bias.detach()
                    return Normalization(scale, eps, shift, centred)
    return None


def close(made: Tensor, given: Tensor) -> bool:
    """Whether two results are the same up to rounding."""
    tolerance = TOLERANCE_LOW if is_low(given.dtype) else TOLERANCE
    largest = given.float().abs().max().clamp_min(1e-30)
    made = made.float().to(given.device)
    return bool((made - given.float()).abs().max() <= tolerance * largest)
