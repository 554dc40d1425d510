"""What queries and keys are made of: a pass that remembers every vector added to the stream.

Between two matrix products a model only adds, normalizes, gates and rearranges. With the scale of
every normalization (σ) and every gate (a sigmoid) held at its value here, a query is therefore a
linear function of what was added to the residual stream before it: embeddings, heads' outputs,
feed-forward parts, biases. :class:`Tracing` listens to a pass as PyTorch computes it, in any model:
what an embedding table or a matrix product gives, and every bias that is added, becomes a variable
of its own (:class:`StreamPart`), and each normalization divides by a constant. The derivative of a
query to a variable, times the variable's value, is then what that variable adds to the query, and
these add up to the query, rotary positions and normalizations of queries and keys included. Nothing
is known by name; whether they add up is for the caller to check.

Notation: T tokens, D width of the stream, d width of a query, H heads, d_v width of a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import ForwardRequest, Rows, Source, Terms

LeafKind = Literal["table", "product", "added"]

_PRODUCTS = frozenset({"matmul", "__matmul__", "mm"})
_SUMS = frozenset({"add", "__add__", "__radd__", "add_", "__iadd__"})
_SCALES = frozenset({"rsqrt", "sqrt"})
_GATES = frozenset({"sigmoid"})
_POWERS = frozenset({"pow", "__pow__"})


@dataclass(frozen=True, eq=False)
class StreamPart:
    """A vector that the pass made at every position and that counts as a variable.

    Attributes:
        kind: a row of a ``table``, what a matrix ``product`` gave, or what was ``added`` beside.
        value: [..., width], of the one text.
        table: of a table, [rows, width].
        read: of a product, what was multiplied, [..., in].
        weight: of a product, [width, in].
        bias: of a product, [width]; None for none.
    """

    kind: LeafKind
    value: Tensor
    table: Tensor | None = None
    read: Tensor | None = None
    weight: Tensor | None = None
    bias: Tensor | None = None

    @property
    def width(self) -> int:
        """The last axis of its value."""
        return self.value.shape[-1]

    def by_token(self, x: Tensor, tokens: int) -> Tensor | None:
        """What is shaped like the value, with more axes before it or none, as [..., T, n].

        Args:
            x: such as the value itself, or derivatives to it.
            tokens: T.

        Returns:
            None where the value is not one vector a token.
        """
        first = x.ndim - self.value.ndim
        sizes = self.value.shape
        if sizes.numel() == tokens * self.width:
            return x.flatten(first, -2)
        if len(sizes) == 4 and sizes[1] != tokens and sizes[2] == tokens:  # [B, heads, T, width]
            x = x.transpose(first + 1, first + 2)
        elif len(sizes) != 4 or sizes[1] != tokens:
            return None
        return x.flatten(first + 2).flatten(first, first + 1)


class Tracing(TorchFunctionMode):
    """Listens inside its ``with`` block to a pass whose gradients are tracked.

    Attributes:
        leaves: in the order in which they were made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.leaves: list[StreamPart] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let a function run, or run what takes its place."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if not torch.is_grad_enabled():
            return func(*args, **kwargs)
        if name == "embedding":
            result = func(*args, **kwargs)
            table = args[1] if len(args) > 1 else kwargs["weight"]
            return self._leaf(StreamPart("table", result.detach(), table=table.detach()))
        if name == "linear":
            return self._linear(func, *args, **kwargs)
        if name == "addmm" and _carried(args[1]):
            return self._product(func, args, kwargs, args[1], args[2].t(), args[0])
        if name in _PRODUCTS and _carried(args[0]) and args[1].ndim == 2 and not _carried(args[1]):
            return self._product(func, args, kwargs, args[0], args[1].t(), None)
        if name in ("layer_norm", "rms_norm") and _carried(args[0]):
            return self._normalized(name, *args, **kwargs)
        if name in _SUMS and len(args) > 1:
            args = (*self._summands(args[0], args[1]), *args[2:])
        result = func(*args, **kwargs)
        powered = name in _POWERS and isinstance(args[1], float) and abs(args[1]) == 0.5
        held = powered or (name in _SCALES | _GATES and _carried(result))
        return result.detach() if held else result

    def _leaf(self, leaf: StreamPart) -> Tensor:
        """The variable, as the pass goes on with it; it may be written to."""
        leaf.value.requires_grad_(True)
        self.leaves.append(leaf)
        return leaf.value.clone()

    def _linear(self, func: Any, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
        args = (input, weight, bias)
        if not _carried(input):
            return func(*args)
        return self._product(func, args, {}, input, weight, bias)

    def _product(
        self, func: Any, args: Any, kwargs: Any, read: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        with torch.no_grad():
            made = func(*args, **kwargs)
        return self._leaf(StreamPart("product", made, read=read, weight=weight.detach(), bias=bias))

    def _summands(self, first: Any, other: Any) -> tuple[Any, Any]:
        """Both, what is a constant vector beside a variable one made a variable too."""
        if _carried(first) and _constant(other):
            return first, self._made_variable(other, first)
        if _carried(other) and _constant(first):
            return self._made_variable(first, other), other
        return first, other

    def _made_variable(self, x: Tensor, beside: Tensor) -> Tensor:
        whole = x.detach() + torch.zeros_like(beside)  # as long as both
        return self._leaf(StreamPart("added", whole.clone()))

    def _normalized(
        self,
        name: str,
        x: Tensor,
        shape: Sequence[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float | None = 1e-5,
    ) -> Tensor:
        """Layer or RMS normalization, its σ a constant."""
        axes = tuple(range(-len(shape), 0))
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        centred = wide - wide.mean(axes, keepdim=True) if name == "layer_norm" else wide
        eps = torch.finfo(x.dtype).eps if eps is None else eps
        made = centred * (centred.detach().square().mean(axes, keepdim=True) + eps).rsqrt()
        made = (made if weight is None else made * weight.detach()).to(x.dtype)
        return made if bias is None else made + self._made_variable(bias, made)


def _carried(x: Any) -> bool:
    """Whether a tensor depends on a variable."""
    return isinstance(x, Tensor) and x.requires_grad


def _constant(x: Any) -> bool:
    floating = isinstance(x, Tensor) and x.is_floating_point() and x.numel() > 1
    return floating and not x.requires_grad


@dataclass
class TracedPass:
    """A pass of one text that was listened to; an observer of it.

    Attributes:
        leaves: in order.
        terms: queries and keys by layer, of which derivatives can be taken.
        outputs: [T, H, d_v] by layer, what W_O gets of the heads.
        passes: [T, H, d_v] by layer, what their outputs are multiplied with before that; of layers
            that do so.
        weights: [H, T, S] by layer.
        values: [H, S, d_v] by layer.
    """

    leaves: Sequence[StreamPart] = ()
    terms: dict[Site, Terms] = field(default_factory=dict)
    outputs: dict[Site, Tensor] = field(default_factory=dict)
    passes: dict[Site, Tensor] = field(default_factory=dict)
    weights: dict[Site, Tensor] = field(default_factory=dict)
    values: dict[Site, Tensor] = field(default_factory=dict)

    def observe(self, rows: Rows) -> None:
        """Take in a block."""
        if rows.terms is None:
            return
        site, terms, block = rows.site, rows.terms, rows.weights[0]
        with torch.no_grad():
            values = terms.value[0].detach().to(block.dtype)  # [G, S, d_v]
            values = values.repeat_interleave(len(block) // len(values), 0)
            weights = block.new_zeros(*block.shape[:2], values.shape[1])
            weights[..., rows.key_start : rows.key_start + block.shape[2]] = block
            z = (weights @ values).transpose(0, 1)
            if rows.passes is not None:
                passes = rows.passes[0].to(block.dtype).transpose(0, 1)
                z = z * passes
                if rows.start:
                    passes = torch.cat([self.passes[site], passes])
                self.passes[site] = passes
            if rows.start:
                weights = torch.cat([self.weights[site], weights], 1)
                z = torch.cat([self.outputs[site], z])
        self.terms[site], self.values[site] = terms, values
        self.weights[site], self.outputs[site] = weights, z


def follow(source: Source, inputs: Inputs) -> TracedPass:
    """Run one text and listen.

    Raises:
        ModelError: as :meth:`~attnviz.core.source.Source.forward`.
    """
    traced = TracedPass()
    with Tracing() as following:
        source.forward([inputs], [traced], ForwardRequest(hidden=False, terms=True, grad=True))
    traced.leaves = following.leaves
    return traced
