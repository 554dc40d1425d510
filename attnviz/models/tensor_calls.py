"""Calls of functions of tensors: what they are called, what they are given, what they sum over.

The same for a function, a method and an operator, for arguments by place and by name.

``scaled_dot_product_attention`` and ``multi_head_attention_forward``, which
``nn.MultiheadAttention`` ends in, give weights only where they are asked for them, if at all. Here
these are computed with the same arguments, without dropout, gradients or random numbers. The
layers of ``nn.Transformer`` have a fast path past both of them, and are run a second time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, wraps
from inspect import Signature, signature
from typing import Any

import torch
from torch import Tensor, nn, overrides
from torch.nn import functional

from attnviz.core.capture import blocked_by
from attnviz.models.external_errors import replacing

PRODUCTS = frozenset(
    {"matmul", "linalg_matmul", "__matmul__", "__rmatmul__", "bmm", "mm", "mv", "linear", "einsum"}
    | {"baddbmm", "baddbmm_", "addmm", "addmm_", "tensordot", "inner", "cdist"}
)


@dataclass(frozen=True, eq=False)
class Product:
    """A product of two tensors, its axes named."""

    operands: tuple[Tensor, Tensor]  # both
    labels: tuple[tuple[Any, ...], tuple[Any, ...]]  # of the axes of either
    out: tuple[Any, ...]  # labels of the result's axes

    def summed(self, index: int) -> list[int]:
        """Return the axes of an operand that are summed over."""
        return [n for n, label in enumerate(self.labels[index]) if label not in self.out]


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a function."""

    name: str  # of the function, without the overload of an operator
    func: Any  # the function
    args: tuple[Any, ...]  # what it was given by place; ``kwargs`` by name
    kwargs: Mapping[str, Any]

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Those among its arguments, in lists too."""
        return tuple(tensors_in((*self.args, *self.kwargs.values())))

    def argument(self, index: int, *names: str) -> Any:
        """Return an argument by its place or by one of its names; None where it is not given."""
        if len(self.args) > index:
            return self.args[index]
        return next((self.kwargs[name] for name in names if name in self.kwargs), None)

    def by_name(self, signature: Signature) -> dict[str, Any]:
        """Return all arguments by their names in a signature."""
        bound = signature.bind(*self.args, **self.kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def axis(self, ndim: int) -> int:
        """Return the axis that it names, from 0; 0 where it names none."""
        numbers = [a for a in self.args[1:] if isinstance(a, int) and not isinstance(a, bool)]
        dim = self.kwargs.get("dim", self.kwargs.get("axis"))
        if dim is None:
            dim = numbers[0] if numbers else 0
        return int(dim) % ndim

    def summed(self, ndim: int) -> set[int]:
        """Return the axes that a sum goes over; all where it names none."""
        dims = self.argument(1, "dim", "axis")
        if dims is None:
            return set(range(ndim))
        return {d % ndim for d in (dims if isinstance(dims, list | tuple) else (dims,))}

    def product(self) -> Product | None:
        """Return a matrix product, an einsum or distances of two tensors with its axes named.

        None for any other.
        """
        if self.name == "einsum":
            return _einsum(self.args)
        first = int(self.name.startswith(("baddbmm", "addmm")))  # these add to a tensor before
        a = self.argument(first, *(("batch1", "mat1") if first else ("input", "self")))
        b = self.argument(first + 1, "other", "mat2", "batch2", "weight", "vec")
        if self.name == "__rmatmul__":
            a, b = b, a
        if not isinstance(a, Tensor) or not isinstance(b, Tensor) or not a.ndim or not b.ndim:
            return None
        if self.name == "tensordot":
            return _tensordot(a, b, self.argument(2, "dims"))
        if self.name == "inner":
            leading = tuple(range(a.ndim + b.ndim - 2))
            split = a.ndim - 1
            return Product((a, b), ((*leading[:split], "i"), (*leading[split:], "i")), leading)
        if self.name == "linear":
            rows = ("o",) if b.ndim == 2 else ()
            leading = tuple(range(a.ndim - 1))
            return Product((a, b), ((*leading, "i"), (*rows, "i")), (*leading, *rows))
        depth = max(a.ndim, b.ndim) - 2
        batch = [tuple(range(depth - (x.ndim - 2), depth)) if x.ndim > 2 else () for x in (a, b)]
        left = (*batch[0], "t", "i") if a.ndim > 1 else ("i",)
        right = (*batch[1], "i", "s") if b.ndim > 1 else ("i",)
        right = (*batch[1], "s", "i") if self.name == "cdist" else right
        out = (*range(max(depth, 0)), *("t",) * (a.ndim > 1), *("s",) * (b.ndim > 1))
        return Product((a, b), (left, right), out)


def function_name(func: Any) -> str:
    """Return what a function is called; an attribute such as ``mT`` by its own name."""
    name = getattr(func, "__name__", "")
    return getattr(func.__self__, "__name__", name) if name == "__get__" else name


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among arguments, those in lists too."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def _tensordot(a: Tensor, b: Tensor, dims: Any) -> Product:
    """Find a call that sums over axes of both: the last and first ones where it says how many."""
    count = 2 if dims is None else dims
    if isinstance(count, int):
        count = (range(a.ndim - count, a.ndim), range(count))
    first, second = ([int(n) % x.ndim for n in axes] for x, axes in zip((a, b), count, strict=True))
    left: list[Any] = list(range(a.ndim))
    right: list[Any] = [a.ndim + n for n in range(b.ndim)]
    for n, m in zip(first, second, strict=True):
        left[n] = right[m] = f"i{n}"
    out = tuple(label for label in (*left, *right) if isinstance(label, int))
    return Product((a, b), (tuple(left), tuple(right)), out)


def _einsum(args: Sequence[Any]) -> Product | None:
    if not isinstance(args[0], str):
        return None
    operands = list(tensors_in(args[1:]))
    inputs, arrow, output = args[0].replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(operands) != 2 or len(terms) != 2:
        return None
    labels = [_letters(term, x.ndim) for term, x in zip(terms, operands, strict=True)]
    if not arrow:
        letters = [x for term in labels for x in term]
        dots = sorted({x for x in letters if isinstance(x, int)})
        named = {x for x in letters if isinstance(x, str)}
        out = (*dots, *sorted(x for x in named if letters.count(x) == 1))
    else:
        dots = sorted({x for term in labels for x in term if isinstance(x, int)})
        head, ellipsis, tail = output.partition("...")
        out = (*head, *(dots if ellipsis else ()), *tail)
    return Product((operands[0], operands[1]), (labels[0], labels[1]), tuple(out))


def _letters(term: str, ndim: int) -> tuple[Any, ...]:
    """Return the labels of an operand's axes; an ellipsis counts from its end, -1."""
    head, ellipsis, tail = term.partition("...")
    count = ndim - len(head) - len(tail) if ellipsis else 0
    return (*head, *range(-count, 0), *tail)


