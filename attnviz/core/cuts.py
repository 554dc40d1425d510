"""Edges of attention that a pass cuts.

Notation in shapes: N items, H heads, T queries, S keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from attnviz.core.arrays import Array, converted
from attnviz.core.heads import Site

CutMethod = Literal["before", "after", "zero", "redirect"]
"""What happens to the weights of cut edges, see :class:`Cut`."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Which edges of a layer are cut: of some heads, from some queries to some keys.

    Attention knockout (Geva et al. 2023, arXiv:2304.14767). An item's edges are all that lead from
    its rows to its keys; every array has N items, or one that stands for all. Of the weights α of
    a row with cut keys K:

    - ``before`` softmax the scores of K are -inf, so that the others share what K had;
    - ``after`` softmax α_K = 0, and the others are scaled to the sum that the row had: the same as
      ``before``, but for learned sinks, which then take nothing of it;
    - ``zero``: α_K = 0, and nothing else changes;
    - ``redirect``: what K had goes to the keys in ``instead``, in proportion to what they have.

    A row that would be left without any key keeps its own token, but for ``zero``; where keys are
    of another sequence, it is all zero. A row that sees no key of ``instead`` stays as it is.

    With an ``order`` it is a control: the row loses as much weight m as K has, but from its other
    keys, one after the other in that order, each whole but the last. K keeps its weight, and what
    other keys are left with is scaled by (1 - m) / (1 - 2m), so that the row sums to what it did
    (with ``zero`` it is not). A row whose other keys have no more than m, or that has but one
    other key, stays as it is: no such control can be made. What is redirected has no ``order``.
    """

    heads: Array  # bool [N, H]
    rows: Array  # bool [N, T], by position
    keys: Array  # bool [N, S]
    method: CutMethod = "before"  # see above
    onward: bool = False  # whether rows after the T-th, which a model writes, are cut as well
    instead: Array | None = None  # bool [N, S], of ``redirect``
    # int64 [N, S], the places of keys in the order, each once; None for no control
    order: Array | None = None

    @property
    def masks(self) -> bool:
        """Whether it is no more than a mask before softmax."""
        return self.method == "before" and self.order is None

    def converted(self, like: Array) -> Cut:
        """The same cut as arrays of the kind of another, where that is."""
        heads, rows, keys, instead, order = (
            None if x is None else converted(x, like)
            for x in (self.heads, self.rows, self.keys, self.instead, self.order)
        )
        assert heads is not None
        assert rows is not None
        assert keys is not None
        return Cut(heads, rows, keys, self.method, self.onward, instead, order)


Cuts = Mapping[Site, Cut]
"""The cuts of a pass, by layer."""
