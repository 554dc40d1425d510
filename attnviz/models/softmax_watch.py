"""Attention that somebody wrote by hand: a softmax whose result meets values in a product.

Nothing is known by name. While :class:`SoftmaxWatch` is on, what every softmax gives (of the last
axis; also exponentials over their sum) is followed through whatever leaves its numbers in place or
drops some of them, until a product of tensors takes it (``@``, ``matmul``, ``bmm``, ``einsum``):
that product is attention, and what softmax gave its weights. Matrices of parameters are no values,
so that a distribution over words times an embedding table is none.

Shapes: B batch, H heads, T queries, S keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnviz.errors import InputError
from attnviz.models.output_gates import gated_weights

_SOFTMAXES = frozenset({"softmax", "_softmax"})
_FOLLOWED = frozenset(
    {"dropout", "reshape", "view", "flatten", "unflatten", "contiguous", "unsqueeze", "squeeze"}
    | {"to", "float", "half", "bfloat16", "double", "type_as", "type", "clone", "nan_to_num"}
    | {"masked_fill", "masked_fill_", "expand", "dropout_", "where"}
)
_PRODUCTS = frozenset({"matmul", "__matmul__", "bmm", "baddbmm", "einsum"})
_QUOTIENTS = frozenset({"div", "__truediv__", "true_divide", "divide", "div_", "__itruediv__"})

BLOCKED = -1e4
"""A score of this or less blocks: masks by hand are -1e9, -1e6 or minus infinity."""


@dataclass(frozen=True, eq=False)
class _Soft:
    """What a softmax gave, and which keys it might give something to."""

    weights: Tensor
    allowed: Tensor


class SoftmaxWatch(TorchFunctionMode):
    """While it is on, hands over the weights of every attention that is written out.

    Every function is called as it was meant, so that its result is the same to the bit where no
    head is gated.

    Args:
        tell: gets weights and the allowed keys, bool, both [..., T, S] as the code has them;
            returns what each head's weights are to be multiplied by, [H], or None.
        counts: whether calls are of interest now.
    """

    def __init__(
        self, tell: Callable[[Tensor, Tensor], Tensor | None], counts: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._tell, self._counts = tell, counts
        self._soft: dict[int, tuple[Tensor, _Soft]] = {}
        self._powers: dict[int, tuple[Tensor, Tensor]] = {}  # exp(x), x
        self._sums: dict[int, tuple[Tensor, int]] = {}  # of which powers

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Make a call, and see what it does with weights."""
        given = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _PRODUCTS and self._counts():
            return func(*self._multiplied(args), **given)
        out = func(*args, **given)
        if not self._counts() or not isinstance(out, Tensor):
            return out
        first = args[0] if args else given.get("input")
        if name in _SOFTMAXES and isinstance(first, Tensor):
            dim = args[1] if len(args) > 1 else given.get("dim", -1)
            if dim in (-1, first.ndim - 1) and out.ndim > 1:
                self._found(out, first)
        elif name in ("exp", "exp_") and isinstance(first, Tensor):
            self._powers, self._sums = {id(out): (out, first)}, {}
        elif name == "sum" and id(first) in self._powers:
            self._sums[id(out)] = (out, id(first))
        elif name in _QUOTIENTS and len(args) > 1 and id(args[1]) in self._sums:
            if self._sums[id(args[1])][1] == id(first):
                self._found(out, self._powers[id(first)][1])
            self._powers, self._sums = {}, {}
        elif name in _FOLLOWED:
            known = next((self._soft[id(x)][1] for x in args if id(x) in self._soft), None)
            if known is not None:
                self._soft[id(out)] = (out, known)
        return out

    def _found(self, weights: Tensor, scores: Tensor) -> None:
        with torch.no_grad():
            known = _Soft(weights.detach(), scores.detach() > BLOCKED)
        self._soft[id(weights)] = (weights, known)

    def _multiplied(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a product is to take: with weights and values among it, it is attention."""
        flat: list[Any] = []
        for each in args:
            flat += each if isinstance(each, list | tuple) else [each]
        soft = [x for x in flat if id(x) in self._soft]
        values = [x for x in flat if isinstance(x, Tensor) and id(x) not in self._soft]
        if len(soft) != 1 or not values or any(isinstance(x, nn.Parameter) for x in values):
            return args
        (weights,) = soft
        known = self._soft[id(weights)][1]
        self._soft = {}
        gates = self._tell(known.weights, known.allowed)
        return args if gates is None else _replaced(args, weights, gated_weights(weights, gates))


def _replaced(args: tuple[Any, ...], old: Tensor, new: Tensor) -> tuple[Any, ...]:
    """The same arguments with another tensor in the place of one, in lists among them too."""
    return tuple(
        type(x)(_replaced(tuple(x), old, new)) if isinstance(x, list | tuple)
        else new if x is old else x
        for x in args
    )  # fmt: skip


def by_head(weights: Tensor, allowed: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """Weights and allowed keys, as a module has them, as [B, H, T, S] in float32 or better.

    Args:
        weights: [T, S], [B, T, S], [B · H, T, S] or [B, H, T, S].
        allowed: bool, as many.
        batch: how many items the module was called with, which tells [B · H, T, S] apart.

    Raises:
        InputError: other shapes, or weights that are not numbers though keys were allowed.
    """
    shape = tuple(weights.shape)
    if len(shape) > 4:
        raise InputError(
            f"a softmax of shape {shape} met values; only [batch, heads, queries, keys] tells "
            "heads apart"
        )
    if len(shape) == 2:
        shape = (1, 1, *shape)
    elif len(shape) == 3:
        heads = shape[0] // batch if batch and shape[0] % batch == 0 else 1
        shape = (shape[0] // heads, heads, *shape[1:])
    with torch.no_grad():
        wide = torch.promote_types(weights.dtype, torch.float32)
        weights, allowed = weights.reshape(shape).to(wide), allowed.reshape(shape)
        weights = weights.masked_fill(~allowed.any(-1, keepdim=True), 0.0)
    if not bool(weights.isfinite().all()):
        raise InputError("attention weights are not numbers (NaN): look at what the module was fed")
    return weights, allowed
