"""A pass of one text with every vector that was added to the residual stream, as a variable.

Between two matrix products a model only adds, normalizes, gates and rearranges. With the scale of
every normalization (σ) and every gate (a sigmoid) held at its value here, a query is therefore a
linear function of what was added to the residual stream before it: embeddings, heads' outputs,
feed-forward parts, biases. Each of these is a :class:`StreamPart`; the derivative of a query to it,
times its value, is what it adds to the query, and these add up to the query. A native model knows
its layers and says the derivatives itself (:mod:`attnviz.models.native.words`), every other is
listened to (:mod:`attnviz.models.tracing`); whether they add up is for the caller to check.

Notation: T tokens, D width of the stream, d width of a query, H heads, d_v width of a value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Site
from attnviz.core.reasons import Origin
from attnviz.core.source import Rows, Terms

LeafKind = Literal["table", "product", "added", "part"]


@dataclass(frozen=True, eq=False)
class StreamPart:
    """A vector that the pass made at every position and that counts as a variable."""

    # a row of a ``table``, what a matrix ``product`` gave, what was ``added`` beside, or what a
    # ``part`` of a layer gave that is held whole
    kind: LeafKind
    value: Array  # [..., width], of the one text
    table: Array | None = None  # of a table, [rows, width]
    read: Array | None = None  # of a product, what was multiplied, [..., in].
    weight: Array | None = None  # of a product, [width, in]
    bias: Array | None = None  # of a product, [width]; None for none
    origin: Origin | None = None  # of a part, what it is

    @property
    def width(self) -> int:
        """The last axis of its value."""
        return self.value.shape[-1]

    def by_token(self, x: Array, tokens: int) -> Array | None:
        """Return what is shaped like the value, with more axes before it or none, as [..., T, n].

        Returns None where the value is not one vector a token.
        """
        first = x.ndim - self.value.ndim
        sizes = tuple(self.value.shape)
        if math.prod(sizes) == tokens * self.width:
            return x.reshape(*x.shape[:first], -1, x.shape[-1])
        if len(sizes) == 4 and sizes[1] != tokens and sizes[2] == tokens:  # [B, heads, T, width]
            x = x.swapaxes(first + 1, first + 2)
        elif len(sizes) != 4 or sizes[1] != tokens:
            return None
        return x.reshape(*x.shape[:first], x.shape[first] * x.shape[first + 1], -1)


@dataclass
class TracedPass:
    """A pass of one text with its variables; an observer of it."""

    leaves: Sequence[StreamPart] = ()  # the variables, in order
    # queries and keys by layer, of which derivatives can be taken
    terms: dict[Site, Terms] = field(default_factory=dict)
    # [T, H, d_v] by layer, what W_O gets of the heads
    outputs: dict[Site, Array] = field(default_factory=dict)
    # [T, H, d_v] by layer, what their outputs are multiplied with before that; of layers that do so
    passes: dict[Site, Array] = field(default_factory=dict)
    weights: dict[Site, Array] = field(default_factory=dict)  # [H, T, S] by layer
    values: dict[Site, Array] = field(default_factory=dict)  # [H, S, d_v] by layer

    def observe(self, rows: Rows) -> None:
        """Take in a block."""
        if rows.terms is None:
            return
        site, terms, block = rows.site, rows.terms, rows.weights[0]
        lib = arrays.of(block)
        values = lib.cast(lib.detached(terms.value[0]), block.dtype)  # [G, S, d_v]
        groups = len(values)
        spread = (groups, len(block) // groups, *values.shape[1:])
        values = lib.xp.broadcast_to(values[:, None], spread).reshape(-1, *values.shape[1:])
        weights = lib.zeros((*block.shape[:2], values.shape[1]), block.dtype, block)
        weights[..., rows.key_start : rows.key_start + block.shape[2]] = block
        z = (weights @ values).swapaxes(0, 1)
        if rows.passes is not None:
            passes = lib.cast(rows.passes[0], block.dtype).swapaxes(0, 1)
            z = z * passes
            if rows.start:
                passes = lib.xp.concatenate([self.passes[site], passes])
            self.passes[site] = passes
        if rows.start:
            weights = lib.xp.concatenate([self.weights[site], weights], 1)
            z = lib.xp.concatenate([self.outputs[site], z])
        self.terms[site], self.values[site] = terms, values
        self.weights[site], self.outputs[site] = weights, z

    def derivatives(self, target: Array, towards: Array) -> Sequence[Array | None]:
        """Return the derivatives of m numbers to every leaf.

        Returns [m, ...] like each leaf's value; None where it has no part in the target.
        """
        raise TypeError(f"{type(self).__name__} has no derivatives")
