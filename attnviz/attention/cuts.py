"""Edges of attention that are cut: what is left of the weights of a block of query rows.

:class:`~attnviz.core.source.Cut` says what happens to a row whose keys are cut.

Notation: N items, H heads, r rows and s keys of the block.
"""

from __future__ import annotations

from attnviz.attention.masks import BlockMask, Masks
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.cuts import Cut
from attnviz.core.heads import Site

SPARE = 1e-4
"""Of a row's weight at least, beyond twice what is cut, for a control of it: what is left of the
other keys is scaled by its inverse."""


def cut_block(
    cut: Cut | None, masks: Masks, block: BlockMask, start: int, stop: int, site: Site
) -> tuple[BlockMask, Array | None]:
    """What masks leave of a block of rows, and a cut that is one; and which edges are cut."""
    if cut is None:
        return block, None
    own = None if site.kind == "cross" else masks.offset
    lost = lost_edges(cut, block.allowed, start, stop, block.keys, own)
    if not cut.masks:
        return block, lost
    allowed = ~lost if block.allowed is None else block.allowed & ~lost
    return BlockMask(allowed, block.keys, 0, ~allowed.any(-1)), lost


def lost_edges(
    cut: Cut, allowed: Array | None, start: int, stop: int, keys: slice, own: int | None
) -> Array:
    """The edges of a block that are cut, bool [N, H, r, s].

    ``allowed``: bool [B or 1, H or 1, r, s], the keys that rows may attend to; None for all.
    """
    on = arrays.of(cut.keys)
    first = start + (own or 0)
    end = stop + (own or 0)
    rows = _part(cut.rows, slice(first, end))
    if cut.onward:
        places = on.arange(first, end, on.int64, cut.rows)
        rows = rows | (places >= cut.rows.shape[1])
    chosen = _part(cut.keys, keys)
    lost: Array = cut.heads[:, :, None, None] & rows[:, None, :, None] & chosen[:, None, None]
    if allowed is not None:
        lost = lost & allowed
    if own is None or cut.method == "zero":
        return lost
    left = ~lost if allowed is None else allowed & ~lost
    spared = lost.any(-1) & ~left.any(-1)  # rows without any key that is not cut
    if not spared.any():
        return lost
    places = on.arange(first, end, on.int64, cut.rows)[:, None]
    itself = places == on.arange(keys.start, keys.stop, on.int64, cut.rows)  # [r, s]
    removed: Array = lost & ~(spared[..., None] & itself)
    return removed


def applied(
    cut: Cut | None,
    weights: Array,
    scores: Array,
    allowed: Array | None,
    lost: Array | None,
    keys: slice,
) -> Array:
    """The weights that are left, [N, H, r, s].

    ``weights``: of softmax, [N, H, r, s]; ``allowed``: bool [B or 1, H or 1, r, s]; None for all.
    """
    if cut is None or lost is None or cut.masks:  # softmax has seen to it
        return weights
    on = arrays.of(weights)
    xp = on.xp
    if cut.method == "redirect":
        return _redirected(cut, weights, scores, allowed, lost, keys)
    if cut.order is not None:
        return _controlled(cut, cut.order, weights, allowed, lost, keys)
    left = xp.where(lost, 0.0, weights)
    if cut.method == "zero":
        zeroed: Array = left
        return zeroed
    total, rest = weights.sum(-1)[..., None], left.sum(-1)[..., None]
    scaled: Array = left * (total / xp.where(rest > 0, rest, 1.0))
    return scaled


def _controlled(
    cut: Cut, order: Array, weights: Array, allowed: Array | None, lost: Array, keys: slice
) -> Array:
    """The weights where other keys lose what the cut keys have, which keep it, [N, H, r, s]."""
    xp = arrays.of(weights).xp
    others = xp.where(lost, 0.0, weights)
    gone, there = (weights - others).sum(-1)[..., None], others.sum(-1)[..., None]
    others = others - _others(order, others, gone, keys)
    if cut.method == "zero":
        possible = there >= gone
    else:
        whole = 1.0 if cut.method == "before" else gone + there  # a sink shares what is lost before
        spare = whole - 2 * gone
        possible = (there > gone) & (spare > SPARE)
        others = others * ((whole - gone) / xp.where(possible, spare, 1.0))
        left = ~lost if allowed is None else allowed & ~lost
        possible = possible & (left.sum(-1)[..., None] > 1)
    controlled: Array = xp.where(possible, xp.where(lost, weights, others), weights)
    return controlled


def _redirected(
    cut: Cut, weights: Array, scores: Array, allowed: Array | None, lost: Array, keys: slice
) -> Array:
    """The weights with what the cut keys had on those that are to have it."""
    assert cut.instead is not None, "weight is redirected to some keys"
    on = arrays.of(weights)
    xp = on.xp
    target = _part(cut.instead, keys)[:, None, None]
    target = target & (weights >= 0) if allowed is None else target & allowed
    lost = lost & ~target & target.any(-1)[..., None]  # rows that see no target stay as they are
    spread = on.softmax(xp.where(target, scores, xp.finfo(scores.dtype).min), None)
    gone = xp.where(lost, weights, 0.0).sum(-1)[..., None]
    moved: Array = xp.where(lost, 0.0, weights) + gone * spread
    return moved


def _others(order: Array, others: Array, gone: Array, keys: slice) -> Array:
    """What other keys lose in place of those that were cut, [N, H, r, s].

    ``others``: their weights, [N, H, r, s]; none of those that were cut; ``gone``: what each row is
    to lose, [N, H, r, 1].
    """
    on = arrays.of(others)
    xp = on.xp
    count = order.shape[1]
    later = on.arange(count, max(keys.stop, count), on.int64, order)[None]
    places = xp.concatenate([order, xp.broadcast_to(later, (len(order), later.shape[1]))], 1)
    by_order = xp.argsort(places[:, keys], -1)[:, None, None]  # [N, 1, 1, s]
    back = xp.argsort(by_order, -1)
    ordered = on.at_indices(others, by_order)
    before = xp.cumsum(ordered, -1) - ordered
    taken = xp.minimum((gone - before).clip(0), ordered)
    lost: Array = on.at_indices(taken, back)
    return lost


def _part(flags: Array, places: slice) -> Array:
    """Some columns of [N, n], False beyond the n-th."""
    on = arrays.of(flags)
    part: Array = flags[:, places]
    missing = places.stop - places.start - part.shape[1]
    return part if missing <= 0 else on.padded_keys(part, 0, missing)
