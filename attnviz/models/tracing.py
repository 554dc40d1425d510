"""Listening to a pass: every vector that it adds to the residual stream becomes a variable.

:class:`Tracing` listens to a pass as PyTorch computes it, in any model: what an embedding table or
a matrix product gives, and every bias that is added, becomes a variable of its own
(:class:`~attnviz.models.traced.StreamPart`), and each normalization divides by a constant, as
each gate (a sigmoid) is one. Rotary positions and normalizations of queries and keys are included,
and nothing is known by name. Parts of layers that are no such sums, experts behind a router and
what mixes tokens without attention, can be held whole, each as one variable.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnviz.core.arrays import Array, mapped
from attnviz.core.prompt import Inputs
from attnviz.core.reasons import Origin
from attnviz.core.source import ForwardRequest, Rows, Source
from attnviz.models.traced import StreamPart, TracedPass

T = TypeVar("T")


class Turns(Generic[T]):
    """What a module stands for each time that it runs, in a pass or in several."""

    def __init__(self, listed: Iterable[tuple[nn.Module, T]]) -> None:
        self._of: dict[int, list[T]] = {}
        self._modules: dict[int, nn.Module] = {}
        for module, meaning in listed:
            self._of.setdefault(id(module), []).append(meaning)
            self._modules[id(module)] = module
        self._ran: Counter[int] = Counter()

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """Each once."""
        return tuple(self._modules.values())

    def next(self, module: nn.Module) -> T:
        """Return what a module stands for in the run that ends now."""
        meanings, number = self._of[id(module)], self._ran[id(module)]
        self._ran[id(module)] += 1
        return meanings[number % len(meanings)]


_PRODUCTS = frozenset({"matmul", "__matmul__", "mm"})
_SUMS = frozenset({"add", "__add__", "__radd__", "add_", "__iadd__"})
_SCALES = frozenset({"rsqrt", "sqrt"})
_GATES = frozenset({"sigmoid"})
_POWERS = frozenset({"pow", "__pow__"})


class Tracing(TorchFunctionMode):
    """Listens inside its ``with`` block to a pass whose gradients are tracked."""

    def __init__(self) -> None:
        super().__init__()
        self.leaves: list[StreamPart] = []  # in the order in which they were made

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

    @contextlib.contextmanager
    def holding(self, parts: Sequence[tuple[Origin, nn.Module]]) -> Iterator[None]:
        """Inside the ``with`` block, make what each of some modules gives a variable."""
        turns = Turns((module, origin) for origin, module in parts)

        def gave(module: nn.Module, args: Any, output: Any) -> Any:
            origin = turns.next(module)
            several = isinstance(output, tuple | list)
            state = output[0] if several else output
            variable = self._leaf(StreamPart("part", state.detach().clone(), origin=origin))
            return (variable, *output[1:]) if several else variable

        with contextlib.ExitStack() as undo:
            for module in turns.modules:
                undo.callback(module.register_forward_hook(gave).remove)
            yield

    def _leaf(self, leaf: StreamPart) -> Tensor:
        """Return the variable, as the pass goes on with it; it may be written to."""
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
            out = func(*args, **kwargs)
        return self._leaf(StreamPart("product", out, read=read, weight=weight.detach(), bias=bias))

    def _summands(self, first: Any, second: Any) -> tuple[Any, Any]:
        """Both, what is a constant vector beside a variable one made a variable too."""
        if _carried(first) and _constant(second):
            return first, self._made_variable(second, first)
        if _carried(second) and _constant(first):
            return self._made_variable(first, second), second
        return first, second

    def _made_variable(self, x: Tensor, beside: Tensor) -> Tensor:
        spread = x.detach() + torch.zeros_like(beside)  # as long as both
        return self._leaf(StreamPart("added", spread.clone()))

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
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        centred = precise - precise.mean(axes, keepdim=True) if name == "layer_norm" else precise
        eps = torch.finfo(x.dtype).eps if eps is None else eps
        result = centred * (centred.detach().square().mean(axes, keepdim=True) + eps).rsqrt()
        result = (result if weight is None else result * weight.detach()).to(x.dtype).contiguous()
        return result if bias is None else result + self._made_variable(bias, result)


def _carried(x: Any) -> bool:
    """Whether a tensor depends on a variable."""
    return isinstance(x, Tensor) and x.requires_grad


def _constant(x: Any) -> bool:
    floating = isinstance(x, Tensor) and x.is_floating_point() and x.numel() > 1
    return floating and not x.requires_grad


class ListenedPass(TracedPass):
    """A pass whose gradients are tracked."""

    variables: Sequence[Tensor] = ()  # the values of the leaves, where the pass made them

    def observe(self, rows: Rows) -> None:
        """Take in a block."""
        with torch.no_grad():
            super().observe(rows)

    def derivatives(self, target: Array, towards: Array) -> Sequence[Array | None]:
        """See :class:`~attnviz.models.traced.TracedPass`."""
        if not target.requires_grad or not self.leaves:
            return [None] * len(self.leaves)
        with torch.enable_grad():
            derivatives = torch.autograd.grad(
                target, self.variables, towards,
                retain_graph=True, allow_unused=True, is_grads_batched=True,
            )  # fmt: skip
        return [None if x is None else x.to(target.device) for x in derivatives]


def listened(
    source: Source, inputs: Inputs, parts: Sequence[tuple[Origin, nn.Module]] = ()
) -> TracedPass:
    """Run one text and listen."""
    passed = ListenedPass()
    with Tracing() as tracing, tracing.holding(parts):
        source.forward([inputs], [passed], ForwardRequest(hidden=False, terms=True, grad=True))
    passed.variables = [leaf.value for leaf in tracing.leaves]
    with torch.enable_grad():  # on one device, whichever their layers are on
        passed.leaves = [
            mapped(leaf, lambda x: x.to(passed.variables[0].device)) for leaf in tracing.leaves
        ]
    return passed
