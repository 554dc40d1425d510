"""What the axes of tensors stand for, followed while somebody else's code runs.

Nothing is known by name. Every axis of a tensor is a sequence of factors (:mod:`.weight_layout`): a
view splits and joins them, a transpose moves them, a product contracts one and keeps others, a
matrix of parameters makes a new one of features. :mod:`.weight_layout` tells what the axes
of weights count from what is known of scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from attnviz.models.tensor_calls import PRODUCTS, Call, Product
from attnviz.models.weight_layout import PARTLY, Axis, Factors, Info, Pair, Role, kin_of, leaves

_RANK = {"features": 3, "heads": 3, "data": 2, "parameters": 1, "constant": 0, "unknown": 0}


_MOVES = frozenset(
    {"permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "adjoint"}
    | {"T", "mT", "H", "mH", "transpose_", "t_", "swapaxes_"}
)
_VIEWS = frozenset(
    {"view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "ravel", "view_as"}
    | {"reshape_as", "squeeze_", "unsqueeze_", "_unsafe_view", "_reshape_alias"}
)
_REDUCTIONS = frozenset(
    {"sum", "mean", "amax", "amin", "max", "min", "logsumexp", "var", "std", "norm", "prod", "any"}
    | {"all", "argmax", "argmin", "nansum", "median"}
)
_WHOLE = frozenset({"split", "chunk", "tensor_split", "hsplit", "vsplit", "split_with_sizes"})
_PARTS = frozenset(
    {"repeat_interleave", "index_select", "narrow", "select", "pad", "unfold"}
    | {f"{kind}_pool{n}d" for kind in ("avg", "max", "_max") for n in (1, 2, 3)}
    | {"interpolate"}
)
CONVOLUTIONS = frozenset(f"conv{n}d" for n in (1, 2, 3))
JOINS = frozenset({"cat", "concat", "concatenate", "stack"})
_BOUNDED = frozenset({"sigmoid", "sigmoid_", "relu", "relu_", "softplus", "tanh", "elu"})


class Axes:
    """What is known of the tensors of a run."""

    def __init__(self, module: nn.Module) -> None:
        self._infos: Any = WeakIdKeyDictionary()
        self._buffers = {id(buffer) for buffer in module.buffers()}

    def __contains__(self, x: object) -> bool:
        return isinstance(x, Tensor) and x in self._infos

    def __getitem__(self, x: Tensor) -> Info:
        """Give what is known of a tensor; of one that was not seen before, that it is an input."""
        info: Info | None = self._infos.get(x)
        if info is None or len(info.axes) != x.ndim:
            fixed = isinstance(x, nn.Parameter) or id(x) in self._buffers
            info = Info(
                _fresh(x.shape, "parameters" if fixed else "data"), "matrix" if fixed else ""
            )
            self._infos[x] = info
        return info

    def __setitem__(self, x: Tensor, info: Info) -> None:
        self._infos[x] = info

    def follow(self, call: Call, out: Any, inside: bool) -> None:
        """Say of the result of a call what its axes are."""
        if isinstance(out, list | tuple):
            self._several(call, out)
        elif isinstance(out, Tensor):
            if not call.tensors or call.name.startswith("new_") or call.name.endswith("_like"):
                role: Role = "constant" if inside else "data"
                self[out] = Info(_fresh(out.shape, role), "matrix" if inside else "")
            else:
                _RULES.get(call.name, Axes._elementwise)(self, call, out)

    def write(self, x: Tensor, value: Tensor) -> None:
        """Note that places of a tensor, it is not known which, hold another now."""
        info, written = self[x], self[value]
        if x.ndim != value.ndim:
            return
        axes = list(info.axes)
        for n, (old, incoming) in enumerate(zip(axes, map(leaves, written.axes), strict=True)):
            if len(leaves(old)) == 1 and all(axis.role == "data" for axis in incoming):
                role = leaves(old)[0].role
                new_axis = Axis(x.shape[n], "data" if role == "constant" else role)
                new_axis.kin = (PARTLY, *kin_of(incoming))
                axes[n] = (new_axis,) if role in ("constant", "data") else old
        self[x] = replace(info, axes=tuple(axes), fixed=info.fixed and written.fixed)

    def _several(self, call: Call, out: Sequence[Any]) -> None:
        """Of pieces of a tensor, and of several results."""
        for part in out:
            if isinstance(part, Tensor) and call.tensors:
                if call.name in _WHOLE or call.name == "unbind":
                    self._part(call, part)
                elif call.name in _REDUCTIONS:
                    self._reduced(call, part)
                else:
                    self._opaque(call, part)

    def _moved(self, call: Call, out: Tensor) -> None:
        """Of axes in another order, which an empty tensor of lengths 2, 3, … shows."""
        info = self[call.tensors[0]]
        empty = torch.empty(tuple(range(2, 2 + call.tensors[0].ndim)), device="meta")
        options = {n: value for n, value in call.kwargs.items() if not isinstance(value, Tensor)}
        order = call.func(empty, *call.args[1:], **options).shape
        self[out] = replace(info, axes=tuple(info.axes[n - 2] for n in order))

    def _seen_as(self, call: Call, out: Tensor) -> None:
        info = self[call.tensors[0]]
        self[out] = replace(info, axes=_viewed(info.axes, out.shape))

    def _complex(self, call: Call, out: Tensor) -> None:
        """Of two numbers as one and back."""
        info = self[call.tensors[0]]
        parts = Axis(2, *lineage_of(info.axes[-1]))
        axes = info.axes[:-1] if call.name == "view_as_complex" else (*info.axes, (parts,))
        self[out] = replace(info, axes=axes)

    def _product(self, call: Call, out: Tensor) -> None:
        product = call.product()
        if product is None:
            self._opaque(call, out)
            if len(call.tensors) > 2:  # of more than two, as einsum takes them
                self[out] = replace(self[out], lost=call.name)
        else:
            self[out] = self.multiplied(product, call.name == "linear")

    def multiplied(self, product: Product, layer: bool = False) -> Info:
        """Return what is known of the result of a product, which a linear layer takes of tokens."""
        a, b = (self[x] for x in product.operands)
        if layer and a.fixed == b.fixed == "matrix":
            a = replace(a, fixed="tokens")
        axes: list[Factors] = []
        shared: list[tuple[Factors, Factors]] = []
        sides: tuple[set[Axis], set[Axis]] = (set(), set())
        matrix = "matrix" in (a.fixed, b.fixed)
        for label in product.out:
            left, right = (
                info.axes[labels.index(label)] if label in labels else ()
                for info, labels in zip((a, b), product.labels, strict=True)
            )
            if left and right:
                shared.append((leaves(left), leaves(right)))
                axes.append(max(left, right, key=_evidence))
                continue
            factors = leaves(left or right)
            if matrix:
                table = (a if left else b).fixed == "matrix" and a.fixed != b.fixed
                axes.append(tuple(map(_made, factors)) if table else factors)
                continue
            copies = tuple(axis.copy() for axis in factors)
            sides[0 if left else 1].update(copies)
            axes.append(copies)
        contracted = [
            axis
            for info, labels, index in zip((a, b), product.labels, (0, 1), strict=True)
            for n in product.summed(index)
            for axis in leaves(info.axes[n])
            if labels
        ]
        if matrix:
            return self._mixed(a, b, tuple(axes), contracted)
        pair = Pair(
            (frozenset(sides[0]), frozenset(sides[1])),
            tuple(shared),
            frozenset(axis.home for axis in contracted),
            bool(contracted) and all(axis.role == "data" for axis in contracted),
            (bool(a.fixed), bool(b.fixed)),
            tuple(contracted),
        )
        fixed = "tokens" if a.fixed and b.fixed else ""
        return Info(tuple(axes), fixed, pair)

    @staticmethod
    def features(size: int) -> Factors:
        """Return a new axis that a matrix made."""
        return _fresh((size,), "features")[0]

    @staticmethod
    def _mixed(a: Info, b: Info, axes: tuple[Factors, ...], contracted: list[Axis]) -> Info:
        """Return what a matrix of parameters makes; scores stay scores unless it mixes tokens."""
        if a.fixed == b.fixed == "matrix":
            return Info(axes, "matrix")
        data = b if a.fixed == "matrix" else a
        info = Info(axes, "tokens" if data.fixed else "")
        roots = {axis.root for axis in contracted}
        if data.pair is not None and not roots & (data.pair.sides[0] | data.pair.sides[1]):
            info = replace(info, pair=data.pair)
        return info

    def _elementwise(self, call: Call, out: Tensor) -> None:
        """Of sums, masks and functions of each number: the axes that its operands have."""
        name = call.name
        operands = call.tensors[:1] if name in ("type_as", "to") else call.tensors
        if not _broadcast(operands, out):
            if operands[0].shape != out.shape:
                self._opaque(call, out)
                return
            operands = operands[:1]  # such as a normalization, whose parameters are one a channel
        info = next((self[x] for x in operands if x is out), None)
        if info is not None and info.axes:  # in place, or nothing was to do
            if name in _BOUNDED and info.pair is not None:
                self[out] = replace(info, pair=replace(info.pair, function=name.rstrip("_")))
            return
        infos = [self[x] for x in operands]
        first = next((k for k in infos if k.pair is not None), None)
        order = [first, *(k for k in infos if k is not first)] if first is not None else infos
        axes: list[Factors] = []
        for dim in range(-out.ndim, 0):
            candidates = [k.axes[dim] for k in order if len(k.axes) >= -dim and k.axes[dim]]
            if first is not None and len(first.axes) >= -dim and first.axes[dim]:
                axes.append(first.axes[dim])
            else:
                axes.append(max(candidates, key=_evidence, default=()))
                for candidate in candidates if first is None else ():
                    _link(axes[-1], candidate)
        fixed = {k.fixed for k in infos}
        lead = infos[0]
        result = Info(
            tuple(axes),
            "" if "" in fixed else "tokens" if "tokens" in fixed else "matrix",
            None if first is None else first.pair,
            power=lead.power,
            total=lead.total,
            calls=lead.calls if len(infos) == 1 else (),
            lost=next((k.lost for k in infos if k.lost), ""),
            sinks=max(k.sinks for k in infos),
        )
        if name in _BOUNDED and result.pair is not None:
            result = replace(result, pair=replace(result.pair, function=name.rstrip("_")))
        floats = [x for x in operands if x.is_floating_point()]
        if first is None and len(operands) == len(floats) == 2 and "matrix" not in fixed:
            result = self._crossed(result, infos)
        self[out] = result

    @staticmethod
    def _crossed(result: Info, infos: list[Info]) -> Info:
        """Scores where a sum or a product holds every token of one beside every one of another."""
        sides: tuple[set[Axis], set[Axis]] = (set(), set())
        shared: list[tuple[Factors, Factors]] = []
        axes = list(result.axes)
        for dim in range(-len(axes), 0):
            left, right = (k.axes[dim] if len(k.axes) >= -dim else () for k in infos)
            if left and right:
                shared.append((leaves(left), leaves(right)))
            elif left or right:
                copies = tuple(axis.copy() for axis in leaves(left or right))
                sides[0 if left else 1].update(copies)
                axes[dim] = copies
        if not all(any(axis.role == "data" for axis in side) for side in sides):
            return result
        learned = (bool(infos[0].fixed), bool(infos[1].fixed))
        roots = (frozenset(sides[0]), frozenset(sides[1]))
        pair = Pair(roots, tuple(shared), frozenset(), False, learned)
        return replace(result, axes=tuple(axes), pair=pair)

    def _opaque(self, call: Call, out: Tensor) -> None:
        """Of a function that is not known: axes that stay where they are with their length."""
        operands = call.tensors
        info = self[operands[0]]
        axes = _fresh(out.shape, "unknown")
        if out.ndim == operands[0].ndim:
            axes = tuple(
                old if size == length and all(axis.role == "data" for axis in leaves(old)) else new
                for old, new, size, length in zip(
                    info.axes, axes, out.shape, operands[0].shape, strict=True
                )
            )
        scores = any(self[x].pair is not None or self[x].lost for x in operands)
        fixed = "tokens" if all(self[x].fixed for x in operands) else ""
        self[out] = Info(axes, fixed, lost=call.name if scores else "")

    def _spread(self, call: Call, out: Tensor) -> None:
        """Of copies along axes, which stand before what they copy."""
        x = call.tensors[0]
        info = self[x]
        axes: list[Factors] = []
        for dim in range(-out.ndim, 0):
            size = x.shape[dim] if x.ndim >= -dim else 1
            times = out.shape[dim] // size if size else 1
            copies = (Axis(times, "constant"),) if times > 1 else ()
            axes.append((*copies, *(info.axes[dim] if x.ndim >= -dim else ())))
        fixed = "tokens" if info.fixed and tuple(axes) != info.axes else info.fixed
        self[out] = replace(info, axes=tuple(axes), fixed=fixed)

    def _part(self, call: Call, out: Tensor) -> None:
        """Of a piece of a tensor along one axis, which goes where a single place is chosen."""
        x, drops = call.tensors[0], call.name in ("unbind", "select")
        info = self[x]
        if drops:
            axis = call.axis(x.ndim)
            axes = tuple(a for n, a in enumerate(info.axes) if n != axis)
            axes = _at_one_place(axes, info.axes[axis])
            self[out] = replace(info, axes=axes, pair=None, trail=None)
        elif out.ndim == x.ndim:
            self[out] = replace(
                info,
                axes=tuple(
                    a if size == old else _cut(a, size)
                    for a, size, old in zip(info.axes, out.shape, x.shape, strict=True)
                ),
            )
        elif out.ndim == x.ndim + 1 and call.name == "unfold":  # windows along an axis
            axis = call.axis(x.ndim)
            axes = tuple(_cut(a, out.shape[n]) if n == axis else a for n, a in enumerate(info.axes))
            self[out] = Info((*axes, *_fresh(out.shape[-1:], "data")), info.fixed)
        else:
            self._opaque(call, out)

    def _reduced(self, call: Call, out: Tensor) -> None:
        """Of a sum, a mean or a maximum along axes."""
        x = call.tensors[0]
        if call.name in _REDUCTIONS and out.shape == x.shape:
            self._elementwise(call, out)
            return
        info = self[x]
        axes: tuple[Factors, ...] = ()
        if out.ndim == x.ndim:
            axes = tuple(
                a if size == old else ()
                for a, size, old in zip(info.axes, out.shape, x.shape, strict=True)
            )
        elif out.ndim:
            summed = call.summed(x.ndim)
            axes = tuple(a for n, a in enumerate(info.axes) if n not in summed)
        if len(axes) != out.ndim:
            self._opaque(call, out)
            return
        pair = info.pair
        if pair is not None:
            roots = {axis.root for axis in leaves(a for factors in axes for a in factors)}
            has_both = all(not side or side & roots for side in pair.sides)
            pair = pair if has_both else None
            lost = [a for a in leaves(a for f in info.axes for a in f) if a.root not in roots]
            if pair is not None:
                homes = pair.contracted | {axis.home for axis in lost}
                pair = replace(pair, contracted=homes)
        self[out] = Info(axes, info.fixed, pair, total=info.total if info.power is not None else 0)

    def _indexed(self, call: Call, out: Tensor) -> None:
        """Of what indices choose."""
        x, index = call.args
        info = self[x]
        items = list(index) if isinstance(index, tuple) else [index]
        advanced = [i for i in items if isinstance(i, Tensor | list) and not isinstance(i, bool)]
        masks = [i for i in advanced if isinstance(i, Tensor) and i.dtype == torch.bool]
        if masks or len(advanced) > 1:
            self._opaque(call, out)
            return
        consumed = sum(1 for i in items if i is not None and i is not Ellipsis)
        if not any(i is Ellipsis for i in items):
            items.append(Ellipsis)
        axes: list[Factors] = []
        chosen: list[Axis] = []
        dim = 0
        for item in items:
            if item is None:
                axes.append(())
            elif item is Ellipsis:
                axes += info.axes[dim : dim + x.ndim - consumed]
                dim += x.ndim - consumed
            elif isinstance(item, Tensor) and item.ndim > 1:  # as an embedding
                axes += self[item].axes
                if not self[item].fixed:
                    info = replace(info, fixed="")
                dim += 1
            else:
                size = out.shape[len(axes)] if len(axes) < out.ndim else 0
                if isinstance(item, slice | list) or (isinstance(item, Tensor) and item.ndim):
                    full = size == x.shape[dim] and isinstance(item, slice)
                    axes.append(info.axes[dim] if full else _cut(info.axes[dim], size))
                else:
                    chosen += info.axes[dim]
                dim += 1
        if len(axes) != out.ndim:
            self._opaque(call, out)
            return
        if info.fixed == "matrix":
            _part_rows(axes)
        self[out] = replace(info, axes=_at_one_place(axes, chosen))

    def _joined(self, call: Call, out: Tensor) -> None:
        """Of tensors side by side."""
        operands, dim = call.tensors, call.axis(out.ndim)
        operands = tuple(x for x in operands if x.numel()) or operands  # an empty cache
        infos = [self[x] for x in operands]
        if call.name != "stack" and len(operands) == 1:
            self[out] = replace(infos[0], calls=())
            return
        best = max(infos, key=lambda k: sum(map(_evidence, k.axes), (0, 0)))
        calls = tuple(call for k in infos for call in k.calls)
        calls = calls if all(len(k.calls) == 1 for k in infos) and len(infos) > 1 else ()
        fixed = "" if any(not k.fixed for k in infos) else best.fixed
        if call.name == "stack":
            axes = list(best.axes)
            axes.insert(dim, (Axis(len(operands), *lineage(infos)),) if len(operands) > 1 else ())
        else:
            axes = list(best.axes)
            sizes = {x.shape[dim] for x in operands}
            old = [leaves(k.axes[dim]) for k in infos]
            alike = all(_sources(o) == _sources(old[0]) for o in old)
            stacked = old[0] or (sizes == {1} and not _follow_on(infos, dim))
            if len(operands) > 1 and len(sizes) == 1 and alike and stacked:
                role, like = lineage(infos, dim)
                axes[dim] = (Axis(len(operands), role, like), *old[0])
            else:
                axes[dim] = _cut(max((k.axes[dim] for k in infos), key=_evidence), out.shape[dim])
                kin = tuple(home for k in infos for home in kin_of(k.axes[dim]))
                for axis in axes[dim]:
                    axis.kin = kin
        scores = infos[0].pair is not None and len(operands) > 1
        learned = scores and all(k.fixed and k.pair is None for k in infos[1:])
        sinks = sum(x.shape[dim] for x in operands[1:]) if learned and call.name != "stack" else 0
        self[out] = Info(tuple(axes), fixed, best.pair, calls=calls, sinks=sinks)

    def _embedded(self, call: Call, out: Tensor) -> None:
        """Of a table's rows that ids choose."""
        ids = call.argument(0, "input")
        width = _fresh(out.shape[-1:], "features")
        fixed = self[ids].fixed if ids in self else ""
        self[out] = Info((*self[ids].axes, *width), "tokens" if fixed else "")

    def _convolved(self, call: Call, out: Tensor) -> None:
        """Of a convolution: new features, and places that it moves over."""
        x, kernel = call.tensors[:2]
        info = self[x]
        channel = 1 if out.ndim == kernel.ndim else 0
        axes = [
            tuple(map(_made, leaves(self[kernel].axes[0])))
            if n == channel
            else info.axes[n]
            if size == x.shape[n]
            else _cut(info.axes[n] or (Axis(2, "data"),), size)
            for n, size in enumerate(out.shape)
        ]
        pair = info.pair
        if pair is not None and any(
            axis.root in pair.sides[0] | pair.sides[1] for axis in leaves(info.axes[channel])
        ):
            pair = None
        self[out] = Info(tuple(axes), "tokens" if info.fixed else "", pair)


