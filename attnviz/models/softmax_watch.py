"""Attention as it runs, by PyTorch's functions or written out: a softmax that meets values.

While :class:`AttentionWatch` is on, the axes of every tensor are followed (:mod:`.axes`). What a
softmax gives (over any axis; also exponentials over their sum) is followed through whatever leaves
its numbers in place, moves or drops some of them or mixes heads, until it meets values: a product
that sums over the axis of the softmax. That product is attention, and what softmax gave its
weights. What cannot be followed so far is said with its reason, and no call is changed or stopped.

Shapes: B batch, H heads, T queries, S keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attnviz.errors import InputError
from attnviz.models.axes import CONVOLUTIONS, JOINS, Axes, lineage
from attnviz.models.tensor_calls import (
    HEADS,
    PRODUCTS,
    SDPA,
    Call,
    Product,
    function_name,
    heads_weights,
    reached,
    sdpa_weights,
    tensors_in,
)
from attnviz.models.weight_layout import (
    Factors,
    Form,
    Info,
    Unread,
    form_of,
    head_factors,
    leaves,
    spread_gates,
)

_SOFTMAXES = frozenset({"softmax", "_softmax", "softmax_"})
_IN_PLACE = frozenset(
    {"dropout", "dropout_", "contiguous", "to", "float", "half", "bfloat16", "double", "type_as"}
    | {"type", "clone", "nan_to_num", "nan_to_num_", "masked_fill", "masked_fill_", "where"}
    | {"detach", "alpha_dropout", "feature_dropout", "native_dropout", "requires_grad_", "data"}
)
_FILLS = frozenset({"nan_to_num", "nan_to_num_", "masked_fill", "masked_fill_", "where"})
"""Those of them that change numbers where they find something to fill."""
_WRITES = frozenset({"__setitem__", "index_copy_", "index_put_", "scatter_", "copy_"})
_TIMES = frozenset({"mul", "__mul__", "__rmul__", "multiply"})
_QUOTIENTS = frozenset({"div", "__truediv__", "true_divide", "divide", "div_", "__itruediv__"})


@dataclass(eq=False)
class Soft:
    """What a softmax gave."""

    weights: Tensor  # as the code has them
    allowed: Tensor  # bool, the keys that each row leaves something to
    dim: int  # the axis of the softmax, from 0
    info: Info  # of the weights
    path: str  # the module that it ran in
    verdict: str = ""  # whether it was found to be attention, or why it is none
    # what its heads were multiplied by, [H], where they were
    gates: tuple[Tensor, Form | None] | None = None

    def form(self) -> Form:
        """Return what its axes count; Unread where that cannot be told."""
        return form_of(self.info, self.dim)


@dataclass(frozen=True, eq=False)
class Trail:
    """What became of a softmax."""

    soft: Soft  # what it gave
    mixed: bool = False  # whether its heads were mixed since
    changed: bool = False  # whether its numbers were otherwise
    valued: bool = False  # whether they were multiplied with values that are not summed up yet
    sinks: int = 0  # how many last places of the softmax were parameters and were cut off since


@dataclass(eq=False)
class Called:
    """What one call of attention did."""

    path: str  # the module that called, by its name in the whole: ``blocks.3.attn``.
    weights: Tensor  # as the code has them
    allowed: Tensor  # bool, as many
    # where they were written out, or of ``scaled_dot_product_attention``; else they are [B, H, T,
    # S]
    soft: Soft | None = None
    # whether keys came from another sequence than queries; None where only their numbers tell
    crosses: bool | None = None
    extra: tuple[str, ...] = ()  # texts of the last keys, which are none of that sequence
    # what a reader must know, without the layer's name
    notes: list[str] = field(default_factory=list)
    gated: bool = True  # whether its heads can be multiplied by gates
    # whether it is a call of the function, whose documented axes count where nothing else tells
    # them
    sdpa: bool = False
    # the axes of queries and of keys, where there is no ``soft``
    tokens: tuple[Factors, Factors] = ((), ())
    # whether queries were made of parameters alone, where there is no ``soft``
    learned: bool = False
    result: Info | None = None  # what is known of what it gave
    # what calls of one head each stand beside each other with it
    partners: list[Called] = field(default_factory=list)


class Listener(Protocol):
    """Who is told of attention."""

    def path(self) -> str | None:
        """Return the module that runs now; None where none of those that are watched does."""

    def called(self, call: Called) -> tuple[Tensor, Form | None] | None:
        """Take in a call; returns gates [H] and the form of its weights, or None."""

    def found(self, soft: Soft) -> None:
        """Take in a softmax that may be attention."""

    def unread(self, path: str, reason: str) -> None:
        """Take in what could not be read."""

    @property
    def is_gating(self) -> bool:
        """Whether any heads are gated."""


_SDPA = "scaled_dot_product_attention"
_ATTENTION = {"softmax", _SDPA, "multi_head_attention_forward"}
"""Functions that are noted where nothing of them can be read."""
_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


class AttentionWatch(TorchFunctionMode):
    """While it is on, tells of every call that is attention.

    Every function is called as it was meant, so that its result is the same to the bit where no
    head is gated. Backward passes are not listened to: what runs there was run before.
    """

    def __init__(self, module: nn.Module, listener: Listener) -> None:
        super().__init__()
        self._axes, self._listener = Axes(module), listener

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Make a call, and see what it is."""
        options = kwargs or {}
        if torch.compiler.is_compiling() or in_backward():  # a compiled part is not seen
            return func(*args, **options)
        call = Call(function_name(func).partition(".")[0], func, args, options)
        if torch._C._functorch.peek_interpreter_stack() is not None:
            if call.name in _ATTENTION:
                self._transformed(call.name)
            return func(*args, **options)
        attention, gates = self._before(call)
        if attention is None or gates is None:
            out = func(*args, **options)
        else:
            out = self._gated(call, attention, gates)
        with self.beside(), torch._C.DisableTorchFunction():
            self._after(call, out, attention)
        return out

    def _transformed(self, name: str) -> None:
        """Note attention inside a transform: its tensors are of no use once that has ended."""
        path = self._listener.path() or ""
        if self._listener.is_gating:
            raise InputError(
                f"heads of {path} cannot be ablated inside torch.vmap or another transform of "
                "torch.func; call the module without it"
            )
        self._listener.unread(
            path,
            f"{name} ran inside torch.vmap or another transform of torch.func, whose tensors end "
            "with it; call the module without it",
        )

    def _kernel(self, operator: Any) -> None:
        """Note an operator for attention, such as those of flash-attn and xformers."""
        path = self._listener.path()
        if path is not None:
            called = str(operator).removesuffix(".default")
            self._listener.unread(
                path,
                f"{called} computes its weights inside a kernel, where nothing sees them; run the "
                "module with scaled_dot_product_attention",
            )

    def wanted(self) -> bool:
        """Whether modules may skip their attention, and are to be run again to see it."""
        return not self._listener.is_gating and not in_backward()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Note what fails in the ``with`` block: the run that is watched goes on."""
        try:
            yield
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            reason = f"it could not be read ({type(error).__name__}: {first[:100]})"
            self._listener.unread(self._listener.path() or "", reason)

    def equate(self, second: Any, first: Any) -> None:
        """Check that what a module gave when it ran again is what it gave."""
        for rerun, original in zip(tensors_in((second,)), tensors_in((first,)), strict=False):
            if rerun.shape == original.shape and rerun in self._axes:
                self._axes[original] = self._axes[rerun]

    def _before(self, call: Call) -> tuple[Called | None, tuple[Tensor, Form | None] | None]:
        """Return what a call is, and the gates of its heads."""
        attention: Called | None = None
        with self.beside(), torch._C.DisableTorchFunction():
            if call.name == _SDPA:
                attention = self._sdpa(call)
            elif call.func is functional.multi_head_attention_forward:
                attention = self._heads(call)
            elif isinstance(call.func, _OPERATORS) and ("attn" in call.name
                                                        or "attention" in call.name):  # fmt: skip
                self._kernel(call.func)
            else:
                attention = self._met(call)
        if attention is None:
            return None, None
        if self._listener.is_gating:  # what cannot be done is refused
            return attention, self._gates_of(attention)
        with self.beside():
            return attention, self._gates_of(attention)
        return None, None

    def _gates_of(self, attention: Called) -> tuple[Tensor, Form | None] | None:
        """Tell of a call, once for weights that meet several values, and take its gates."""
        if attention.soft is None:
            return self._listener.called(attention)
        if attention.soft.verdict != "attention":
            attention.soft.verdict = "attention"
            attention.soft.gates = self._listener.called(attention)
        return attention.soft.gates

    def _gated(self, call: Call, attention: Called, gates: tuple[Tensor, Form | None]) -> Any:
        """Make a call with heads multiplied by their gates."""
        (gate, form), soft = gates, attention.soft
        if soft is None:
            arguments = call.by_name(HEADS)
            weight = arguments["out_proj_weight"]  # which joins heads: [D, H · d]
            columns = gate.to(weight).repeat_interleave(weight.shape[1] // len(gate))
            arguments["out_proj_weight"] = weight * columns
            return call.func(**arguments)
        try:
            heads = head_factors(soft.info, form or ())
            if attention.sdpa:
                out = call.func(*call.args, **call.kwargs)
                return out * spread_gates(gate, heads, (*soft.info.axes[:-2], (), ())).to(out)
            old = next(x for x in call.tensors if self._axes[x].trail is not None)
            new = old * spread_gates(gate, heads, self._axes[old].axes).to(old)
        except Unread as error:
            raise InputError(f"heads of {attention.path} cannot be ablated: {error}") from None
        kwargs = _replaced(tuple(call.kwargs.values()), old, new)
        return call.func(
            *_replaced(call.args, old, new), **dict(zip(call.kwargs, kwargs, strict=True))
        )

    def _sdpa(self, call: Call) -> Called | None:
        path = self._listener.path()
        if path is None:
            return None
        arguments = call.by_name(SDPA)
        query, key = arguments["query"], arguments["key"]
        if query.is_nested or key.is_nested:
            shape = "nested tensors, which have no map of one size"
            self._listener.unread(path, f"scaled_dot_product_attention was called with {shape}")
            return None
        weights, allowed = sdpa_weights(arguments)
        leading = tuple(range(-query.ndim, -2))
        key_leading = tuple(range(-key.ndim, -2))
        labels = ((*leading, "t", "i"), (*key_leading, "s", "i"))
        info = self._axes.multiplied(Product((query, key), labels, (*leading, "t", "s")))
        soft = Soft(weights, allowed, weights.ndim - 1, info, path)
        return Called(path, weights, allowed, soft, sdpa=True)

    def _heads(self, call: Call) -> Called | None:
        path = self._listener.path()
        if path is None:
            return None
        arguments = call.by_name(HEADS)
        if arguments["query"].is_nested:
            self._listener.unread(path, "nn.MultiheadAttention was called with nested tensors")
            return None
        weights, allowed, extra, crosses = heads_weights(arguments)
        query, key = self._axes[arguments["query"]], self._axes[arguments["key"]]
        return Called(path, weights, allowed, None, crosses, extra, learned=bool(query.fixed),
                      tokens=(leaves(query.axes[0]), leaves(key.axes[0])))  # fmt: skip

    def _met(self, call: Call) -> Called | None:
        """Return a product of weights and values."""
        if call.name in ("sum", "nansum"):
            return self._summed(call)
        product = call.product() if call.name in PRODUCTS else None
        if product is None:
            return None
        infos = [self._axes[x] for x in product.operands]
        trails = [k.trail for k in infos]
        if sum(trail is not None for trail in trails) != 1:
            return self._unnormalized(product, infos, trails)
        index = 0 if trails[0] is not None else 1
        trail, value = trails[index], infos[1 - index]
        summed = product.summed(index)
        met = leaves(a for n in summed for a in infos[index].axes[n])
        if value.fixed == "matrix":
            if (
                met
                and met == _soft_leaves(trail.soft)
                and (trail.soft.info.pair or trail.soft.info.lost)
            ):
                self._refuse(trail.soft, "its values are parameters")
            return None
        if set(met) != set(_soft_leaves(trail.soft)) or not summed:
            if not set(met) & set(_soft_leaves(trail.soft)):
                self._misplaced(trail.soft, met)
            else:
                self._refuse(trail.soft, "only a part of its axis meets values")
            return None
        return self._called(trail)

    def _summed(self, call: Call) -> Called | None:
        """Return a sum over keys of weights that were multiplied with values one by one."""
        x = call.argument(0, "input")
        if not isinstance(x, Tensor) or x not in self._axes or self._axes[x].trail is None:
            return None
        info = self._axes[x]
        met = leaves(a for n in call.summed(x.ndim) for a in info.axes[n])
        if not info.trail.valued or set(met) != set(_soft_leaves(info.trail.soft)):
            return None
        attention = self._called(info.trail)
        attention.gated = False
        return attention

    def _called(self, trail: Trail) -> Called:
        soft = trail.soft
        call = Called(soft.path, soft.weights, soft.allowed, soft, gated=not trail.mixed)
        if trail.mixed:
            call.notes.append("heads are mixed after the softmax; maps are those before it")
        if trail.changed:
            call.notes.append("weights are changed after the softmax; maps are those before it")
        elif bool((soft.weights.sum(soft.dim) < 0.999).all()) and not trail.sinks:
            call.notes.append("rows sum to less than 1: more is added up than their exponentials")
        if trail.sinks:
            columns = "1 column" if trail.sinks == 1 else f"{trail.sinks} columns"
            call.notes.append(
                f"the softmax has {columns} of parameters (learned sinks), which meet no values "
                "and are left out; rows sum to what they leave"
            )
        return call

    def _misplaced(self, soft: Soft, met: Sequence[Any]) -> None:
        shape = list(soft.weights.shape)
        places = [n for n, factors in enumerate(soft.info.axes) if set(leaves(factors)) & set(met)]
        over = f"axis {places[0]}" if places else "another axis"
        self._refuse(
            soft, f"the softmax goes over axis {soft.dim} of {shape}; values are summed over {over}"
        )

    def _refuse(self, soft: Soft, reason: str) -> None:
        if not soft.verdict:
            soft.verdict = reason
            self._listener.unread(soft.path, f"{reason} (softmax of {list(soft.weights.shape)})")

    def _unnormalized(
        self, product: Product, infos: list[Info], trails: list[Any]
    ) -> Called | None:
        """Take scores that meet values without a softmax: read only where rows sum to 1."""
        for index in (0, 1):
            pair = infos[index].pair
            if pair is None or trails[index] is not None or infos[1 - index].fixed == "matrix":
                continue
            met = {a.root for n in product.summed(index) for a in leaves(infos[index].axes[n])}
            tokens = any(
                a.role == "data"
                for n in product.summed(index)
                for a in leaves(infos[index].axes[n])
            )
            path = self._listener.path()
            if met and tokens and path is not None and any(met <= side for side in pair.sides):
                call = self._distributed(product, index, path)
                if call is not None:
                    return call
                shape = list(product.operands[index].shape)
                name = f"{pair.function} of scores" if pair.function else "scores without a softmax"
                self._listener.unread(
                    path, f"{name} {shape} meet values; rows that do not sum to 1 are not read"
                )
        return None

    def _distributed(self, product: Product, index: int, path: str) -> Called | None:
        """Weights of no softmax whose rows sum to 1 all the same (sparsemax), or are all zero."""
        weights, (dim, *extra) = product.operands[index], product.summed(index)
        info = replace(self._axes[weights], trail=None)
        numbers = weights.detach().clone()
        sums = numbers.sum(dim).float()
        even = ((sums - 1).abs() < 1e-3) | (sums == 0)
        if extra or not weights.is_floating_point() or bool((numbers < 0).any() | ~even.all()):
            return None
        soft = Soft(numbers, numbers != 0, dim, info, path)
        self._listener.found(soft)
        self._axes[weights] = replace(info, trail=Trail(soft))
        call = self._called(Trail(soft))
        call.notes.append(
            "no softmax was seen, but rows sum to 1; keys of weight 0 count as masked"
        )
        return call

    def _after(self, call: Call, out: Any, attention: Called | None) -> None:
        """Follow the result of a call."""
        name, args = call.name, call.args
        if name == _SDPA:
            arguments = call.by_name(SDPA)
            self._follow_mixed(arguments["query"], arguments["value"], out)
        elif call.func is functional.multi_head_attention_forward:
            query = call.by_name(HEADS)["query"]
            self._follow_mixed(query, query, out[0])
            out = out[0]
            if attention is not None and bool(attention.weights.isnan().any()):
                # without weights the function gives zero where with them it gives NaN
                rows = (out if out.ndim == 3 else out[:, None]).isfinite().all(-1)
                lost = attention.weights.isnan() & rows.t()[:, None, :, None]
                attention.weights = attention.weights.masked_fill(lost, 0.0)
        elif isinstance(out, Tensor | list | tuple):
            inside = bool(call.tensors) or self._listener.path() is not None
            self._axes.follow(call, out, inside)
            if isinstance(out, Tensor):
                self._trail(call, out)
        if isinstance(out, Tensor) and name in JOINS and self._axes[out].calls:
            self._join(self._axes[out].calls)
            self._axes[out] = replace(self._axes[out], calls=())
        if name in _WRITES and isinstance(args[-1], Tensor):
            self._axes.write(args[0], args[-1])
        if name in _WRITES and (trail := self._axes[args[0]].trail) is not None:
            changed = trail.changed or _differ(args[0], trail.soft.weights)
            self._axes[args[0]] = replace(
                self._axes[args[0]], trail=replace(trail, changed=changed)
            )
        if name == "__setitem__" and args[2] in self._axes and len(self._axes[args[2]].calls) == 1:
            info = self._axes[args[0]]
            calls = (*info.calls, *self._axes[args[2]].calls)
            self._axes[args[0]] = replace(info, calls=calls)
            self._join(calls)
        if attention is not None and isinstance(out, Tensor):
            info = replace(self._axes[out], pair=None, calls=(attention,))
            self._axes[out] = attention.result = info

    def _follow_mixed(self, query: Tensor, value: Tensor, out: Tensor) -> None:
        if out.is_nested:
            return
        axes = self._axes[query].axes
        last = self._axes[value].axes[-1]
        width = out.shape[-1]
        new = Axes.features(width) if value is query else last
        self._axes[out] = Info((*axes[:-1], new))

    @staticmethod
    def _join(calls: Sequence[Called]) -> None:
        """Take calls of one head each whose results are put beside each other for one layer."""
        first, *later = dict.fromkeys(calls)
        alike = len({call.weights.shape for call in calls}) == 1
        results = [call.result for call in (first, *later) if call.result is not None]
        alike = alike and len({len(info.axes) for info in results}) == 1
        separate = lineage(results)[0] in ("features", "heads")
        if later and alike and (separate or _share_values((first, *later), results)):
            first.partners = later

    def _trail(self, call: Call, out: Tensor) -> None:
        """Begin to follow a softmax, or follow it on."""
        name, tensors = call.name, call.tensors
        if not tensors:
            return
        first = tensors[0]
        if name in _SOFTMAXES:
            dim = call.argument(1, "dim")
            if dim is None:  # as nn.functional.softmax takes it
                dim = 0 if first.ndim in (0, 1, 3) else 1
            self._found(out, first, int(dim) % max(first.ndim, 1))
        elif name in ("exp", "exp_"):
            scores = out.detach().log() if first is out else first.detach()
            self._axes[out] = replace(self._axes[out], power=scores, total=id(out))
        elif name in _QUOTIENTS and len(tensors) > 1:
            top, bottom = (self._axes[x] for x in tensors[:2])
            if top.power is not None and bottom.total == top.total and bottom.power is None:
                dims = [n for n in range(out.ndim) if tensors[1].shape[n] != out.shape[n]]
                if len(dims) == 1:
                    self._axes[out] = replace(self._axes[out], power=None, total=0)
                    self._found(out, top.power, dims[0])
                    return
            self._carry(name, tensors, out)
        else:
            self._carry(name, tensors, out)

    def _carry(self, name: str, tensors: Sequence[Tensor], out: Tensor) -> None:
        """Follow a softmax through a function that is no view."""
        info = self._axes[out]
        source = next((x for x in tensors if x in self._axes and self._axes[x].trail), None)
        if source is None:
            return
        trail = self._axes[source].trail
        if self._without_sinks(trail, source, out):
            return
        filled = name in _FILLS and _differ(out, trail.soft.weights)
        if source is out:
            if filled or name not in _IN_PLACE:
                self._axes[out] = replace(info, trail=replace(trail, changed=True))
            return
        if info.trail is not None:
            return
        if name in PRODUCTS or name in CONVOLUTIONS:
            point = name in PRODUCTS or set(tensors[1].shape[2:]) == {1}
            matrix = all(self._axes[x].fixed == "matrix" for x in tensors if x is not source)
            remaining = leaves(a for factors in info.axes for a in factors)
            if point and matrix and set(_soft_leaves(trail.soft)) <= set(remaining):
                self._axes[out] = replace(info, trail=replace(trail, mixed=True))
            return
        if name in ("mean", "sum") and self._summed_heads(trail.soft, info):
            self._axes[out] = replace(info, trail=replace(trail, mixed=True))
            return
        if out.ndim < source.ndim or any(
            size not in (1, length)
            for size, length in zip(source.shape[::-1], out.shape[::-1], strict=False)
        ):
            return  # sums and joins end it
        if name in _IN_PLACE:
            changed = trail.changed or filled
            self._axes[out] = replace(info, trail=replace(trail, changed=changed))
        elif out.shape == source.shape or name in _TIMES:
            wider = name in _TIMES and out.shape != source.shape
            changed = trail.changed or not wider
            self._axes[out] = replace(info, trail=replace(trail, changed=changed, valued=wider))

    @staticmethod
    def _summed_heads(soft: Soft, info: Info) -> bool:
        """Whether all queries and keys of a softmax are left, so that heads were summed up."""
        pair, remaining = soft.info.pair, {a for f in info.axes for a in leaves(f)}
        factors = {a for f in soft.info.axes for a in leaves(f)}
        return pair is not None and not any(
            a.root in side for a in factors - remaining for side in pair.sides
        )

    def _without_sinks(self, trail: Trail, source: Tensor, out: Tensor) -> bool:
        """Follow a softmax on without its last places, where these are learned sinks."""
        soft, info = trail.soft, self._axes[out]
        sinks, keys = soft.info.sinks, soft.weights.shape[soft.dim]
        if not sinks or trail.sinks or trail.mixed or source.ndim != out.ndim:
            return False
        shape = [*soft.weights.shape]
        shape[soft.dim] -= sinks
        complete = source.shape == soft.weights.shape and [*out.shape] == shape
        if not complete or out.data_ptr() != source.data_ptr() or out.stride() != source.stride():
            return False
        soft.verdict = "learned sinks are cut off"
        info = replace(info, trail=None, sinks=0)
        cut = Soft(
            soft.weights.narrow(soft.dim, 0, keys - sinks),
            soft.allowed.narrow(soft.dim, 0, keys - sinks),
            soft.dim,
            info,
            soft.path,
        )
        self._listener.found(cut)
        self._axes[out] = replace(info, trail=replace(trail, soft=cut, sinks=sinks))
        return True

    def _found(self, weights: Tensor, scores: Tensor, dim: int) -> None:
        path = self._listener.path()
        info = self._axes[weights]
        if path is None or weights.ndim < 2 or not weights.is_floating_point():
            return
        with torch.no_grad():
            allowed = reached(scores.detach().movedim(dim, -1)).movedim(-1, dim)
            allowed = allowed & (weights.detach() != 0)
            numbers = weights.detach().clone()
        info = replace(info, trail=None)
        soft = Soft(numbers, allowed, dim, info, path)
        self._axes[weights] = replace(info, trail=Trail(soft))
        if info.pair is not None or info.lost:
            self._listener.found(soft)


def _differ(weights: Tensor, original: Tensor) -> bool:
    """Whether weights, perhaps in another order of axes, have other numbers than were kept."""
    a, b = (x.detach().nan_to_num(-1.0).flatten() for x in (weights, original))
    if weights.shape != original.shape:
        a, b = a.sort().values, b.sort().values
    return a.shape != b.shape or not torch.equal(a, b)


def in_backward() -> bool:
    """Whether autograd's backward pass is running, in which checkpointed layers run again."""
    return torch._C._current_graph_task_id() != -1


def _soft_leaves(soft: Soft) -> tuple[Any, ...]:
    return leaves(soft.info.axes[soft.dim])


def _share_values(calls: Sequence[Called], results: Sequence[Info]) -> bool:
    """Whether calls with queries and keys of several matrices have the same tokens and values."""
    sources = {tuple(a.source for f in info.axes for a in leaves(f)) for info in results}
    pairs = [call.soft.info.pair for call in calls if call.soft is not None]
    summed = [Info((pair.summed,)) for pair in pairs if pair is not None]
    separate = len(summed) == len(calls) and lineage(summed)[0] in ("features", "heads")
    return len(sources) == 1 and separate


def _replaced(args: tuple[Any, ...], old: Tensor, new: Tensor) -> tuple[Any, ...]:
    """Give the same arguments with another tensor in the place of one, in lists among them too."""
    return tuple(
        type(x)(_replaced(tuple(x), old, new)) if isinstance(x, list | tuple)
        else new if x is old else x
        for x in args
    )  # fmt: skip
