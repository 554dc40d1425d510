"""What 1/√d is for: softmax with and without it as heads grow wider.

Queries and keys are drawn from a standard normal distribution, so that a score has variance d
(Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

WIDTHS = tuple(2**i for i in range(2, 11))
KEYS = 64
ROWS = 512


@dataclass(frozen=True)
class Softened:
    """Means over many rows of softmax weights.

    Attributes:
        entropy_bits: ``log2(keys)`` for uniform weights, 0 for a single one.
        top_weight: the largest weight of a row.
        gradient_norm: Frobenius norm of the Jacobian of the weights by the scores that enter
            softmax, ``diag(a) - a aᵀ``; 0 where softmax is saturated and nothing can be learned.
    """

    entropy_bits: float
    top_weight: float
    gradient_norm: float


@dataclass(frozen=True)
class ScalingRow:
    """One head width d: softmax of the raw scores, and of the scores times 1/√d."""

    d: int
    raw: Softened
    scaled: Softened


@dataclass(frozen=True, slots=True)
class Scaling:
    """The whole experiment, and how it was drawn."""

    rows: tuple[ScalingRow, ...]
    keys: int
    samples: int
    seed: int


def scaling(seed: int = 0, *, keys: int = KEYS, samples: int = ROWS) -> Scaling:
    """Run the experiment for d = 4 ... 1024 in float64."""
    import numpy as np

    rows = []
    for width in WIDTHS:
        draw = np.random.default_rng([seed, width])
        queries = draw.standard_normal((samples, width))
        keyed = draw.standard_normal((samples, keys, width))
        scores = np.einsum("nd,nkd->nk", queries, keyed)
        pair = []
        for factor in (1.0, 1 / math.sqrt(width)):
            shifted = scores * factor
            exponentials = np.exp(shifted - shifted.max(axis=1, keepdims=True))
            weights = exponentials / exponentials.sum(axis=1, keepdims=True)
            safe = np.where(weights > 0, weights, 1.0)
            squares = (weights**2).sum(axis=1)
            jacobian = squares - 2 * (weights**3).sum(axis=1) + squares**2
            pair.append(
                Softened(
                    entropy_bits=float(-(weights * np.log2(safe)).sum(axis=1).mean()),
                    top_weight=float(weights.max(axis=1).mean()),
                    gradient_norm=float(np.sqrt(np.maximum(jacobian, 0)).mean()),
                )
            )
        rows.append(ScalingRow(width, pair[0], pair[1]))
    return Scaling(tuple(rows), keys, samples, seed)
