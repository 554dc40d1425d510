"""Scaled dot-product attention that shows its weights block by block.

``softmax(Q Kᵀ / √d + M) V`` (Vaswani et al. 2017, arXiv:1706.03762), computed for a few query rows
at a time, so that an observer can look at every weight while memory stays linear in the length.
Without observers the same result comes from PyTorch's own fused kernel.

Notation: B batch, H query heads, G key/value heads, T queries, S keys, d head width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from attnviz.attention.donors import donated, fed
from attnviz.attention.masks import Masks, cut
from attnviz.core.heads import Site
from attnviz.core.interface import interface
from attnviz.core.source import Donor, Gate, Observer, Rows, Terms
from attnviz.errors import ModelError

BLOCK_ELEMENTS = 1 << 19
"""Weights per block of query rows: 2 MiB in float32, small enough for a processor's cache."""

BLOCK_ROWS = 24
"""Rows that a block has at least, for fewer leave matrix products slow; memory is O(H * S)."""

_UNNAMED = Site("encoder", 0)


class Attended(NamedTuple):
    """What :func:`attend` returns.

    Attributes:
        output: [B, H, T, d_v], in the dtype of ``value``; gated where there is a gate.
        empty: bool [B or 1, H or 1, T], True for query rows without any allowed key (zero weights,
            zero output); None when the masks cannot leave a row empty.
    """

    output: Tensor
    empty: Tensor | None


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
    gate: Gate | None = None,
    donors: Sequence[Donor] = (),
    residual: Tensor | None = None,
    site: Site = _UNNAMED,
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
    _check_shapes(query, key, value)
    query, key, value = fed(donors, query, key, value)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    masks = Masks(query.shape[2], key.shape[2], query.device, mask, padding, causal, window)
    if not observers and softcap is None and sinks is None:
        attended = _fused(query, key, value, masks, bias, scale, dropout)
    else:
        attended = _streamed(
            query, key, value, masks, bias, scale, softcap, sinks, dropout, gate, residual, site,
            observers, block_rows,
        )  # fmt: skip
    if donors:
        attended = attended._replace(output=donated(donors, attended.output, value))
    return attended if gate is None else attended._replace(output=_gated(attended.output, gate))


attend_unchecked: Callable[..., Attended] = attend.__wrapped__  # type: ignore[attr-defined]
"""The same for the layers of a model: checking types takes as long as attending a short text."""


