"""Attention with real numbers: a tiny layer in float64, matrix by matrix; and what 1/√d is for.

The formula is Vaswani et al. 2017 (arXiv:1706.03762), section 3.2. Nothing here touches torch, so
the numbers are a second opinion on ``attnviz.attention.layers``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from attnviz.features.shapes.result import HeadMatrices, ScalingAnswer, ScalingRow, Softened

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnviz.features.shapes.tiny import TinyInput

    Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class HeadNumbers:
    """One head, matrix by matrix, as :class:`HeadMatrices` holds it; -inf where blocked.

    ``softmaxed`` are the weights as softmax gives them, before dropout or a late mask.
    """

    q: Matrix
    k: Matrix
    v: Matrix
    scores: Matrix
    scaled: Matrix
    masked: Matrix
    weights: Matrix
    weights_unscaled: Matrix
    output: Matrix
    softmaxed: Matrix

    @property
    def entropy_bits(self) -> Matrix:
        """Entropy of each row of weights, in bits."""
        return entropy(self.softmaxed)

    @property
    def top(self) -> Matrix:
        """Largest weight of each row."""
        return self.softmaxed.max(axis=1)

    @property
    def entropy_bits_unscaled(self) -> Matrix:
        """Entropy of each row without the scale, in bits."""
        return entropy(self.weights_unscaled)

    @property
    def raw_top(self) -> Matrix:
        """Largest weight of each row without the scale."""
        return self.weights_unscaled.max(axis=1)


@dataclass(frozen=True)
class NumericWalk:
    """A whole layer in numbers."""

    tiny: TinyInput  # the input and the weight matrices
    scale: float  # 1/√d, or what the input says
    # every head. concat: [T, H·d_v]. output: Y [T, D], or ``concat`` without a W_O.
    heads: tuple[HeadNumbers, ...]
    concat: Matrix
    output: Matrix
    contributions: tuple[Matrix, ...] = field(default=())
    blocked: int = 0  # rows without any allowed key. variant: what was done otherwise.
    variant: str = ""


def entropy(weights: Matrix) -> Matrix:
    """Entropy of each row in bits; NaN where weights are."""
    import numpy as np

    safe = np.where(weights == 0, 1.0, weights)
    return -(weights * np.log2(safe)).sum(axis=1) + 0.0


def softmax(scores: Matrix) -> Matrix:
    """Take softmax over the last axis; a row of -inf becomes NaN, as torch's does."""
    import numpy as np

    with np.errstate(invalid="ignore"):  # -inf less -inf
        exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
        result: Matrix = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return result


DROPOUT, SHIFT = 0.5, 100.0
"""The chance of a weight to be dropped; what moves a row beyond float32, whose most is e^88.7."""


def shifted_row(walked: NumericWalk) -> Matrix:
    """Work the last row of head 0 [S, 5], moved up by 100, without and with its maximum away."""
    import numpy as np

    scores = (walked.heads[0].masked[-1] + SHIFT).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        naive, safe = np.exp(scores), np.exp(scores - scores.max())
        columns = [scores, naive, naive / naive.sum(), safe, safe / safe.sum()]
    return np.stack(columns, 1).astype(np.float64)


