"""Every mask of one attention call, and the part of it that a block of rows needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.capture import blocked_by


class BlockMask(NamedTuple):
    """What the masks leave of a block of query rows."""

    # bool [B or 1, H or 1, r, s], or None when every key is allowed to every row
    allowed: Array | None
    keys: slice  # the slice of the s keys that some row of the block can reach
    free: int  # how many keys at the start of that slice every row may use
    # bool [B or 1, H or 1, r], the rows without any key; None where there can be none
    empty: Array | None = None


@dataclass(frozen=True)
class Masks:
    """Every mask of one call; the arguments of :func:`~attnviz.attention.layers.attend`."""

    length: int  # T. key_length: S.
    key_length: int
    like: Array  # an array where the masks are, of any shape and type
    mask: Array | None
    padding: Array | None
    causal: bool
    window: int | None

    @property
    def offset(self) -> int:
        """How many keys come before the first query's own position."""
        return self.key_length - self.length

    @property
    def additive(self) -> Array | None:
        """The mask where it is to be added to the scores."""
        if self.mask is None or self.mask.dtype == arrays.of(self.mask).bool_:
            return None
        return self.mask

    @property
    def may_be_empty(self) -> bool:
        """Whether a row can be left without any key."""
        positional = self.causal or self.window is not None
        masked = self.mask is not None or self.padding is not None
        return masked or (positional and self.offset < 0)

    @property
    def fused_causal(self) -> bool:
        """Whether SDPA's own ``is_causal`` says all there is to say."""
        return self.causal and self.offset == 0 and self.plain

    @property
    def plain(self) -> bool:
        """Whether nothing but ``causal`` can block a key."""
        return self.mask is None and self.padding is None and self.window is None

    def block(self, start: int, stop: int) -> BlockMask:
        """Return what is left of rows ``start:stop``."""
        first, last = 0, self.key_length
        if self.causal:
            last = min(last, max(stop + self.offset, 1))
        if self.window is not None:
            first = min(max(0, start + self.offset - self.window + 1), last - 1)
            if not self.causal:
                last = min(last, max(stop + self.offset + self.window - 1, 1))
        first, last = self._masked(start, stop, first, last)
        keys = slice(first, last)
        parts = []
        if self.causal or self.window is not None:
            i = self._positions(start, stop)[:, None] + self.offset
            j = self._positions(first, last)
            if self.causal:
                parts.append((j <= i)[None, None])
            if self.window is not None:
                parts.append((abs(i - j) < self.window)[None, None])
        if self.padding is not None:
            parts.append(self.padding[:, None, None, keys])
        if self.mask is not None:
            if self.additive is None:
                part = cut(self.mask, start, stop, keys)
            else:
                reached = ~blocked_by(cut(self.mask, start, stop, slice(None)))
                part = cut(reached, 0, stop - start, keys)
            parts.append(part.reshape((1,) * (4 - part.ndim) + tuple(part.shape)))
        if not parts:
            return BlockMask(None, keys, last - first)
        allowed = parts[0]
        for part in parts[1:]:
            allowed = allowed & part
        shape = (*allowed.shape[:2], stop - start, last - first)
        allowed = arrays.of(allowed).xp.broadcast_to(allowed, shape)
        free = min(max(start + self.offset + 1, 0), last) if self.plain else 0
        empty = ~allowed.any(-1) if self.may_be_empty else None
        return BlockMask(allowed, keys, free, empty)

    def _masked(self, start: int, stop: int, first: int, last: int) -> tuple[int, int]:
        """Give keys ``first:last`` without those at either end that a boolean mask blocks for all.

        Sliding windows reach the hooks as such masks.
        """
        mask = self.mask
        if mask is None or self.additive is not None or mask.shape[-1] == 1:
            return first, last
        part = cut(mask, start, stop, slice(first, last))
        reached = arrays.to_numpy(part.reshape(-1, part.shape[-1]).any(0)).nonzero()[0]
        if not len(reached):
            return first, min(first + 1, last)
        return first + int(reached[0]), first + int(reached[-1]) + 1

    def whole(self) -> Array | None:
        """Return the allowed keys of all rows at once, [B or 1, H or 1, T, S], or None."""
        if self.plain and not self.causal:
            return None
        reach = Masks(
            self.length, self.key_length, self.like, self.mask, self.padding, self.causal, None
        )
        allowed, keys, *_ = reach.block(0, self.length)
        if allowed is not None:  # keys that no row sees: fewer keys than rows, or padding
            lib = arrays.of(allowed)
            allowed = lib.padded_keys(allowed, keys.start, self.key_length - keys.stop)
        if self.window is None:
            return allowed
        i = self._positions(0, self.length)[:, None] + self.offset
        near = abs(i - self._positions(0, self.key_length)) < self.window
        return near[None, None] if allowed is None else allowed & near

    def _positions(self, start: int, stop: int) -> Array:
        lib = arrays.of(self.like)
        return lib.arange(start, stop, lib.int64, self.like)


def cut(full: Array, start: int, stop: int, keys: slice) -> Array:
    """Cut rows and keys out of a tensor that broadcasts to [B, H, T, S]."""
    if full.ndim >= 2 and full.shape[-2] != 1:
        full = full[..., start:stop, :]
    return full if full.shape[-1] == 1 else full[..., keys]