def _streamed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    masks: Masks,
    bias: Tensor | None,
    scale: float,
    softcap: float | None,
    sinks: Tensor | None,
    dropout: float,
    gate: Gate | None,
    residual: Tensor | None,
    site: Site,
    observers: Sequence[Observer],
    block_rows: int | None,
) -> Attended:
    """Block by block, each shown to the observers."""
    batch, heads, length, width = query.shape
    groups, key_length = key.shape[1:3]
    tracked = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (query, key, value, masks.mask, bias)
    )
    extras = tuple(extra for extra in (bias, masks.additive) if extra is not None)
    terms = Terms(query, key, value, scale, softcap, extras, sinks)
    query, key = _widened(query, key)
    exact = query.dtype in (torch.float32, torch.float64)
    finite = exact and bias is None and masks.additive is None
    row_elements = batch * heads * key_length
    blocks = _blocks(row_elements, length, block_rows)
    scratch = _Scratch(reuse=not tracked)
    largest = blocks[0][1] * row_elements
    all_keys, all_values = key.flatten(0, 1), value.flatten(0, 1)  # [B * G, S, d]
    # [B, T, H, d_v] in memory, as the fused kernel has it: joining the heads then costs nothing
    output = value.new_empty(batch, length, heads, value.shape[-1]).transpose(1, 2)
    empties = []
    for start, stop in blocks:
        allowed, keys, free, empty = masks.block(start, stop)
        k, v = all_keys[:, keys], all_values[:, keys]
        shape = (batch, heads, stop - start, k.shape[1])
        # [B, H, r, d] -> [B * G, H/G * r, d]: the heads that share a key stand below each other
        stacked = (batch * groups, heads // groups * (stop - start))
        space = scratch.take("query", (*shape[:3], width), query)
        q = torch.mul(query[:, :, start:stop], scale if exact else 1, out=space)
        q = q.reshape(*stacked, width)
        space = scratch.take("scores", (*stacked, shape[3]), q, largest)
        scores = torch.bmm(q, k.mT, out=space).view(shape)
        scores = scores if exact else scores.to(torch.float32).mul_(scale)
        if softcap is not None:
            scores = scores.div_(softcap).tanh_().mul(softcap)
        for extra in extras:
            scores = scores.add_(cut(extra, start, stop, keys))
        scores = _blocked(scores, allowed, free, scratch)
        space = scratch.take("weights", shape, scores, largest)
        weights = torch.softmax(scores, dim=-1, out=space)
        if sinks is not None:  # e^s / (Σ e^s + e^sink) = softmax(s) · σ(log Σ e^s - sink)
            total = scores.logsumexp(-1, keepdim=True)  # [B, H, r, 1]
            weights = weights * torch.sigmoid(total - sinks.to(scores.dtype)[:, None, None])
        if empty is not None and empty.any():
            weights = weights.masked_fill(empty[..., None], 0.0)
        if observers:
            check_numbers(weights, site)
        logits = scores.detach() if finite else None
        shown = value[:, :, keys].detach()
        past = None if residual is None else residual[:, start:stop].detach()
        block = Rows(
            site, start, keys.start, weights.detach(), allowed, logits, shown, sinks is not None,
            past, gate, terms,
        )  # fmt: skip
        for observer in observers:
            observer.observe(block)
        weights = F.dropout(weights, dropout) if dropout else weights
        space = scratch.take("mixed", (*stacked, v.shape[-1]), v)
        mixed = torch.bmm(weights.to(v.dtype).view(*stacked, shape[3]), v, out=space)
        output[:, :, start:stop] = mixed.view(*shape[:3], v.shape[-1])
        empties.append(empty)
    if not masks.may_be_empty:
        return Attended(output, None)
    return Attended(output, torch.cat([e for e in empties if e is not None], dim=2))


def _widened(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys whose products are not rounded to half precision, on a CPU.

    Rounded products put scores off by half a percent; linear memory and little time mend that.
    """
    if query.dtype in (torch.float16, torch.bfloat16) and query.device.type == "cpu":
        return query.float(), key.float()
    return query, key


def check_numbers(weights: Tensor, site: Site) -> None:
    """Refuse weights that are not numbers; scores would leave such rows out without a word.

    Softmax spreads one NaN or infinite score over its row, so one column tells of all of them, and
    a NaN in a token's state reaches every later layer.

    Args:
        weights: [B, H, r, s], rows of softmax.
        site: the layer, for the message.

    Raises:
        ModelError: names the layer.
    """
    if not math.isfinite(weights[..., :1].sum().item()):
        raise ModelError(
            f"attention weights of {site.kind} layer {site.layer} are not numbers (NaN): the "
            "model's weights are damaged, or too large for half precision"
        )


def _gated(output: Tensor, gate: Gate) -> Tensor:
    """ξ z + (1 - ξ) fill for every head; the layout in memory stays as it is."""
    share = gate.share.to(output.dtype)[..., None, None]  # [H, 1, 1] or [n * B, H, 1, 1]
    if share.ndim == 3:
        passed = output * share
    else:  # [n, B, H, 1, 1] * [B, H, T, d_v]
        passed = (output * share.reshape(-1, *output.shape[:2], 1, 1)).flatten(0, 1)
    if gate.fill is None:
        return passed
    fill = gate.fill.to(output.dtype)
    fill = fill[:, None] if fill.ndim == 2 else fill.transpose(1, 2)  # [(B,) H, 1 or T, d_v]
    return passed + (1 - share) * fill


class _Scratch:
    """Memory that blocks write into one after the other; fresh tensors where gradients need them.

    Fresh memory for every block would cost as much as the arithmetic (page faults), and leave
    holes behind.
    """

    def __init__(self, *, reuse: bool) -> None:
        self.reuse = reuse
        self._flat: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor, room: int = 0) -> Tensor | None:
        """A tensor to use as ``out=``, or None for a fresh one.

        Args:
            name: of the memory, which is the same for all blocks.
            shape: what is needed now.
            like: gives dtype and device.
            room: elements needed at most, where that is more than now.
        """
        if not self.reuse:
            return None
        size = math.prod(shape)
        if name not in self._flat:
            self._flat[name] = like.new_empty(max(size, room))
        return self._flat[name][:size].view(shape)


def _check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if not query.ndim == key.ndim == value.ndim == 4:
        raise ValueError(f"attend needs [batch, heads, length, width] tensors, got {shapes}")
    if query.shape[-1] != key.shape[-1] or key.shape[:3] != value.shape[:3]:
        raise ValueError(f"query, key and value do not fit together: {shapes}")
    if query.shape[0] != key.shape[0] or query.shape[1] % key.shape[1]:
        raise ValueError(f"query heads must be a multiple of key heads in one batch: {shapes}")


def _blocks(row_elements: int, length: int, block_rows: int | None) -> list[tuple[int, int]]:
    """(start, stop) of each block of query rows, the first one being as long as any."""
    rows = block_rows or max(BLOCK_ROWS, BLOCK_ELEMENTS // max(1, row_elements))
    return [(start, min(start + rows, length)) for start in range(0, length, rows)]


def _blocked(scores: Tensor, allowed: Tensor | None, free: int, scratch: _Scratch) -> Tensor:
    """Scores as low as can be where not allowed.

    Low and not -inf, so that a weight of zero times its score is zero.
    """
    if allowed is None:
        return scores
    tail = allowed[..., free:]
    limit = torch.full_like(tail, torch.finfo(scores.dtype).min, dtype=scores.dtype)
    limit.masked_fill_(tail, math.inf)
    if scratch.reuse:  # several times faster than masked_fill_
        torch.minimum(scores[..., free:], limit, out=scores[..., free:])
    else:
        scores = torch.minimum(scores, F.pad(limit, (free, 0), value=math.inf))
    return scores


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    masks: Masks,
    bias: Tensor | None,
    scale: float,
    dropout: float,
) -> Attended:
    """The same result from ``scaled_dot_product_attention``, which hands out no weights."""
    empty = None
    additive: Tensor | None = None
    if not (masks.fused_causal and bias is None):
        allowed = masks.whole()
        if allowed is not None and masks.may_be_empty:
            empty = ~allowed.any(-1)
        extras = [extra for extra in (bias, masks.additive) if extra is not None]
        additive = allowed
        if extras:
            additive = sum(extras[1:], start=extras[0]).to(query.dtype)
            if allowed is not None:
                additive = additive.masked_fill(~allowed, -math.inf)
    output = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=additive,
        is_causal=masks.fused_causal and bias is None,
        dropout_p=dropout,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    if empty is not None and empty.any():
        output = output.masked_fill(empty[..., None], 0.0)
    return Attended(output, empty)
