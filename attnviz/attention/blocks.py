"""Attention block by block: the one place that computes weights, on NumPy as on torch.

For a few query rows at a time, so that an observer can look at every weight while memory stays
linear in the length. :func:`~attnviz.attention.layers.attend` says what the parameters are.

Notation: B batch, H query heads, G key/value heads, T queries, S keys, d head width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attnviz.attention.interventions import applied, cut_block, donated, fed
from attnviz.attention.masks import BlockMask, Masks, cut
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Site
from attnviz.core.source import Cut, Donor, Gate, Observer, Rows, Terms
from attnviz.core.threads import holding
from attnviz.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

BLOCK_ELEMENTS = 1 << 19
"""Weights per block of query rows: 2 MiB in float32, small enough for a processor's cache."""

DEVICE_ELEMENTS = 1 << 26
"""The same on a GPU, at most and by its free memory: what counts there is to start few kernels."""

BLOCK_ROWS = 24
"""Rows that a block has at least, for fewer leave matrix products slow; memory is O(H * S)."""

UNNAMED = Site("encoder", 0)
"""Attention outside of any model."""


class Attended(NamedTuple):
    """What attention gives."""

    output: Array  # [B, H, T, d_v], in the dtype of ``value``; gated where there is a gate
    # bool [B or 1, H or 1, T], True for query rows without any allowed key (zero weights, zero
    # output); None when the masks cannot leave a row empty
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
    """:func:`~attnviz.attention.layers.attend` for the layers of a model, on tensors or NumPy.

    Checking types takes as long as attending a short text.
    """
    _check_shapes(query, key, value)
    query, key, value = fed(donors, query, key, value)
    padding = None if padding is None else padding[: len(query)]  # runs may not be told apart yet
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    masks = Masks(query.shape[2], key.shape[2], query, mask, padding, causal, window)
    plain = not observers and softcap is None and sinks is None and cuts is None
    if plain and not isinstance(query, np.ndarray):
        attended = _attend_fused(query, key, value, masks, bias, scale, dropout)
    else:
        attended = _streamed(
            query, key, value, masks, bias, scale, softcap, sinks, dropout, cuts, gate, residual,
            site, observers, block_rows,
        )  # fmt: skip
    if donors:
        attended = attended._replace(output=donated(donors, attended.output, value))
    return attended if gate is None else attended._replace(output=_gated(attended.output, gate))