def _fresh(shape: Iterable[int], role: Role) -> tuple[Factors, ...]:
    """Return a factor for every axis longer than 1."""
    return tuple((Axis(size, role),) if size > 1 else () for size in shape)


def _evidence(factors: Factors) -> tuple[int, int]:
    """How much factors tell: what they count, and how finely."""
    parts = leaves(factors)
    return max((_RANK[axis.role] for axis in parts), default=-1), len(parts)


def _part_rows(axes: Iterable[Factors]) -> None:
    """Note that rows of a matrix are a matrix of their own."""
    for axis in leaves(a for factors in axes for a in factors):
        if axis.source is axis and axis.home is not axis:
            axis.kin = (axis,)


def _made(axis: Axis) -> Axis:
    """Return the features that an axis of a matrix gives, whose kin they are."""
    features = Axis(axis.size, "features")
    features.kin = axis.kin
    return features


def _link(first: Factors, second: Factors) -> None:
    """Note that two axes of inputs count the same places."""
    for mine, theirs in zip(leaves(first), leaves(second), strict=False):
        if (mine.size, mine.role, theirs.role) == (theirs.size, "data", "data"):
            for home, twin in zip(kin_of((theirs,)), kin_of((mine,)), strict=False):
                if home is not twin and len(mine.kin) == len(theirs.kin):
                    home.twin = twin


