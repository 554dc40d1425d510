"""What an attention module computes, operation by operation, and which tokens each number is of.

A :class:`Trace` is the list of ATen operations of one call, the same for attention that is written
out, for einsum, ``scaled_dot_product_attention`` and ``nn.MultiheadAttention``. A trace can be run
again with one operation's result changed, which shows what depends on what, and what the module
would give if that step were another. Views, permutations and broadcasts are followed by running
them on the numbers of the places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from attnviz.files import packaged

Change = Callable[[Tensor], Tensor]

_OPERATIONS = packaged(__file__, "operations.toml")
PRODUCTS, VIEWS, ELEMENTWISE, NORMS = (
    frozenset(_OPERATIONS[kind]) for kind in ("products", "views", "elementwise", "norms")
)


@dataclass(eq=False, slots=True)
class Node:
    """One operation of a call."""

    number: int  # its place in the call
    name: str  # of the operation, without namespace and overload
    run: Any  # the operation itself
    args: tuple[Any, ...]  # its arguments, tensors among them as they were then
    kwargs: Mapping[str, Any]  # its keywords
    # the nodes whose results it takes, by the place of the argument, and in its list
    sources: Mapping[tuple[int, int], Node]
    value: Tensor  # what it gave then; of several results the first tensor
    learned: bool  # whether a parameter has a part in it


class InDouble(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What a module turns into fewer bits itself stays in float64, as all of its weights are."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: importing torch's compiler takes seconds, and nothing is compiled here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, to float64 where it is to go to fewer bits."""
        kwargs = kwargs or {}
        dtype = kwargs.get("dtype")
        fewer = isinstance(dtype, torch.dtype) and dtype.is_floating_point
        if func is torch.ops.aten._to_copy.default and fewer and args[0].dtype == torch.float64:
            kwargs = {**kwargs, "dtype": torch.float64}
        return self.ran(func, args, kwargs)

    def ran(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return what an operation gives."""
        return func(*args, **kwargs)


def in_double() -> AbstractContextManager[Any]:
    """Inside the ``with`` block operations run as :class:`InDouble` says, as in every trace."""
    traced = isinstance(_get_current_dispatch_mode(), InDouble)
    return nullcontext() if traced else InDouble()  # type: ignore[no-untyped-call]


class Wrote(Exception):
    """A call writes into a tensor that was there, and it was not to."""


class Trace(InDouble):
    """The operations of one call, in their order.

    ``again``: of a call that was followed before, and wrote nowhere; what its operations give and
    take is kept, and not where that comes from. Raises Wrote where it writes after all.
    """

    def __init__(self, changes: Mapping[int, Change] | None = None, *, again: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._again = again
        self.nodes: list[Node] = []
        self._changes = changes or {}
        self._writer: dict[int, Node] = {}
        self._alive: list[Tensor] = []  # no other tensor gets the number of one that is gone
        self.written = False  # whether an operation has written into a tensor that was there

    def ran(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run an operation and keep it."""
        name, writes = _described(func)
        if writes and not self.written:
            self.written = True
            if self._again:
                raise Wrote
            for node in self.nodes:  # so far nothing that is kept has changed, or needed a copy
                node.args = tuple(map(_copied, node.args))
                node.kwargs = {name: _copied(value) for name, value in node.kwargs.items()}
                node.value = _copied(node.value)
        values = (*args, *kwargs.values())
        sources, learned = ({}, False) if self._again else self._origins(values)
        arguments = tuple(map(_copied, values)) if self.written else values
        result = func(*args, **kwargs)
        number = len(self.nodes)
        if number in self._changes:
            result = _changed(result, self._changes[number])
        tensors = _tensors(result)
        if not tensors:
            return result
        self._alive += tensors
        value = tensors[0].detach()
        node = Node(
            number, name, func, arguments[: len(args)],
            dict(zip(kwargs, arguments[len(args) :], strict=True)), sources,
            _copied(value) if self.written else value, learned,
        )  # fmt: skip
        self.nodes.append(node)
        for tensor in tensors:
            self._writer[id(tensor)] = node
        if writes and isinstance(result, Tensor):
            self._rewritten(result, node)
        return result

    def _origins(self, values: Sequence[Any]) -> tuple[dict[tuple[int, int], Node], bool]:
        """Find the nodes that made some arguments, and whether a parameter has a part in them."""
        sources: dict[tuple[int, int], Node] = {}
        learned = False
        for slot, value in enumerate(values):
            for index, tensor in enumerate(value if isinstance(value, list | tuple) else (value,)):
                if isinstance(tensor, Tensor):
                    learned = learned or tensor.requires_grad
                    if id(tensor) in self._writer:
                        sources[slot, index] = self._writer[id(tensor)]
        return sources, learned or any(source.learned for source in sources.values())

    def _rewritten(self, changed: Tensor, node: Node) -> None:
        """Copy what is written into a view into what it is a view of, and into its other views."""
        storage = changed.untyped_storage().data_ptr()
        for tensor in self._alive:
            writer = self._writer.get(id(tensor))
            if writer in (None, node) or tensor.untyped_storage().data_ptr() != storage:
                continue
            value = tensor.detach().clone()
            copied = Node(len(self.nodes), "copy_", None, (writer.value, node.value), {},
                         {(0, 0): writer}, value, node.learned)  # fmt: skip
            self.nodes.append(copied)
            self._writer[id(tensor)] = copied


@cache
def _described(operation: Any) -> tuple[str, bool]:
    """Return an operation's name, without namespace and overload, and whether it writes."""
    schema = operation._schema
    return schema.name.rpartition("::")[2], schema.is_mutable


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _tensors(result: Any) -> list[Tensor]:
    several = result if isinstance(result, list | tuple) else (result,)
    return [tensor for tensor in several if isinstance(tensor, Tensor)]


def _changed(result: Any, change: Change) -> Any:
    if isinstance(result, Tensor):
        return change(result)
    first, *remaining = result
    return (change(first), *remaining)


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Inside the ``with`` block attention is computed by plain operations, which can be traced."""
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as undo:
        undo.callback(torch.backends.mha.set_fastpath_enabled, fast)
        torch.backends.mha.set_fastpath_enabled(False)
        undo.enter_context(sdpa_kernel(SDPBackend.MATH))
        undo.enter_context(torch.no_grad())
        yield


@dataclass(eq=False)
class Recorded:
    """A call that can be made again, with the operations of its first run."""

    # makes it with these inputs, and gives what the module returns, [B, T, D]
    call: Callable[[Sequence[Tensor]], Tensor]
    inputs: Sequence[Tensor]  # [B, T, D] each; several for queries, keys and values of their own
    # what takes the place of operations' results, in every run
    changes: Mapping[int, Change] = field(default_factory=dict)
    nodes: list[Node] = field(init=False)
    output: Tensor = field(init=False)
    # whether no run has written anywhere so far; None before the first
    _again: bool | None = field(init=False, default=None)
    _runs: dict[tuple[int, int, int], tuple[list[Node], Tensor]] = field(
        init=False, default_factory=dict
    )
    _touched: dict[int, Tensor] = field(init=False, default_factory=dict)
    _moves: dict[int, bool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes, self.output = self.run()

    def run(
        self, changes: Mapping[int, Change] | None = None, inputs: Sequence[Tensor] | None = None
    ) -> tuple[list[Node], Tensor]:
        """Make the call once more, with some results changed or with other inputs."""
        trace = Trace({**self.changes, **(changes or {})}, again=bool(self._again))
        with plain_kernels(), trace, suppress(Wrote):
            output = self.call(self.inputs if inputs is None else inputs)
        if self._again and trace.written:  # as it did not the first time
            self._again = False
            return self.run(changes, inputs)
        if self._again is None:
            self._again = not trace.written
        return trace.nodes, output.detach()

    @property
    def tokens(self) -> list[tuple[int, int, int]]:
        """Every token as (input, item, position)."""
        return [
            (number, item, position)
            for number, x in enumerate(self.inputs)
            for item in range(x.shape[0])
            for position in range(x.shape[1])
        ]

    def touched(self, node: Node) -> Tensor:
        """Which numbers of a node move with which token, bool [tokens, *shape]."""
        if node.number not in self._touched:
            self._touched[node.number] = torch.stack(
                [_differs(nodes[node.number].value, node.value) for nodes, _ in self._perturbed()]
            )
        return self._touched[node.number]

    def touched_argument(self, node: Node, slot: int) -> Tensor:
        """Return the same of an argument of a node."""
        argument = node.args[slot]
        return torch.stack(
            [_differs(nodes[node.number].args[slot], argument) for nodes, _ in self._perturbed()]
        )

    def output_touched(self) -> Tensor:
        """Return the same of what the module returns."""
        return torch.stack([_differs(output, self.output) for _, output in self._perturbed()])

    def _perturbed(self) -> Iterator[tuple[list[Node], Tensor]]:
        for token in self.tokens:
            if token not in self._runs:
                number, item, position = token
                inputs = [x.clone() for x in self.inputs]
                shift = torch.linspace(0.3, 0.7, inputs[number].shape[2], dtype=torch.float64)
                inputs[number][item, position] += shift
                self._runs[token] = self.run(inputs=inputs)
            yield self._runs[token]

    def moved(self, node: Node, places: Tensor) -> Tensor:
        """Say which outputs move with some numbers of a node's result, bool like the output."""
        bumps = torch.linspace(0.5, 1.5, places.numel(), dtype=torch.float64).reshape(places.shape)
        _, output = self.run({node.number: lambda value: value + bumps * places})
        return _differs(output, self.output)

    def moves(self, node: Node, targets: Sequence[Node]) -> bool:
        """Whether one of some later nodes moves with what a node gives."""
        if not targets:
            return False
        bumps = torch.linspace(0.5, 1.5, node.value.numel(), dtype=torch.float64)
        nodes, _ = self.run({node.number: lambda value: value + bumps.reshape(value.shape)})
        return any(bool(_differs(nodes[n.number].value, n.value).any()) for n in targets)

    def moves_inputs(self, node: Node) -> bool:
        """Whether anything of a node moves with any token."""
        if node.number not in self._moves:
            self._moves[node.number] = any(
                bool(_differs(nodes[node.number].value, node.value).any())
                for nodes, _ in self._perturbed()
            )
        return self._moves[node.number]

    def moving(self, node: Node) -> list[tuple[int, int]]:
        """List the arguments of a node that move with tokens, as its ``sources`` name them."""
        return [slot for slot, source in node.sources.items() if self.moves_inputs(source)]


def _differs(a: Tensor, b: Tensor) -> Tensor:
    if a.shape != b.shape:
        return torch.ones(b.shape, dtype=torch.bool)
    if not a.dtype.is_floating_point:
        return a != b
    differing = (a - b).abs() > 1e-11 * (1 + b.abs())
    return differing | (a.isnan() != b.isnan()) | (a.isinf() != b.isinf())


def moved_places(node: Node, places: Tensor, source: tuple[int, int]) -> Tensor:
    """Run an operation on places of ``source`` for its numbers; -1 for what is of none."""
    slot, index = source
    if node.name in ELEMENTWISE or node.name in {"_softmax", "_safe_softmax", "softmax", "div"}:
        shape = node.value.shape
        return places.expand(shape) if places.shape != shape else places
    args = list(node.args)
    if node.name == "cat":
        parts = [
            places if number == index else torch.full(t.shape, -1)
            for number, t in enumerate(args[0])
        ]
        return torch.cat(parts, *args[1:])
    if node.name in {"native_dropout", "_to_copy", "to", "detach", "alias", "lift_fresh", "copy"}:
        return places
    if node.name in {"view", "_unsafe_view", "reshape"}:  # of numbers that may stand otherwise
        return places.reshape(node.value.shape)
    args[slot] = places
    moved = node.run(*args, **node.kwargs)
    first = moved if isinstance(moved, Tensor) else moved[0]
    return first if first.shape == node.value.shape else places.reshape(node.value.shape)


def factors(product: Node) -> tuple[int, int]:
    """Return the numbers of a product's two factors among its arguments."""
    return (1, 2) if product.name in {"addmm", "baddbmm"} else (0, 1)
