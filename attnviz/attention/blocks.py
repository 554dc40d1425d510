"""Attention block by block: the one place that computes weights, on NumPy as on torch.

For a few query rows at a time, so that an observer can look at every weight while memory stays
linear in the length. :func:`~attnviz.attention.attend.attend` says what the parameters are.

Notation: B batch, H query heads, G key/value heads, T queries, S keys, d head width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attnviz.attention.cuts import applied, cut_block
from attnviz.attention.donors import donated, fed
from attnviz.attention.masks import Masks, cut
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.cuts import Cut
from attnviz.core.heads import Site
from attnviz.core.source import Donor, Gate, Observer, Rows, Terms
from attnviz.errors import ModelError

BLOCK_ELEMENTS = 1 << 19
"""Weights per block of query rows: 2 MiB in float32, small enough for a processor's cache."""

BLOCK_ROWS = 24
"""Rows that a block has at least, for fewer leave matrix products slow; memory is O(H * S)."""

UNNAMED = Site("encoder", 0)
"""Attention outside of any model."""


class Attended(NamedTuple):
    """What attention gives.

    Attributes:
        output: [B, H, T, d_v], in the dtype of ``value``; gated where there is a gate.
        empty: bool [B or 1, H or 1, T], True for query rows without any allowed key (zero weights,
            zero output); None when the masks cannot leave a row empty.
    """

    output: Array
    empty: Array | None


def attend_unchecked(
    query: Array,
    key: Array,
    value: Array,
    *,
    mask: Array | None = None,
    padding: Array | None = None,
    bias: Array | None = None,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    dropout: float = 0.0,
    cuts: Cut | None = None,
    gate: Gate | None = None,
    donors: Sequence[Donor] = (),
    residual: Array | None = None,
    site: Site = UNNAMED,
    observers: Sequence[Observer] = (),
    block_rows: int | None = None,
) -> Attended:
    """:func:`~attnviz.attention.attend.attend` for the layers of a model, on tensors or NumPy.

    Checking types takes as long as attending a short text.
    """
    _check_shapes(query, key, value)
    query, key, value = fed(donors, query, key, value)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    masks = Masks(query.shape[2], key.shape[2], query, mask, padding, causal, window)
    plain = not observers and softcap is None and sinks is None and cuts is None
    if plain and not isinstance(query, np.ndarray):
        from attnviz.attention.fused import attend_fused

        fused = attend_fused(query, key, value, masks, bias, scale, dropout)
        attended = Attended(*fused)
    else:
        attended = _streamed(
            query, key, value, masks, bias, scale, softcap, sinks, dropout, cuts, gate, residual,
            site, observers, block_rows,
        )  # fmt: skip
    if donors:
        attended = attended._replace(output=donated(donors, attended.output, value))
    return attended if gate is None else attended._replace(output=_gated(attended.output, gate))