def _attend_fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    masks: Masks,
    bias: Tensor | None,
    scale: float,
    dropout: float,
) -> Attended:
    """Return the same result from ``scaled_dot_product_attention``, which hands out no weights."""
    from torch.nn.functional import scaled_dot_product_attention

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
    output = scaled_dot_product_attention(
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
    lib = arrays.of(query)
    xp = lib.xp
    batch, heads, length, width = query.shape
    groups, key_length = key.shape[1:3]
    tracked, on_cpu = lib.tracked(query, key, value, masks.mask, bias), lib.on_cpu(query)
    extras = tuple(extra for extra in (bias, masks.additive) if extra is not None)
    terms = Terms(query, key, value, scale, softcap, extras, sinks)
    query, key = _widened(query, key, tracked=tracked)
    exact = not lib.is_half(query)
    finite = exact and bias is None and masks.additive is None
    run, row_elements = _RUN.get() or _Pass(), batch * heads * key_length
    blocks = _blocks(run.elements(query), row_elements, length, block_rows)
    scratch = _Scratch(reuse=on_cpu and not tracked)
    largest = blocks[0][1] * row_elements
    all_keys = key.reshape(batch * groups, key_length, width)
    all_values = value.reshape(batch * groups, key_length, -1)
    # [B, T, H, d_v] in memory, as the fused kernel has it: joining the heads then costs nothing
    output = lib.empty((batch, length, heads, value.shape[-1]), value.dtype, value).swapaxes(1, 2)
    empties = []
    for start, stop in blocks:
        part = masks.block if on_cpu or cuts is not None else partial(run.block, masks)
        (allowed, keys, free, empty), lost = cut_block(
            cuts, masks, part(start, stop), start, stop, site
        )
        k, v = all_keys[:, keys], all_values[:, keys]
        shape = (batch, heads, stop - start, k.shape[1])
        # [B, H, r, d] -> [B * G, H/G * r, d]: the heads that share a key stand below each other
        stacked = (batch * groups, heads // groups * (stop - start))
        space = scratch.take("query", (*shape[:3], width), query)
        q = xp.multiply(query[:, :, start:stop], scale if exact else 1, out=space)
        space = scratch.take("scores", (*stacked, shape[3]), q, largest)
        product = partial(lib.matmul, out=space) if exact else lib.exact_matmul
        scores = product(q.reshape(*stacked, width), k.swapaxes(1, 2)).reshape(shape)
        scores = _capped(scores, None if exact else scale, softcap)
        for extra in extras:
            scores += cut(extra, start, stop, keys)
        scores = _blocked(scores, allowed, free, run, tracked=tracked)
        space = scratch.take("weights", shape, scores, largest)
        weights = lib.softmax(scores, space)
        if sinks is not None:  # e^s / (Σ e^s + e^sink) = softmax(s) · σ(log Σ e^s - sink)
            log_odds = lib.log_sum_exp(scores) - lib.cast(sinks, scores.dtype)[:, None, None]
            weights = weights * lib.sigmoid(log_odds)
        if empty is not None and (not on_cpu or empty.any()):
            weights = xp.where(empty[..., None], 0.0, weights)
        weights = applied(cuts, weights, scores, allowed, lost, keys)
        if not all(not on_cpu and getattr(o, "checks_numbers", False) for o in observers):
            check_numbers(weights, site)
        block = Rows(
            site,
            start,
            keys.start,
            lib.detached(weights),
            allowed,
            lib.detached(scores) if finite and (cuts is None or cuts.masks) else None,
            lib.detached(value[:, :, keys]),
            sinks is not None,
            None if residual is None else lib.detached(residual[:, start:stop]),
            gate,
            terms,
        )
        for observer in observers:
            observer.observe(block)
        space = scratch.take("mixed", (*stacked, v.shape[-1]), v)
        weights = lib.dropout(weights, dropout) if dropout else weights
        mixed = lib.matmul(lib.cast(weights, v.dtype).reshape(*stacked, shape[3]), v, space)
        output[:, :, start:stop] = mixed.reshape(*shape[:3], v.shape[-1])
        empties.append(empty)
    may_be_empty = all(empty is not None for empty in empties)
    return Attended(output, xp.concatenate(empties, 2) if may_be_empty else None)


def _widened(query: Array, key: Array, *, tracked: bool) -> tuple[Array, Array]:
    """Get queries and keys whose products are not rounded to half precision, where a product would.

    Rounded products put scores off by half a percent; linear memory and little time mend that. A
    GPU may multiply such numbers exactly by itself.
    """
    lib = arrays.of(query)
    if lib.is_half(query) and (tracked or not lib.multiplies_exactly(query)):
        return lib.cast(query, lib.float32), lib.cast(key, lib.float32)
    return query, key


def _capped(scores: Array, scale: float | None, softcap: float | None) -> Array:
    """Scores in float32 or better, scaled where the queries were not, and capped."""
    lib = arrays.of(scores)
    if scale is not None:
        scores = lib.cast(scores, lib.float32)
        scores *= scale
    return scores if softcap is None else lib.xp.tanh(scores / softcap) * softcap


def check_numbers(weights: Array, site: Site) -> None:
    """Refuse weights that are not numbers; scores would leave such rows out without a word.

    Softmax spreads one NaN or infinite score over its row, so one column tells of all of them, and
    a NaN in a token's state reaches every later layer.

    ``weights`` [B, H, r, s], rows of softmax.
    """
    total, run = weights[..., :1].sum(), _RUN.get()
    if run is not None and not arrays.of(weights).on_cpu(weights):
        run.sums.append((site, total))
    elif not math.isfinite(total.item()):
        raise not_numbers(site)


def not_numbers(site: Site) -> ModelError:
    """Say that weights of a layer are no numbers."""
    return ModelError(
        f"attention weights of {site.kind} layer {site.layer} are not numbers (NaN): the "
        "model's weights are damaged, or too large for half precision"
    )


@dataclass
class _Pass:
    """What the layers of a pass have in common on a GPU, and what is looked at when it ends."""

    # blocks of masks by all that they depend on, with what must outlive that
    masks: dict[tuple[object, ...], tuple[BlockMask, object]] = field(default_factory=dict)
    # what scores may be at most, by the ``id`` of the mask
    limits: dict[tuple[int, object], Array] = field(default_factory=dict)
    # of the first columns of weights, finite where these are numbers
    sums: list[tuple[Site, Array]] = field(default_factory=list)
    _elements: int = 0
    _room: int = DEVICE_ELEMENTS

    def elements(self, like: Array) -> int:
        """Return the weights of a block of rows."""
        lib = arrays.of(like)
        if lib.on_cpu(like):
            return BLOCK_ELEMENTS
        self._elements = self._elements or lib.at_once(like, DEVICE_ELEMENTS)
        return max(self._elements, BLOCK_ELEMENTS)

    def block(self, masks: Masks, start: int, stop: int) -> BlockMask:
        """Give the masks' part for a block of rows, as an earlier layer with these masks had it."""
        lib, inputs = arrays.of(masks.like), (masks.mask, masks.padding)
        keyed = [None if x is None else (lib.address(x), *x.shape, x.dtype) for x in inputs]
        key = (masks.length, masks.key_length, masks.causal, masks.window, start, stop,
               getattr(masks.like, "device", None), *keyed)  # fmt: skip
        if key not in self.masks:
            block = masks.block(start, stop)
            self._room -= 0 if block.allowed is None else math.prod(block.allowed.shape)
            if self._room < 0:
                return block
            self.masks[key] = (block, inputs)
        return self.masks[key][0]

    def limit(self, allowed: Array, dtype: object) -> Array:
        """Return what scores may be at most; worked out once for a mask that layers share."""
        lib, key = arrays.of(allowed), (id(allowed), dtype)
        if not any(block.allowed is allowed for block, _ in self.masks.values()):
            return lib.limits(allowed, dtype)
        if key not in self.limits:
            self.limits[key] = lib.limits(allowed, dtype)
        return self.limits[key]

    def check(self) -> None:
        """Refuse a pass some of whose weights were not numbers: the host waits once."""
        totals = arrays.fetched([total for _, total in self.sums])
        for (site, _), total in zip(self.sums, totals, strict=True):
            if not math.isfinite(total):
                raise not_numbers(site)


_RUN: ContextVar[_Pass | None] = ContextVar("attnviz_pass", default=None)
"""The pass that runs in this thread or task."""


@contextmanager
def sharing() -> Iterator[None]:
    """Let the layers that attend inside the ``with`` block be those of one pass."""
    with holding(_RUN, _Pass()) as run:
        yield
        run.check()


def _gated(output: Array, gate: Gate) -> Array:
    """ξ z + (1 - ξ) fill for every head; the layout in memory stays as it is."""
    share, fill = gate.by_head(output)
    if share.ndim == 3:
        passed = output * share
    else:  # [n, B, H, 1, 1] * [B, H, T, d_v]
        passed = output * share.reshape(-1, *output.shape[:2], 1, 1)
        passed = passed.reshape(-1, *output.shape[1:])
    return passed if fill is None else passed + (1 - share) * fill


class _Scratch:
    """Memory that blocks write into one after the other; fresh tensors where gradients need them.

    Fresh memory for every block would cost as much as the arithmetic (page faults), and leave
    holes behind.
    """

    def __init__(self, *, reuse: bool) -> None:
        self.reuse = reuse
        self._flat: dict[str, Array] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Array, room: int = 0) -> Array | None:
        """Return a tensor to use as ``out=``, or None for a fresh one."""
        if not self.reuse:
            return None
        size = math.prod(shape)
        if name not in self._flat:
            self._flat[name] = arrays.of(like).empty((max(size, room),), like.dtype, like)
        return self._flat[name][:size].reshape(shape)


def _blocks(
    elements: int, row_elements: int, length: int, block_rows: int | None
) -> list[tuple[int, int]]:
    """(start, stop) of each block of query rows, the first one being as long as any."""
    rows = block_rows or max(BLOCK_ROWS, elements // max(1, row_elements))
    return [(start, min(start + rows, length)) for start in range(0, length, rows)]


def _blocked(
    scores: Array, allowed: Array | None, free: int, run: _Pass, *, tracked: bool
) -> Array:
    """Scores as low as can be where not allowed.

    Low and not -inf, so that a weight of zero times its score is zero.
    """
    if allowed is None:
        return scores
    lib = arrays.of(scores)
    on_cpu = lib.on_cpu(scores)
    limit = (
        lib.limits(allowed[..., free:], scores.dtype)
        if on_cpu
        else run.limit(allowed, scores.dtype)
    )
    free = free if on_cpu else 0
    if not tracked:  # several times faster than masked_fill_
        lib.xp.minimum(scores[..., free:], limit, out=scores[..., free:])
    else:
        scores = lib.xp.minimum(scores, lib.padded_keys(limit, free, 0, math.inf))
    return scores


def _check_shapes(query: Array, key: Array, value: Array) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if not query.ndim == key.ndim == value.ndim == 4:
        raise ValueError(f"attend needs [batch, heads, length, width] tensors, got {shapes}")
    if query.shape[-1] != key.shape[-1] or key.shape[:3] != value.shape[:3]:
        raise ValueError(f"query, key and value do not fit together: {shapes}")
    if query.shape[0] != key.shape[0] or query.shape[1] % key.shape[1]:
        raise ValueError(f"query heads must be a multiple of key heads in one batch: {shapes}")
