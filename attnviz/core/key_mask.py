"""Which keys a layer's queries may attend to, kept small enough to travel with maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnviz.core.arrays import Array

LEAST = 1e-30
"""A weight of less than this part of its row's largest is that of a blocked key."""

_FAR, _NEAR = 69.0, 35.0
"""exp(-69) is :data:`LEAST`. A mask leaves a gap above what it blocks; a bias that falls with
distance (ALiBi) leaves none."""
_NEVER = 5e3
"""What is this far below is blocked, gap or not: older masks are -10000, give or take a bias."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyMask:
    """Which keys the queries of a layer may attend to, kept small.

    Attributes:
        causal: no query sees a key after its own position (the last query's is the last key).
        window: a query sees only keys less than so many positions away, or None.
        bits: bool [H or 1, T, S], the allowed keys where causality and a window do not say it all.
        sink: part of each row went to a learned sink that is no key: rows sum to less than 1.
        unselected: bool [1, T, S], keys that a query could have seen and that the layer's indexer
            did not select; none of them is allowed. None where nothing selects.
    """

    causal: bool = False
    window: int | None = None
    bits: NDArray[np.bool_] | None = None
    sink: bool = False
    unselected: NDArray[np.bool_] | None = None

    @classmethod
    def of(
        cls,
        allowed: NDArray[np.bool_],
        *,
        sink: bool = False,
        unselected: NDArray[np.bool_] | None = None,
    ) -> KeyMask:
        """The smallest form of allowed keys, bool [H or 1, T, S]."""
        if unselected is not None and not unselected.any():
            unselected = None
        if (allowed == allowed[:1]).all():
            allowed = allowed[:1]
        back = _back(allowed.shape[1], allowed.shape[2])
        used = back[allowed[0]]
        if allowed.shape[0] == 1 and len(used):
            farthest = int(abs(used).max()) + 1
            simple = cls(
                causal=bool((used >= 0).all()) and bool((back < 0).any()),
                window=farthest if farthest <= abs(back).max() else None,
                sink=sink,
                unselected=unselected,
            )
            if (simple.allowed(*allowed.shape[1:]) == allowed).all():
                return simple
        return cls(bits=allowed, sink=sink, unselected=unselected)

    def allowed(self, queries: int, keys: int) -> NDArray[np.bool_]:
        """Bool [H or 1, T, S]."""
        if self.bits is not None:
            return self.bits
        back = _back(queries, keys)
        reached = back >= (0 if self.causal else back.min())
        if self.window is not None:
            reached &= abs(back) < self.window
        return reached[None]


def _back(queries: int, keys: int) -> NDArray[np.intp]:
    """How far back from its query's position each key stands, [T, S]; the last two are level."""
    import numpy as np

    return np.arange(queries)[:, None] + (keys - queries) - np.arange(keys)


def blocked_by(mask: Array) -> Array:
    """Tell which keys an additive mask blocks, bool of its shape [..., T, S].

    Blocked is what lies far below the largest of its row, whatever is added to both: by the lowest
    number there is, -1e9, -10000, or -100 where nothing lies between.
    """
    from attnviz.core import arrays

    xp = arrays.of(mask).xp
    lowest = mask <= xp.finfo(mask.dtype).min / 2
    top = xp.amax(xp.where(lowest, xp.zeros_like(mask) - _NEVER, mask), -1)[..., None]
    below = top - mask
    sloping = ((below > _NEAR) & (below < _FAR)).any(-1)[..., None]
    blocked: Array = lowest | (below > _NEVER) | ((below > _FAR) & ~sloping)
    return blocked


def seen_keys(weights: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Tell which keys any head gives weight to, bool [T, S], by weights [H, T, S]."""
    import numpy as np

    sizes = abs(weights)
    with np.errstate(invalid="ignore"):
        seen: NDArray[np.bool_] = (sizes > LEAST * sizes.max(-1, keepdims=True)).any(0)
    return seen