def _streamed(
    query: Array,
    key: Array,
    value: Array,
    masks: Masks,
    bias: Array | None,
    scale: float,
    softcap: float | None,
    sinks: Array | None,
    dropout: float,
    cuts: Cut | None,
    gate: Gate | None,
    residual: Array | None,
    site: Site,
    observers: Sequence[Observer],
    block_rows: int | None,
) -> Attended:
    """Block by block, each shown to the observers."""
    on = arrays.of(query)
    xp = on.xp
    batch, heads, length, width = query.shape
    groups, key_length = key.shape[1:3]
    tracked = on.tracked(query, key, value, masks.mask, bias)
    extras = tuple(extra for extra in (bias, masks.additive) if extra is not None)
    terms = Terms(query, key, value, scale, softcap, extras, sinks)
    query, key = _widened(query, key)
    exact = query.dtype in (on.float32, on.float64)
    finite = exact and bias is None and masks.additive is None
    row_elements = batch * heads * key_length
    blocks = _blocks(row_elements, length, block_rows)
    scratch = _Scratch(reuse=not tracked)
    largest = blocks[0][1] * row_elements
    all_keys = key.reshape(batch * groups, key_length, width)
    all_values = value.reshape(batch * groups, key_length, -1)
    # [B, T, H, d_v] in memory, as the fused kernel has it: joining the heads then costs nothing
    shape = (batch, length, heads, value.shape[-1])
    output = on.empty(shape, value.dtype, value).swapaxes(1, 2)
    empties = []
    for start, stop in blocks:
        (allowed, keys, free, empty), lost = cut_block(cuts, masks, start, stop, site)
        k, v = all_keys[:, keys], all_values[:, keys]
        shape = (batch, heads, stop - start, k.shape[1])
        # [B, H, r, d] -> [B * G, H/G * r, d]: the heads that share a key stand below each other
        stacked = (batch * groups, heads // groups * (stop - start))
        space = scratch.take("query", (*shape[:3], width), query)
        q = xp.multiply(query[:, :, start:stop], scale if exact else 1, out=space)
        q = q.reshape(*stacked, width)
        space = scratch.take("scores", (*stacked, shape[3]), q, largest)
        scores = on.matmul(q, k.swapaxes(1, 2), space).reshape(shape)
        scores = _capped(scores, None if exact else scale, softcap)
        for extra in extras:
            scores += cut(extra, start, stop, keys)
        scores = _blocked(scores, allowed, free, scratch)
        space = scratch.take("weights", shape, scores, largest)
        weights = on.softmax(scores, space)
        if sinks is not None:  # e^s / (Σ e^s + e^sink) = softmax(s) · σ(log Σ e^s - sink)
            total = on.log_sum_exp(scores)  # [B, H, r, 1]
            weights = weights * on.sigmoid(total - on.cast(sinks, scores.dtype)[:, None, None])
        if empty is not None and empty.any():
            weights = xp.where(empty[..., None], 0.0, weights)
        weights = applied(cuts, weights, scores, allowed, lost, keys)
        if observers:
            check_numbers(weights, site)
        block = Rows(
            site,
            start,
            keys.start,
            on.detached(weights),
            allowed,
            on.detached(scores) if finite and (cuts is None or cuts.masks) else None,
            on.detached(value[:, :, keys]),
            sinks is not None,
            None if residual is None else on.detached(residual[:, start:stop]),
            gate,
            terms,
        )
        for observer in observers:
            observer.observe(block)
        weights = on.dropout(weights, dropout) if dropout else weights
        space = scratch.take("mixed", (*stacked, v.shape[-1]), v)
        mixed = on.matmul(on.cast(weights, v.dtype).reshape(*stacked, shape[3]), v, space)
        output[:, :, start:stop] = mixed.reshape(*shape[:3], v.shape[-1])
        empties.append(empty)
    if any(empty is None for empty in empties):
        return Attended(output, None)
    return Attended(output, xp.concatenate(empties, 2))


def _widened(query: Array, key: Array) -> tuple[Array, Array]:
    """Queries and keys whose products are not rounded to half precision, on a CPU.

    Rounded products put scores off by half a percent; linear memory and little time mend that.
    """
    on = arrays.of(query)
    if on.is_half(query) and on.on_cpu(query):
        return on.cast(query, on.float32), on.cast(key, on.float32)
    return query, key


def _capped(scores: Array, scale: float | None, softcap: float | None) -> Array:
    """Scores in float32 or better, scaled where the queries were not, and capped."""
    on = arrays.of(scores)
    if scale is not None:
        scores = on.cast(scores, on.float32)
        scores *= scale
    return scores if softcap is None else on.xp.tanh(scores / softcap) * softcap


def check_numbers(weights: Array, site: Site) -> None:
    """Refuse weights that are not numbers; scores would leave such rows out without a word.

    Softmax spreads one NaN or infinite score over its row, so one column tells of all of them, and
    a NaN in a token's state reaches every later layer.

    ``weights`` [B, H, r, s], rows of softmax.
    """
    if not math.isfinite(weights[..., :1].sum().item()):
        raise ModelError(
            f"attention weights of {site.kind} layer {site.layer} are not numbers (NaN): the "
            "model's weights are damaged, or too large for half precision"
        )


def _gated(output: Array, gate: Gate) -> Array:
    """ξ z + (1 - ξ) fill for every head; the layout in memory stays as it is."""
    on = arrays.of(output)
    share: Array = on.cast(gate.share, output.dtype)[
        ..., None, None
    ]  # [H, 1, 1] or [n * B, H, 1, 1]
    if share.ndim == 3:
        passed = output * share
    else:  # [n, B, H, 1, 1] * [B, H, T, d_v]
        passed = output * share.reshape(-1, *output.shape[:2], 1, 1)
        passed = passed.reshape(-1, *output.shape[1:])
    if gate.fill is None:
        return passed
    fill: Array = on.cast(gate.fill, output.dtype)
    fill = fill[:, None] if fill.ndim == 2 else fill.swapaxes(1, 2)  # [(B,) H, 1 or T, d_v]
    return passed + (1 - share) * fill


class _Scratch:
    """Memory that blocks write into one after the other; fresh tensors where gradients need them.

    Fresh memory for every block would cost as much as the arithmetic (page faults), and leave
    holes behind.
    """

    def __init__(self, *, reuse: bool) -> None:
        self.reuse = reuse
        self._flat: dict[str, Array] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Array, room: int = 0) -> Array | None:
        """A tensor to use as ``out=``, or None for a fresh one."""
        if not self.reuse:
            return None
        size = math.prod(shape)
        if name not in self._flat:
            self._flat[name] = arrays.of(like).empty((max(size, room),), like.dtype, like)
        return self._flat[name][:size].reshape(shape)


def _blocks(row_elements: int, length: int, block_rows: int | None) -> list[tuple[int, int]]:
    """(start, stop) of each block of query rows, the first one being as long as any."""
    rows = block_rows or max(BLOCK_ROWS, BLOCK_ELEMENTS // max(1, row_elements))
    return [(start, min(start + rows, length)) for start in range(0, length, rows)]


def _blocked(scores: Array, allowed: Array | None, free: int, scratch: _Scratch) -> Array:
    """Scores as low as can be where not allowed.

    Low and not -inf, so that a weight of zero times its score is zero.
    """
    if allowed is None:
        return scores
    tail = allowed[..., free:]
    on = arrays.of(scores)
    limit = on.limits(tail, scores.dtype)
    if scratch.reuse:  # several times faster than masked_fill_
        on.xp.minimum(scores[..., free:], limit, out=scores[..., free:])
    else:
        scores = on.xp.minimum(scores, on.padded_left(limit, free, math.inf))
    return scores


def _check_shapes(query: Array, key: Array, value: Array) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if not query.ndim == key.ndim == value.ndim == 4:
        raise ValueError(f"attend needs [batch, heads, length, width] tensors, got {shapes}")
    if query.shape[-1] != key.shape[-1] or key.shape[:3] != value.shape[:3]:
        raise ValueError(f"query, key and value do not fit together: {shapes}")
    if query.shape[0] != key.shape[0] or query.shape[1] % key.shape[1]:
        raise ValueError(f"query heads must be a multiple of key heads in one batch: {shapes}")