SDPA = signature(
    lambda query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
    enable_gqa=False: None
)  # fmt: skip
"""Of ``scaled_dot_product_attention``, which is built in and tells no signature."""
HEADS = signature(functional.multi_head_attention_forward)
_EXTRA = ("<bias>", "<zero>")
"""Keys that no token stands for: ``bias_k`` and ``add_zero_attn`` put them at the end."""
_CHECK = "_validate_sdpa_input"  # what FlexAttention calls before anything else
_FAST = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)


def sdpa_weights(call: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Get the weights of a call of ``scaled_dot_product_attention``, before dropout, in float32."""
    query, key, mask = call["query"], call["key"], call["attn_mask"]
    with torch.no_grad(), torch.autocast(query.device.type, enabled=False):
        dtype = torch.promote_types(query.dtype, torch.float32)
        query, key = query.detach().to(dtype), key.detach().to(dtype)
        if call["enable_gqa"]:
            key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
        scale = call["scale"]
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        scores = query @ key.transpose(-1, -2) * scale
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        if call["is_causal"]:
            allowed = allowed.tril()
        if mask is not None:
            allowed = allowed & (mask if mask.dtype == torch.bool else mask > -torch.inf)
            scores = scores if mask.dtype == torch.bool else scores + mask
        allowed = allowed.expand(scores.shape)
        weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
        empty = ~allowed.any(-1, keepdim=True)
        if empty.any():
            unit = torch.eye(key.shape[-2], dtype=key.dtype, device=key.device)
            unit = unit.expand(*key.shape[:-1], key.shape[-2])
            mask = None if mask is None or mask.dtype == torch.bool else mask.to(dtype)
            mask = call["attn_mask"] if mask is None else mask
            rows = functional.scaled_dot_product_attention(
                query, key, unit, mask, 0.0, call["is_causal"], scale=scale
            )
            weights = torch.where(empty, rows, weights)
    return weights, allowed & reached(scores, allowed)


def heads_weights(call: Mapping[str, Any]) -> tuple[Tensor, Tensor, tuple[str, ...], bool]:
    """Give the weights of a call of ``multi_head_attention_forward``, head by head, before dropout.

    Weights [B, H, T, S]; allowed keys, bool, as many; the texts of the last keys, which are none of
    the sequence; whether keys came from another sequence than queries.
    """
    arguments = {**call, "need_weights": True, "average_attn_weights": False, "training": False}
    with torch.no_grad():
        _, weights = functional.multi_head_attention_forward(**arguments)
    assert weights is not None  # they were asked for
    weights = weights if weights.ndim == 4 else weights[None]
    extra = _EXTRA[:1] * (call["bias_k"] is not None) + _EXTRA[1:] * call["add_zero_attn"]
    allowed = _allowed(weights, len(extra), call)
    weights = weights if weights.dtype == torch.float64 else weights.float()
    query, key = call["query"], call["key"]
    is_self = query is key or (query.shape == key.shape and torch.equal(query, key))
    return weights, allowed, extra, not is_self


def _allowed(weights: Tensor, extra: int, call: Mapping[str, Any]) -> Tensor:
    """Bool [B, H, T, S] of the masks that a call had."""
    batch, heads, queries, keys = weights.shape
    allowed = torch.ones(batch, 1, queries, keys - extra, dtype=torch.bool, device=weights.device)
    mask, padding = call["attn_mask"], call["key_padding_mask"]
    if mask is not None:
        free = _free(mask)
        allowed = allowed & (free if free.ndim == 2 else free.reshape(-1, heads, *free.shape[1:]))
    if padding is not None:
        allowed = allowed & _free(padding).reshape(-1, 1, 1, keys - extra)
    return functional.pad(allowed, (0, extra), value=True).expand(weights.shape)


def _free(mask: Tensor) -> Tensor:
    """Keys that a mask of booleans (True: blocked) or of numbers to add leaves, bool [..., S]."""
    return ~mask if mask.dtype == torch.bool else (mask > BLOCKED) & ~blocked_by(mask)


BLOCKED = -9e3
"""A score of this or less blocks: masks by hand are -1e9, -1e6, -1e4 or minus infinity."""
_FAR = 69.0
"""So far below its row's maximum a score leaves a weight under 1e-30: a mask of -100 does that."""


def reached(scores: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Return the keys that scores leave a weight to, bool [..., S]: none where all are masked."""
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    return (scores > BLOCKED) & (scores > scores.amax(-1, keepdim=True) - _FAR)


@contextmanager
def flex_noted(note: Callable[[str], None]) -> Iterator[None]:
    """In the ``with`` block calls of FlexAttention are noted, at the check that it begins with."""
    from torch.nn.attention import flex_attention

    check = getattr(flex_attention, _CHECK, None)
    if check is None:  # of another version of PyTorch: it then runs, and is not noted
        yield
        return

    def checked(*args: Any, **kwargs: Any) -> Any:
        note(
            "FlexAttention computes its weights inside a kernel, where nothing sees them; run the "
            "module with scaled_dot_product_attention"
        )
        return check(*args, **kwargs)

    with replacing(flex_attention, _CHECK, checked):
        yield


@contextmanager
def fast_paths_run_twice(mode: Any, watched: Callable[[nn.Module], bool]) -> Iterator[None]:
    """In the ``with`` block layers with a fast path run as they would, and are then watched."""
    with ExitStack() as undo:
        running = [False]
        for cls in _FAST:
            twice = _twice(cls.forward, mode, watched, running)
            undo.enter_context(replacing(cls, "forward", twice))
        yield


def _twice(
    forward: Callable[..., Any],
    mode: Any,
    watched: Callable[[nn.Module], bool],
    running: list[bool],
) -> Callable[..., Any]:
    @wraps(forward)
    def run(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if running[0] or not watched(module) or not _is_fast(module) or not mode.wanted():
            return forward(module, *args, **kwargs)
        running[0] = True
        enabled = torch.backends.mha.get_fastpath_enabled()
        try:
            with _without(mode):
                result = forward(module, *args, **kwargs)
            torch.backends.mha.set_fastpath_enabled(False)
            with torch.no_grad(), mode.beside():
                mode.equate(forward(module, *args, **kwargs), result)
        finally:
            torch.backends.mha.set_fastpath_enabled(enabled)
            running[0] = False
        return result

    return run


def _is_fast(module: nn.Module) -> bool:
    """Whether a module may skip its attention: in evaluation, without gradients."""
    if module.training or not torch.backends.mha.get_fastpath_enabled():
        return False
    tracked = torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())
    hooked = any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    return not tracked and not hooked


@contextmanager
def _without(mode: Any) -> Iterator[None]:
    """Take one mode off the stack of function modes in the ``with`` block."""
    modes: Any = overrides  # which types none of this
    stack = modes._get_current_function_mode_stack()
    for _ in stack:
        modes._pop_mode()
    for active in stack:
        if active is not mode:
            modes._push_mode(active)
    try:
        yield
    finally:
        for active in stack:
            if active is not mode:
                modes._pop_mode()
        for active in stack:
            modes._push_mode(active)
