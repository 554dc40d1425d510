"""What a layer multiplies its heads' outputs with before W_O, and how that is said."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

Held = Literal["gate", "norm", "scale", "after", "over", "head", "pool"]
"""A gate that is computed from what the layer reads (Qiu et al. 2025, arXiv:2505.06708), the γ / σ
of an RMS normalization (BitNet; Ma et al. 2024, arXiv:2402.17764), learned or constant scales; and
behind W_O the γ / σ of an RMS normalization (Gemma 2, OLMo 2), or the σ of the normalizations over
the sums (post-norm layers); and what an LM head of several layers does between its matrices, or a
classifier's pooler before its labels."""

_SAID = {
    "gate": "The gate that each head's output is multiplied with before W_O",
    "norm": "The scale of the normalization between heads and W_O",
    "after": "The scale of the normalization between W_O and the residual stream",
    "head": "What the LM head's activation leaves of each channel, with its normalization's scale,",
    "pool": "What the activation of the classifier's pooler leaves of each channel",
    "over": "The scale of every normalization after a sum (σ at the row that is read)",
}


def held_notes(kinds: Collection[Held]) -> Iterator[str]:
    """What is held at its value where a sum over heads is split; a constant needs no word."""
    for kind, what in _SAID.items():
        if kind in kinds:
            yield f"{what} is held at its value here."