def _broadcast(operands: Iterable[Tensor], out: Tensor) -> bool:
    """Whether a result has the shape of its operands side by side."""
    shapes = [x.shape for x in operands]
    return max(map(len, shapes)) == out.ndim and all(
        size == max(sizes := [s[dim] for s in shapes if len(s) >= -dim]) and {*sizes} <= {1, size}
        for dim, size in zip(range(-out.ndim, 0), out.shape, strict=True)
    )


def _cut(factors: Factors, size: int) -> Factors:
    """Return a piece of an axis, or more than it: one factor of the same origin."""
    if size <= 1:
        return ()
    parts = leaves(factors)
    if not parts:
        return (Axis(size, "data"),)
    for n in range(1, len(parts)):
        if prod(axis.size for axis in parts[n:]) == size:  # one place of the factors before them
            return _at_one_place([parts[n:]], parts[n:])[0]
    best = max(parts, key=lambda axis: _RANK[axis.role])
    alike = all(axis.root is parts[0].root for axis in parts)
    roles = {axis.role for axis in parts}
    if not alike and "features" in roles and roles - {"features", "heads"}:
        return (Axis(size, "unknown"),)
    return (Axis(size, best.role, best),)


def _at_one_place(axes: Iterable[Factors], chosen: Iterable[Axis]) -> tuple[Factors, ...]:
    """Return what is left of axes at one place of others: of a head its own piece of features."""
    if not any(axis.role in ("features", "heads") for axis in leaves(chosen)):
        return tuple(axes)
    return tuple(
        tuple(Axis(a.size, a.role, a) if a.role == "features" else a for a in leaves(factors))
        for factors in axes
    )


