"""``attnviz.attend``: scaled dot-product attention that shows its weights block by block.

``softmax(Q Kᵀ / √d + M) V`` (Vaswani et al. 2017, arXiv:1706.03762) on tensors, as
:mod:`attnviz.attention.blocks` computes it for all models. Without observers the same result comes
from PyTorch's own fused kernel.

Notation: B batch, H query heads, G key/value heads, T queries, S keys, d head width.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from attnviz.attention.blocks import UNNAMED, Attended, attend_unchecked
from attnviz.core.heads import Site
from attnviz.core.interface import interface
from attnviz.core.source import Cut, Donor, Gate, Observer


@interface
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    padding: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    dropout: float = 0.0,
    cuts: Cut | None = None,
    gate: Gate | None = None,
    donors: Sequence[Donor] = (),
    residual: Tensor | None = None,
    site: Site = UNNAMED,
    observers: Sequence[Observer] = (),
    block_rows: int | None = None,
) -> Attended:
    """Attend, and hand the weights to ``observers`` in blocks of query rows.

    Args:
        query: [B, H, T, d].
        key: [B, G, S, d] with H divisible by G; query head h reads key head h // (H / G).
        value: [B, G, S, d_v].
        mask: broadcastable to [B, H, T, S]; boolean (True = may attend) or additive (a value at or
            below half of its dtype's minimum blocks).
        padding: bool [B, S], True for real keys.
        bias: additive position bias, broadcastable to [B, H, T, S]; never blocks.
        causal: query i sees keys up to i + S - T, so that the last query sees every key.
        window: a query sees only keys less than ``window`` positions away (in the causal sense when
            ``causal``, otherwise on both sides).
        scale: factor on the scores, 1/√d by default.
        softcap: c · tanh(scores / c) before bias and mask (Gemma 2, arXiv:2408.00118).
        sinks: [H], learned scores of a key without a value that every row may rest on (GPT-OSS,
            arXiv:2508.10925); rows then sum to less than 1.
        dropout: probability, on the weights after softmax; observers see them before.
        cuts: edges whose weights are cut; observers see what is left of them.
        gate: what passes of each head's output, and what takes its place; with shares for n · B
            items the output has as many.
        donors: what another run gives in place of queries, keys, values, weights or outputs;
            before the gate, and as many items as it.
        residual: [B, T, D], what goes past attention to each query; only handed to observers.
        site: named in the blocks that observers get.
        observers: each gets every block, in order of the rows.
        block_rows: query rows per block; chosen from the sizes by default. It changes memory and
            time, not the result.

    Returns:
        The output and the rows that had no key to attend to. Softmax is computed in float32, or in
        float64 for float64 inputs.

    Raises:
        ValueError: shapes that do not fit together, named with their sizes.
        ModelError: weights that observers would see are not numbers.
    """
    return attend_unchecked(
        query, key, value, mask=mask, padding=padding, bias=bias, causal=causal, window=window,
        scale=scale, softcap=softcap, sinks=sinks, dropout=dropout, cuts=cuts, gate=gate,
        donors=donors, residual=residual, site=site, observers=observers, block_rows=block_rows,
    )  # fmt: skip
