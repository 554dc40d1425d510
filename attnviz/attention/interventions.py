"""What a pass changes inside a layer: edges of attention that are cut, another run's values.

:class:`~attnviz.core.source.Cut` says what happens to a row whose keys are cut, and
:class:`~attnviz.core.source.Donor` what takes the place of what :func:`attend` reads and gives.

Notation: N items, H heads, r rows and s keys of a block; else as in
:mod:`attnviz.attention.layers`. n runs of the same B items, each with shares of its own, share one
computation of attention where only its result is replaced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attnviz.attention.masks import BlockMask, Masks
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Site
from attnviz.core.source import Cut, Donor, Rows

SPARE = 1e-4
"""Of a row's weight at least, beyond twice what is cut, for a control of it: what is left of the
other keys is scaled by its inverse."""


def cut_block(
    cut: Cut | None, masks: Masks, block: BlockMask, start: int, stop: int, site: Site
) -> tuple[BlockMask, Array | None]:
    """Give what masks leave of a block of rows, and a cut that is one; and which edges are cut."""
    if cut is None:
        return block, None
    offset = None if site.kind == "cross" else masks.offset
    lost = lost_edges(cut, block.allowed, start, stop, block.keys, offset)
    if not cut.masks:
        return block, lost
    allowed = ~lost if block.allowed is None else block.allowed & ~lost
    return BlockMask(allowed, block.keys, 0, ~allowed.any(-1)), lost


def lost_edges(
    cut: Cut, allowed: Array | None, start: int, stop: int, keys: slice, offset: int | None
) -> Array:
    """Return the edges of a block that are cut, bool [N, H, r, s].

    ``allowed``: bool [B or 1, H or 1, r, s], the keys that rows may attend to; None for all.
    """
    lib = arrays.of(cut.keys)
    first = start + (offset or 0)
    end = stop + (offset or 0)
    rows = _part(cut.rows, slice(first, end))
    if cut.onward:
        positions = lib.arange(first, end, lib.int64, cut.rows)
        rows = rows | (positions >= cut.rows.shape[1])
    chosen = _part(cut.keys, keys)
    lost: Array = cut.heads[:, :, None, None] & rows[:, None, :, None] & chosen[:, None, None]
    if allowed is not None:
        lost = lost & allowed
    if offset is None or cut.method == "zero":
        return lost
    remaining = ~lost if allowed is None else allowed & ~lost
    spared = lost.any(-1) & ~remaining.any(-1)  # rows without any key that is not cut
    if not spared.any():
        return lost
    positions = lib.arange(first, end, lib.int64, cut.rows)[:, None]
    itself = positions == lib.arange(keys.start, keys.stop, lib.int64, cut.rows)  # [r, s]
    return lost & ~(spared[..., None] & itself)


def applied(
    cut: Cut | None,
    weights: Array,
    scores: Array,
    allowed: Array | None,
    lost: Array | None,
    keys: slice,
) -> Array:
    """Return the weights that are left, [N, H, r, s].

    ``weights``: of softmax, [N, H, r, s]; ``allowed``: bool [B or 1, H or 1, r, s]; None for all.
    """
    if cut is None or lost is None or cut.masks:  # softmax has seen to it
        return weights
    lib = arrays.of(weights)
    xp = lib.xp
    if cut.method == "redirect":
        return _redirected(cut, weights, scores, allowed, lost, keys)
    if cut.order is not None:
        return _controlled(cut, cut.order, weights, allowed, lost, keys)
    remaining = xp.where(lost, 0.0, weights)
    if cut.method == "zero":
        return remaining
    total, remaining_sum = weights.sum(-1)[..., None], remaining.sum(-1)[..., None]
    return remaining * (total / xp.where(remaining_sum > 0, remaining_sum, 1.0))


def _controlled(
    cut: Cut, order: Array, weights: Array, allowed: Array | None, lost: Array, keys: slice
) -> Array:
    """Get the weights where other keys lose what the cut keys have, which keep it, [N, H, r, s]."""
    xp = arrays.of(weights).xp
    uncut = xp.where(lost, 0.0, weights)
    lost_sum, uncut_sum = (weights - uncut).sum(-1)[..., None], uncut.sum(-1)[..., None]
    uncut = uncut - _removed(order, uncut, lost_sum, keys)
    if cut.method == "zero":
        possible = uncut_sum >= lost_sum
    else:
        # a sink shares what is lost before
        mass = 1.0 if cut.method == "mask" else lost_sum + uncut_sum
        spare = mass - 2 * lost_sum
        possible = (uncut_sum > lost_sum) & (spare > SPARE)
        uncut = uncut * ((mass - lost_sum) / xp.where(possible, spare, 1.0))
        remaining = ~lost if allowed is None else allowed & ~lost
        possible = possible & (remaining.sum(-1)[..., None] > 1)
    return xp.where(possible, xp.where(lost, weights, uncut), weights)


def _redirected(
    cut: Cut, weights: Array, scores: Array, allowed: Array | None, lost: Array, keys: slice
) -> Array:
    """Return the weights with what the cut keys had on those that are to have it."""
    assert cut.instead is not None, "weight is redirected to some keys"
    lib = arrays.of(weights)
    xp = lib.xp
    target = _part(cut.instead, keys)[:, None, None]
    target = target & (weights >= 0) if allowed is None else target & allowed
    lost = lost & ~target & target.any(-1)[..., None]  # rows that see no target stay as they are
    spread = lib.softmax(xp.where(target, scores, xp.finfo(scores.dtype).min), None)
    lost_sum = xp.where(lost, weights, 0.0).sum(-1)[..., None]
    return xp.where(lost, 0.0, weights) + lost_sum * spread


def _removed(order: Array, uncut: Array, lost_sum: Array, keys: slice) -> Array:
    """Return what other keys lose in place of those that were cut, [N, H, r, s].

    ``uncut``: their weights, [N, H, r, s], 0 of those that were cut; ``lost_sum``: what each row is
    to lose, [N, H, r, 1].
    """
    lib = arrays.of(uncut)
    xp = lib.xp
    count = order.shape[1]
    later = lib.arange(count, max(keys.stop, count), lib.int64, order)[None]
    places = xp.concatenate([order, xp.broadcast_to(later, (len(order), later.shape[1]))], 1)
    by_order = xp.argsort(places[:, keys], -1)[:, None, None]  # [N, 1, 1, s]
    inverse_order = xp.argsort(by_order, -1)
    ordered = lib.at_indices(uncut, by_order)
    preceding = xp.cumsum(ordered, -1) - ordered
    removed = xp.minimum((lost_sum - preceding).clip(0), ordered)
    return lib.at_indices(removed, inverse_order)


def _part(flags: Array, columns: slice) -> Array:
    """Return some columns of [N, n], False beyond the n-th."""
    lib = arrays.of(flags)
    part: Array = flags[:, columns]
    missing = columns.stop - columns.start - part.shape[1]
    return part if missing <= 0 else lib.padded_keys(part, 0, missing)


def fed(
    donors: Sequence[Donor], query: Array, key: Array, value: Array
) -> tuple[Array, Array, Array]:
    """Return queries, keys and values with those of other runs in their place.

    ``query`` [B, H, T, d]; ``key`` [B, G, S, d]; ``value`` [B, G, S, d_v]; returns n · B of each,
    as many as the donors have shares for.
    """
    parts = {"q": query, "k": key, "v": value}
    for donor in donors:
        if donor.part in parts:
            parts[donor.part] = _blended(parts[donor.part], donor.values, donor, repeat=True)
    items = max(map(len, parts.values()))
    q, k, v = (repeated(x, items // len(x)) for x in parts.values())
    return q, k, v


def repeated(x: Array, runs: int) -> Array:
    """Return a batch so many times over."""
    return x if runs == 1 else arrays.of(x).xp.tile(x, (runs, *[1] * (x.ndim - 1)))


def donated(donors: Sequence[Donor], output: Array, value: Array) -> Array:
    """Return the heads' outputs with what other runs' weights or outputs make of them.

    ``output`` [B, H, T, d_v]; ``value`` [B, G, S, d_v], as attention read it; returns [n · B, H, T,
    d_v].
    """
    lib = arrays.of(output)
    late = [donor.converted(output) for donor in donors if donor.part in ("pattern", "z")]
    for donor in sorted(late, key=lambda donor: donor.part):
        values = donor.values
        if donor.part == "pattern":
            values = repeated(values, max(1, len(value) // len(values)))
            batch, heads, length, keys = values.shape
            weights = lib.cast(values, value.dtype).reshape(batch, value.shape[1], -1, keys)
            values = (weights @ value).reshape(batch, heads, length, -1)
        output = _blended(output, values, donor, repeat=True)
    return output


def exchanged(donor: Donor, gate: Array) -> Array:
    """Put another run's gate in the place of a layer's own, [B, H, T, d_v]; see :class:`Donor`."""
    return _blended(gate, donor.values, donor, repeat=False)


def written(rows: Rows, z: Array | None = None) -> Array:
    """Give what W_O gets of a block's heads, [B, H, r, d_v]: z, or z ⊙ m where m stands between."""
    z = mixed(rows) if z is None else z
    return z if rows.passes is None else z * arrays.of(z).cast(rows.passes, z.dtype)