def lineage(infos: Sequence[Info], dim: int | None = None) -> tuple[Role, Axis | None]:
    """Return what a new axis counts along which tensors of one shape stand beside each other."""
    factors = [[leaves(a) for n, a in enumerate(k.axes) if n != dim] for k in infos]
    if all(k.pair is not None for k in infos):  # scores, by what was summed up
        factors = [[*axes, k.pair.summed] for axes, k in zip(factors, infos, strict=True) if k.pair]
    differ = [n for n in range(len(factors[0])) if len({_sources(axes[n]) for axes in factors}) > 1]
    parts_of = [[a for n in differ for a in axes[n]] for axes in factors]
    common = set.intersection(*({a.source for a in axes} for axes in parts_of))
    separate = [[a for a in axes if a.source not in common] for axes in parts_of]
    parts = [axis for axes in separate for axis in axes]
    if not parts:
        return "data", None
    homes = {tuple(dict.fromkeys(axis.home for axis in axes)) for axes in separate}
    if len(homes) == len({part.role for part in parts}) == 1:
        return parts[0].role, parts[0]  # pieces of the same axes, such as chunks of features
    if all(part.role == "features" for part in parts):
        # what several matrices made of the same tokens; what one made of several is no head
        return "heads" if len(set(map(kin_of, separate))) == len(infos) else "data", None
    return "data", None