def compute(tiny: TinyInput, variant: str = "", seed: int = 0) -> NumericWalk:
    """Walk a small input through its layer; ``variant`` as :data:`~.settings.VARIANTS` has them."""
    import numpy as np

    keep = np.random.default_rng(seed)
    q, k, v = _heads_of(tiny)
    allowed = allowed_keys(tiny, q.shape[1], k.shape[1])
    scale = tiny.scale if tiny.scale is not None else 1 / math.sqrt(q.shape[-1])
    group = len(q) // len(k)
    heads = []
    for h, query in enumerate(q):
        key, value = k[h // group], v[h // group]
        raw = query @ key.T
        scaled = raw * scale
        fill = -1e9 if variant == "-1e9" else -np.inf
        scored = allowed | (variant == "after")
        masked = np.where(scored, scaled, fill)
        weights = softmaxed = softmax(masked)
        if variant == "after":
            weights = weights * allowed
        elif variant == "dropout":
            weights = weights * (keep.random(weights.shape) >= DROPOUT) / (1 - DROPOUT)
        unscaled, output = softmax(np.where(scored, raw, fill)), weights @ value
        parts = raw, scaled, masked, weights, unscaled, output, softmaxed
        heads.append(HeadNumbers(query, key, value, *parts))
    output = concat = np.concatenate([head.output for head in heads], axis=1)
    contributions: tuple[Matrix, ...] = ()
    if tiny.w_o is not None:
        pairs = zip(heads, np.split(tiny.w_o, len(heads)), strict=True)
        contributions = tuple(head.output @ rows for head, rows in pairs)
        output = concat @ tiny.w_o + tiny.bias("b_o")
    blocked = int((~allowed.any(1)).sum())
    return NumericWalk(tiny, scale, tuple(heads), concat, output, contributions, blocked, variant)


def _heads_of(tiny: TinyInput) -> tuple[Matrix, Matrix, Matrix]:
    """Q [H, T, d], K [G, S, d] and V [G, S, d_v]."""
    if tiny.direct is not None:
        return tiny.direct
    if tiny.x is None or tiny.w_q is None or tiny.w_k is None or tiny.w_v is None:
        raise ValueError("a tiny input needs either q, k, v or x and its matrices")
    source = tiny.x if tiny.context is None else tiny.context
    return (
        _split(tiny.x @ tiny.w_q + tiny.bias("b_q"), tiny.heads),
        _split(source @ tiny.w_k + tiny.bias("b_k"), tiny.kv_heads),
        _split(source @ tiny.w_v + tiny.bias("b_v"), tiny.kv_heads),
    )


def _split(x: Matrix, heads: int) -> Matrix:
    """[T, H·d] -> [H, T, d]."""
    return x.reshape(x.shape[0], heads, -1).transpose(1, 0, 2)


def allowed_keys(tiny: TinyInput, queries: int, keys: int) -> NDArray[np.bool_]:
    """Bool [T, S]: which keys each query may attend to."""
    import numpy as np

    i = np.arange(queries)[:, None] + keys - queries
    j = np.arange(keys)[None]
    allowed: Any = np.ones((queries, keys), dtype=bool)
    if tiny.causal:
        allowed &= j <= i
    if tiny.window is not None:
        allowed &= np.abs(i - j) < tiny.window
    if tiny.mask is not None:
        allowed &= tiny.mask
    return allowed


WIDTHS = tuple(2**i for i in range(2, 11))
KEYS = 64
ROWS = 512


def scaling(seed: int = 0, *, keys: int = KEYS, samples: int = ROWS) -> ScalingAnswer:
    """Run the experiment for d = 4 ... 1024 in float64.

    With keys of standard normal numbers the scores of a query are normal, its length being their
    deviation: so scores are drawn, and not d numbers of every key.
    """
    import numpy as np

    rows = []
    for width in WIDTHS:
        draw = np.random.default_rng([seed, width])
        queries = draw.standard_normal((samples, width))
        lengths = np.linalg.norm(queries, axis=1, keepdims=True)
        scores = lengths * draw.standard_normal((samples, keys))
        pair = []
        for factor in (1.0, 1 / math.sqrt(width)):
            weights = softmax(scores * factor)
            squares = (weights**2).sum(axis=1)
            jacobian = squares - 2 * (weights**3).sum(axis=1) + squares**2
            pair.append(
                Softened(
                    entropy_bits=float(entropy(weights).mean()),
                    top_weight=float(weights.max(axis=1).mean()),
                    gradient_norm=float(np.sqrt(np.maximum(jacobian, 0)).mean()),
                )
            )
        rows.append(ScalingRow(width, pair[0], pair[1]))
    return ScalingAnswer(title="", rows=tuple(rows), keys=keys, samples=samples, seed=seed)


def head_matrices(head: Any) -> HeadMatrices:
    """Write one head of a numeric walk, its arrays as rows."""
    return HeadMatrices(**{f.name: rows_of(getattr(head, f.name)) for f in fields(HeadMatrices)})


def rows_of(array: Any) -> Any:
    """Make tuples of an array; None for infinities and NaN, which JSON has not."""
    if not isinstance(array, list):
        array = array.tolist()
    if array and isinstance(array[0], list):
        return tuple(map(rows_of, array))
    return tuple(value if math.isfinite(value) else None for value in array)