def mixed(rows: Rows) -> Array:
    """Return what attention gives of a block's heads: z = Σ_j α_ij v_j, [B, H, r, d_v]."""
    assert rows.values is not None, "every backend that can be gated hands its values out"
    batch, heads, count, keys = rows.weights.shape
    weights = rows.weights.reshape(batch, rows.values.shape[1], -1, keys)
    weights = arrays.of(weights).cast(weights, rows.values.dtype)
    return (weights @ rows.values).reshape(batch, heads, count, -1)


def _blended(recipient: Array, values: Array, donor: Donor, *, repeat: bool) -> Array:
    """Blend: x + share (values - x), exact for shares of 0 and 1.

    ``recipient``: x, [B, heads, positions, width]; ``donor``: with the shares, [n · B, heads] or
    [n · B, heads, positions].
    """
    lib = arrays.of(recipient)
    share = lib.cast(donor.share, recipient.dtype)
    share = share[..., None, None] if share.ndim == 2 else share[..., None]
    items = len(share)
    sizes = (
        tuple(values.shape[1:]) == tuple(recipient.shape[1:])
        and share.shape[1] == recipient.shape[1]
    )
    runs = items // len(recipient) if repeat else 1
    fits = items == runs * len(recipient) and items % max(len(values), 1) == 0
    if not sizes or not fits or share.shape[2] not in (1, recipient.shape[2]):
        raise ValueError(
            f"a donor of {donor.part} does not fit: values {tuple(donor.values.shape)}, shares "
            f"{tuple(donor.share.shape)}, and the layer has {tuple(recipient.shape)}"
        )
    length = math.lcm(len(recipient), len(values))
    recipient, values = (
        repeated(x, length // len(x)) for x in (recipient, lib.cast(values, recipient.dtype))
    )
    share = share.reshape(items // length, length, *share.shape[1:])
    if isinstance(share, np.ndarray) and ((share == 0) | (share == 1)).all():
        blended = lib.xp.where(share == 1, values, recipient)
    else:
        blended = share * values + (1 - share) * recipient
    return blended.reshape(items, *recipient.shape[1:])