def _follow_on(infos: Sequence[Info], dim: int) -> bool:
    """Whether one matrix made these features, each time of other tokens, as a cache has them."""
    factors = [leaves(x for n, a in enumerate(k.axes) if n != dim for x in a) for k in infos]
    features = [[axis for axis in axes if axis.role == "features"] for axes in factors]
    homes = {tuple(axis.home for axis in axes) for axes in features}
    return len(homes) == len(infos) and len({kin_of(axes) for axes in features}) == 1


def lineage_of(factors: Factors) -> tuple[Role, Axis | None]:
    """Return what pieces of an axis count, and where they come from."""
    parts = leaves(factors)
    return (parts[-1].role, parts[-1]) if parts else ("constant", None)


def _sources(factors: Factors) -> Factors:
    return tuple(axis.source for axis in leaves(factors))


def _viewed(axes: Sequence[Factors], shape: Sequence[int]) -> tuple[Factors, ...]:
    """Return the factors of a view's axes; new ones where they cannot be split as it does."""
    queue = list(leaves(a for factors in axes for a in factors))
    queue.reverse()
    result: list[Factors] = []
    for size in shape:
        remaining, group = size, list[Axis]()
        while remaining > 1 and queue:
            axis = queue.pop()
            if remaining % axis.size == 0:
                group.append(axis)
                remaining //= axis.size
            elif axis.size % remaining == 0:
                first, second = axis.split(remaining)
                group.append(first)
                queue.append(second)
                remaining = 1
            else:
                return _fresh(shape, "unknown")
        if remaining > 1:
            return _fresh(shape, "unknown")
        result.append(tuple(group))
    # a part of an axis that is joined with the features behind it is a head
    for axis, following in (pair for factors in result for pair in pairwise(factors)):
        if following.role == "features" and axis.role in ("data", "unknown") and axis.parent:
            axis.is_head = True
    return tuple(result)


_RULES: Mapping[str, Callable[[Axes, Call, Tensor], None]] = {
    **dict.fromkeys(_MOVES, Axes._moved),
    **dict.fromkeys(_VIEWS, Axes._seen_as),
    **dict.fromkeys(("view_as_complex", "view_as_real"), Axes._complex),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to", "repeat", "tile"), Axes._spread),
    **dict.fromkeys(_PARTS, Axes._part),
    "__getitem__": Axes._indexed,
    **dict.fromkeys(JOINS, Axes._joined),
    "embedding": Axes._embedded,
    **dict.fromkeys(CONVOLUTIONS, Axes._convolved),
    **dict.fromkeys(PRODUCTS, Axes._product),
    **dict.fromkeys(_REDUCTIONS, Axes._reduced),
}
"""What is not among them works on every number by itself, or is not known."""
