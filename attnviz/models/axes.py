"""What the axes of tensors stand for, followed while somebody else's code runs.

Nothing is known by name. Every axis of a tensor is a sequence of factors (:class:`Axis`), the
slowest first: a view splits and joins them, a transpose moves them, a product contracts one and
keeps others, a matrix of parameters makes a new one of features. Of scores, :class:`Pair` says
which factors came from one operand alone, which from the other, and which they share. So heads are
told from the batch by where they come from: a factor split off from what the product contracts is
a head, one of the inputs is an item.

Letters: b batch, h heads, q queries, k keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

Role = Literal["data", "features", "heads", "parameters", "constant", "unknown"]
_RANK = {"features": 3, "heads": 3, "data": 2, "parameters": 1, "constant": 0, "unknown": 0}
Letter = Literal["b", "h", "q", "k"]
Form = tuple[tuple[tuple[int, Letter], ...], ...]
"""Of each axis the sizes of its factors, the slowest first, and what they count."""


class Axis:
    """A factor of an axis; views split it, once for all tensors that have it.

    Attributes:
        size: above 1.
        role: what it counts, as far as is known.
        root: the factor that it is a part of, since the last product.
        home: the same, products not counted.
        is_head: whether it was joined with features after a product, as heads are.
    """

    __slots__ = ("home", "is_head", "parent", "parts", "role", "root", "size")

    def __init__(self, size: int, role: Role, like: Axis | None = None) -> None:
        self.size, self.role = size, role
        self.root = like.root if like else self
        self.home = like.home if like else self
        self.parts: tuple[Axis, ...] = ()
        self.parent: Axis | None = None
        self.is_head = False

    def split(self, first: int) -> tuple[Axis, ...]:
        """Split it in two, the slower of them of a given size."""
        self.parts = (Axis(first, self.role, self), Axis(self.size // first, self.role, self))
        for part in self.parts:
            part.parent = self
        return self.parts

    def copy(self) -> Axis:
        """The same factor, told apart from it in a product."""
        copied = Axis(self.size, self.role)
        copied.home = self.home
        return copied


Factors = tuple[Axis, ...]


def leaves(factors: Iterable[Axis]) -> Factors:
    """What factors are split into."""
    found: list[Axis] = []
    for axis in factors:
        found += leaves(axis.parts) if axis.parts else [axis]
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Pair:
    """Which factors of scores came from which operand.

    Attributes:
        sides: roots of the factors that one operand alone has, and of those of the other.
        shared: of each axis that both have, the factors of either.
        contracted: homes of the factors that were summed over.
        raw: whether these are an axis of something that no matrix made.
        function: what bounded the scores where it was no softmax: ``sigmoid``.
    """

    sides: tuple[frozenset[Axis], frozenset[Axis]]
    shared: tuple[tuple[Factors, Factors], ...]
    contracted: frozenset[Axis]
    raw: bool
    function: str = ""


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of a tensor.

    Attributes:
        axes: the factors of each axis.
        fixed: ``matrix`` for parameters as they are, ``tokens`` for what was made of parameters
            alone, and empty for what depends on inputs.
        pair: of scores.
        trail: what follows a softmax, see :mod:`.softmax_watch`.
        power: scores, where it is their exponentials.
        total: the exponentials, where it is their sum.
        calls: the attention that it is the output of.
    """

    axes: tuple[Factors, ...]
    fixed: str = ""
    pair: Pair | None = None
    trail: Any = None
    power: Tensor | None = None
    total: int = 0
    calls: tuple[Any, ...] = ()


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
_MATRIX = frozenset(
    {"matmul", "__matmul__", "__rmatmul__", "bmm", "mm", "mv", "linear", "einsum"}
    | {"baddbmm", "baddbmm_", "addmm", "addmm_"}
)
_CONVOLUTIONS = frozenset(f"conv{n}d" for n in (1, 2, 3))
_JOINS = frozenset({"cat", "concat", "concatenate", "stack"})
_BOUNDED = frozenset({"sigmoid", "sigmoid_", "relu", "relu_", "softplus", "tanh", "elu"})


@dataclass(frozen=True, eq=False)
class Product:
    """A product of two tensors, its axes named.

    Attributes:
        operands: both.
        labels: of the axes of either.
        out: labels of the result's axes.
    """

    operands: tuple[Tensor, Tensor]
    labels: tuple[tuple[Any, ...], tuple[Any, ...]]
    out: tuple[Any, ...]

    def summed(self, index: int) -> list[int]:
        """The axes of an operand that are summed over."""
        return [n for n, label in enumerate(self.labels[index]) if label not in self.out]


def function_name(func: Any) -> str:
    """What a function is called; an attribute such as ``mT`` by its own name."""
    name = getattr(func, "__name__", "")
    return getattr(func.__self__, "__name__", name) if name == "__get__" else name


def tensors_in(given: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among arguments, those in lists too."""
    for each in given:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, list | tuple):
            yield from tensors_in(each)


def argument(args: Sequence[Any], kwargs: Mapping[str, Any], index: int, *names: str) -> Any:
    """An argument by its place or by one of its names; None where it is not given."""
    if len(args) > index:
        return args[index]
    return next((kwargs[name] for name in names if name in kwargs), None)


def product_of(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Product | None:
    """A call of a matrix product or an einsum of two tensors with its axes named; None for none."""
    if name == "einsum":
        return _einsum(args)
    first = 1 if name.startswith("badd") or name.startswith("addmm") else 0
    a = argument(args, kwargs, first, ("input", "batch1", "mat1")[0], "batch1", "mat1", "self")
    b = argument(args, kwargs, first + 1, "other", "mat2", "batch2", "weight", "vec")
    if first:
        a = argument(args, kwargs, 1, "batch1", "mat1")
    if name == "__rmatmul__":
        a, b = b, a
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or not a.ndim or not b.ndim:
        return None
    if name == "linear":
        rows = ("o",) if b.ndim == 2 else ()
        leading = tuple(range(a.ndim - 1))
        return Product((a, b), ((*leading, "i"), (*rows, "i")), (*leading, *rows))
    depth = max(a.ndim, b.ndim) - 2
    before = [tuple(range(depth - (x.ndim - 2), depth)) if x.ndim > 2 else () for x in (a, b)]
    left = (*before[0], "t", "i") if a.ndim > 1 else ("i",)
    right = (*before[1], "i", "s") if b.ndim > 1 else ("i",)
    out = tuple(range(max(depth, 0)))
    return Product((a, b), (left, right), (*out, *("t",) * (a.ndim > 1), *("s",) * (b.ndim > 1)))


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
        before, ellipsis, after = output.partition("...")
        out = (*before, *(dots if ellipsis else ()), *after)
    return Product((operands[0], operands[1]), (labels[0], labels[1]), tuple(out))


def _letters(term: str, ndim: int) -> tuple[Any, ...]:
    """The labels of an operand's axes; an ellipsis counts from its end, -1."""
    before, ellipsis, after = term.partition("...")
    count = ndim - len(before) - len(after) if ellipsis else 0
    return (*before, *range(-count, 0), *after)


class Axes:
    """What is known of the tensors of a run.

    Args:
        module: whose parameters and buffers are no inputs.
    """

    def __init__(self, module: nn.Module) -> None:
        self._known = WeakIdKeyDictionary()
        self._buffers = {id(buffer) for buffer in module.buffers()}

    def __contains__(self, x: object) -> bool:
        return isinstance(x, Tensor) and x in self._known

    def __getitem__(self, x: Tensor) -> Known:
        """What is known of a tensor; of one that was not seen before, that it is an input."""
        known: Known | None = self._known.get(x)
        if known is None or len(known.axes) != x.ndim:
            fixed = isinstance(x, nn.Parameter) or id(x) in self._buffers
            known = Known(
                _fresh(x.shape, "parameters" if fixed else "data"), "matrix" if fixed else ""
            )
            self._known[x] = known
        return known

    def __setitem__(self, x: Tensor, known: Known) -> None:
        self._known[x] = known

    def follow(self, name: str, func: Any, args: Any, kwargs: Mapping[str, Any], out: Any) -> None:
        """Say of the result of a call what its axes are."""
        given = list(tensors_in((*args, *kwargs.values())))
        if isinstance(out, list | tuple):
            if name in _WHOLE or name in ("unbind", "meshgrid"):
                for part in out:
                    self._part(given[0], part, name == "unbind", args[1:], kwargs)
                return
            for part in out:
                if isinstance(part, Tensor) and given:
                    self._reduced(given[0], part, args, kwargs)
            return
        if not isinstance(out, Tensor):
            return
        if name in ("type_as", "to"):
            given = given[:1]
        if not given or name.startswith("new_") or name.endswith("_like"):
            self[out] = Known(_fresh(out.shape, "constant"), "matrix")
        elif name in _MOVES:
            shape = range(2, 2 + given[0].ndim)
            order = func(torch.empty(tuple(shape), device="meta"), *args[1:], **_others(kwargs))
            known = self[given[0]]
            self[out] = replace(known, axes=tuple(known.axes[n - 2] for n in order.shape))
        elif name in _VIEWS:
            known = self[given[0]]
            self[out] = replace(known, axes=_viewed(known.axes, out.shape))
        elif name in ("expand", "expand_as", "broadcast_to", "repeat", "tile"):
            self._spread(given[0], out)
        elif name in ("repeat_interleave", "index_select", "narrow", "select", "pad", "unfold"):
            self._part(given[0], out, name == "select", args[1:], kwargs)
        elif name == "__getitem__":
            self[out] = self._indexed(given[0], args[1], out)
        elif name in _JOINS:
            self._joined(name, given, args, kwargs, out)
        elif name == "embedding":
            self._embedded(given, args, kwargs, out)
        elif name in _CONVOLUTIONS:
            self._convolved(given, out)
        elif name in _MATRIX:
            product = product_of(name, args, kwargs)
            if product is not None:
                self[out] = self.multiplied(product, name == "linear")
            else:
                self._opaque(given, out)
        elif name in _REDUCTIONS and out.shape != given[0].shape:
            self._reduced(given[0], out, args, kwargs)
        else:
            self._elementwise(name, given, out)

    def multiplied(self, product: Product, layer: bool = False) -> Known:
        """What is known of the result of a product, which a linear layer takes of tokens."""
        a, b = (self[x] for x in product.operands)
        if layer and a.fixed == b.fixed == "matrix":
            a = replace(a, fixed="tokens")
        axes: list[Factors] = []
        shared: list[tuple[Factors, Factors]] = []
        sides: tuple[set[Axis], set[Axis]] = (set(), set())
        matrix = "matrix" in (a.fixed, b.fixed)
        for label in product.out:
            left, right = (
                known.axes[labels.index(label)] if label in labels else ()
                for known, labels in zip((a, b), product.labels, strict=True)
            )
            if left and right:
                shared.append((leaves(left), leaves(right)))
                axes.append(_better(left, right))
                continue
            factors = leaves(left or right)
            if matrix:
                table = (a if left else b).fixed == "matrix" and a.fixed != b.fixed
                made = tuple(Axis(x.size, "features") for x in factors) if table else factors
                axes.append(made)
                continue
            copies = tuple(axis.copy() for axis in factors)
            sides[0 if left else 1].update(copies)
            axes.append(copies)
        contracted = [
            axis
            for known, labels, index in zip((a, b), product.labels, (0, 1), strict=True)
            for n in product.summed(index)
            for axis in leaves(known.axes[n])
            if labels
        ]
        if matrix:
            return self._mixed(a, b, tuple(axes), contracted)
        pair = Pair(
            (frozenset(sides[0]), frozenset(sides[1])),
            tuple(shared),
            frozenset(axis.home for axis in contracted),
            bool(contracted) and all(axis.role == "data" for axis in contracted),
        )
        fixed = "tokens" if a.fixed and b.fixed else ""
        return Known(tuple(axes), fixed, pair)

    @staticmethod
    def features(size: int) -> Factors:
        """A new axis that a matrix made."""
        return _fresh((size,), "features")[0]

    @staticmethod
    def _mixed(a: Known, b: Known, axes: tuple[Factors, ...], contracted: list[Axis]) -> Known:
        """What a matrix of parameters makes; scores stay scores unless it mixes tokens."""
        if a.fixed == b.fixed == "matrix":
            return Known(axes, "matrix")
        data = b if a.fixed == "matrix" else a
        known = Known(axes, "tokens" if data.fixed else "")
        roots = {axis.root for axis in contracted}
        if data.pair is not None and not roots & (data.pair.sides[0] | data.pair.sides[1]):
            known = replace(known, pair=data.pair)
        return known

    def _elementwise(self, name: str, given: list[Tensor], out: Tensor) -> None:
        """Of sums, masks and functions of each number: the axes that its operands have."""
        if not _broadcast(given, out):
            self._opaque(given, out)
            return
        same = next((self[x] for x in given if x is out), None)
        if same is not None and same.axes:  # in place, or nothing was to do
            if name in _BOUNDED and same.pair is not None:
                self[out] = replace(same, pair=replace(same.pair, function=name.rstrip("_")))
            return
        known = [self[x] for x in given]
        first = next((k for k in known if k.pair is not None), None)
        order = [first, *(k for k in known if k is not first)] if first is not None else known
        axes: list[Factors] = []
        for place in range(-out.ndim, 0):
            candidates = [k.axes[place] for k in order if len(k.axes) >= -place and k.axes[place]]
            if first is not None and len(first.axes) >= -place and first.axes[place]:
                axes.append(first.axes[place])
            else:
                axes.append(max(candidates, key=_evidence, default=()))
        fixed = {k.fixed for k in known}
        lead = known[0]
        made = Known(
            tuple(axes),
            "" if "" in fixed else "tokens" if "tokens" in fixed else "matrix",
            None if first is None else first.pair,
            power=lead.power,
            total=lead.total,
            calls=lead.calls if len(known) == 1 else (),
        )
        if name in _BOUNDED and made.pair is not None:
            made = replace(made, pair=replace(made.pair, function=name.rstrip("_")))
        floats = [x for x in given if x.is_floating_point()]
        if first is None and len(given) == len(floats) == 2 and "matrix" not in fixed:
            made = self._crossed(made, known)
        self[out] = made

    @staticmethod
    def _crossed(made: Known, known: list[Known]) -> Known:
        """Scores where a sum or a product holds every token of one beside every one of another."""
        sides: tuple[set[Axis], set[Axis]] = (set(), set())
        shared: list[tuple[Factors, Factors]] = []
        axes = list(made.axes)
        for place in range(-len(axes), 0):
            left, right = (k.axes[place] if len(k.axes) >= -place else () for k in known)
            if left and right:
                shared.append((leaves(left), leaves(right)))
            elif left or right:
                copies = tuple(axis.copy() for axis in leaves(left or right))
                sides[0 if left else 1].update(copies)
                axes[place] = copies
        if not all(any(axis.role == "data" for axis in side) for side in sides):
            return made
        pair = Pair((frozenset(sides[0]), frozenset(sides[1])), tuple(shared), frozenset(), False)
        return replace(made, axes=tuple(axes), pair=pair)

    def _opaque(self, given: list[Tensor], out: Tensor) -> None:
        """Of a function that is not known: axes that stay where they are with their length."""
        known = self[given[0]]
        kept = [
            known.axes[n] if n < given[0].ndim and given[0].shape[n] == size else None
            for n, size in enumerate(out.shape)
        ]
        new = _fresh(out.shape, "unknown")
        axes = tuple(new[n] if axis is None else axis for n, axis in enumerate(kept))
        self[out] = Known(axes, "tokens" if all(self[x].fixed for x in given) else "")

    def _spread(self, x: Tensor, out: Tensor) -> None:
        """Of copies along axes, which stand before what they copy."""
        known = self[x]
        axes: list[Factors] = []
        for place in range(-out.ndim, 0):
            size = x.shape[place] if x.ndim >= -place else 1
            times = out.shape[place] // size if size else 1
            copies = (Axis(times, "constant"),) if times > 1 else ()
            axes.append((*copies, *(known.axes[place] if x.ndim >= -place else ())))
        fixed = "tokens" if known.fixed and tuple(axes) != known.axes else known.fixed
        self[out] = replace(known, axes=tuple(axes), fixed=fixed)

    def _part(
        self, x: Tensor, out: Tensor, drops: bool, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Of a piece of a tensor along one axis, which goes where ``drops``."""
        known = self[x]
        if drops:
            axis = _axis(args, kwargs, x.ndim)
            axes = tuple(a for n, a in enumerate(known.axes) if n != axis)
            self[out] = replace(known, axes=axes, pair=None, trail=None)
        elif out.ndim == x.ndim:
            self[out] = replace(
                known,
                axes=tuple(
                    a if size == old else _cut(a, size)
                    for a, size, old in zip(known.axes, out.shape, x.shape, strict=True)
                ),
            )
        else:
            self._opaque([x], out)

    def _reduced(self, x: Tensor, out: Tensor, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Of a sum, a mean or a maximum along axes."""
        known = self[x]
        axes: tuple[Factors, ...] = ()
        if out.ndim == x.ndim:
            axes = tuple(
                a if size == old else ()
                for a, size, old in zip(known.axes, out.shape, x.shape, strict=True)
            )
        elif out.ndim:
            gone = reduced_axes(args, kwargs, x.ndim)
            axes = tuple(a for n, a in enumerate(known.axes) if n not in gone)
        if len(axes) != out.ndim:
            self._opaque([x], out)
            return
        pair = known.pair
        if pair is not None:
            roots = {axis.root for axis in leaves(a for factors in axes for a in factors)}
            kept = all(not side or side & roots for side in pair.sides)
            pair = pair if kept else None
            lost = [a for a in leaves(a for f in known.axes for a in f) if a.root not in roots]
            if pair is not None:
                homes = pair.contracted | {axis.home for axis in lost}
                pair = replace(pair, contracted=homes)
        self[out] = Known(axes, known.fixed, pair, total=known.total if known.power is not None else 0)

    def _indexed(self, x: Tensor, index: Any, out: Tensor) -> Known:
        """Of what indices choose."""
        known = self[x]
        items = list(index) if isinstance(index, tuple) else [index]
        wide = [i for i in items if isinstance(i, Tensor | list) and not isinstance(i, bool)]
        masks = [i for i in wide if isinstance(i, Tensor) and i.dtype == torch.bool]
        if masks or len(wide) > 1 or any(isinstance(i, Tensor) and i.ndim > 1 for i in wide):
            self._opaque([x], out)
            return self[out]
        used = sum(1 for i in items if i is not None and i is not Ellipsis)
        if not any(i is Ellipsis for i in items):
            items.append(Ellipsis)
        axes: list[Factors] = []
        place = 0
        for item in items:
            if item is None:
                axes.append(())
            elif item is Ellipsis:
                for _ in range(x.ndim - used):
                    axes.append(known.axes[place])
                    place += 1
            else:
                size = out.shape[len(axes)] if len(axes) < out.ndim else 0
                if isinstance(item, slice | list) or (isinstance(item, Tensor) and item.ndim):
                    same = size == x.shape[place] and isinstance(item, slice)
                    axes.append(known.axes[place] if same else _cut(known.axes[place], size))
                place += 1
        if len(axes) != out.ndim:
            self._opaque([x], out)
            return self[out]
        return replace(known, axes=tuple(axes))

    def _joined(
        self, name: str, given: list[Tensor], args: Any, kwargs: Mapping[str, Any], out: Tensor
    ) -> None:
        """Of tensors side by side."""
        dim = _axis(args[1:], kwargs, out.ndim, 0)
        known = [self[x] for x in given]
        best = max(known, key=lambda k: sum(map(_evidence, k.axes), (0, 0)))
        calls = tuple(call for k in known for call in k.calls)
        every = all(len(k.calls) == 1 for k in known) and len(known) > 1
        fixed = "" if any(not k.fixed for k in known) else best.fixed
        if name == "stack":
            axes = list(best.axes)
            axes.insert(dim, (Axis(len(given), *_lineage(known)),) if len(given) > 1 else ())
        else:
            axes = list(best.axes)
            sizes = {x.shape[dim] for x in given}
            old = [leaves(k.axes[dim]) for k in known]
            if len(given) > 1 and len(sizes) == 1 and all(o == old[0] for o in old) and old[0]:
                role, like = _lineage(known, dim)
                axes[dim] = (Axis(len(given), role, like), *old[0])
            else:
                axes[dim] = _cut(max((k.axes[dim] for k in known), key=_evidence), out.shape[dim])
        self[out] = Known(tuple(axes), fixed, best.pair, calls=calls if every else ())

    def _embedded(
        self, given: list[Tensor], args: Any, kwargs: Mapping[str, Any], out: Tensor
    ) -> None:
        ids = argument(args, kwargs, 0, "input")
        width = _fresh(out.shape[-1:], "features")
        fixed = self[ids].fixed if ids in self else ""
        self[out] = Known((*self[ids].axes, *width), "tokens" if fixed else "")

    def _convolved(self, given: list[Tensor], out: Tensor) -> None:
        x = given[0]
        known = self[x]
        channel = out.ndim - (x.ndim if x.ndim == out.ndim else out.ndim)
        channel = 1 if out.ndim == given[1].ndim else 0
        axes = [
            _fresh((size,), "features")[0]
            if n == channel
            else known.axes[n]
            if size == x.shape[n]
            else _cut(known.axes[n] or (Axis(2, "data"),), size)
            for n, size in enumerate(out.shape)
        ]
        pair = known.pair
        if pair is not None and any(
            axis.root in pair.sides[0] | pair.sides[1] for axis in leaves(known.axes[channel])
        ):
            pair = None
        self[out] = Known(tuple(axes), "tokens" if known.fixed else "", pair)


def _fresh(shape: Iterable[int], role: Role) -> tuple[Factors, ...]:
    """A factor for every axis longer than 1."""
    return tuple((Axis(size, role),) if size > 1 else () for size in shape)


def _others(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if not isinstance(value, Tensor)}


def _evidence(factors: Factors) -> tuple[int, int]:
    """How much factors tell: what they count, and how finely."""
    found = leaves(factors)
    return max((_RANK[axis.role] for axis in found), default=-1), len(found)


def _better(one: Factors, other: Factors) -> Factors:
    return other if _evidence(other) > _evidence(one) else one


def _broadcast(given: Iterable[Tensor], out: Tensor) -> bool:
    """Whether a result has the shape of its operands side by side."""
    try:
        return torch.broadcast_shapes(*(x.shape for x in given)) == out.shape
    except RuntimeError:
        return False


def _cut(factors: Factors, size: int) -> Factors:
    """A piece of an axis, or more than it: one factor of the same origin."""
    if size <= 1:
        return ()
    found = leaves(factors)
    if not found:
        return (Axis(size, "data"),)
    best = max(found, key=lambda axis: _RANK[axis.role])
    alike = all(axis.root is found[0].root for axis in found)
    if len(found) > 1 and not alike and any(axis.role == "features" for axis in found):
        return (Axis(size, "unknown"),)
    return (Axis(size, best.role, best),)


def _axis(
    args: Sequence[Any], kwargs: Mapping[str, Any], ndim: int, place: int | None = None
) -> int:
    """The axis that a call names, from 0; 0 where it names none."""
    numbers = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    dim = kwargs.get("dim", kwargs.get("axis"))
    if dim is None:
        dim = numbers[0] if numbers else 0
    return int(dim) % ndim


def reduced_axes(args: Any, kwargs: Mapping[str, Any], ndim: int) -> set[int]:
    """The axes that a sum goes over; all where it names none."""
    dims = argument(args, kwargs, 1, "dim", "axis")
    if dims is None:
        return set(range(ndim))
    return {d % ndim for d in (dims if isinstance(dims, list | tuple) else (dims,))}


def _lineage(known: Sequence[Known], dim: int | None = None) -> tuple[Role, Axis | None]:
    """What a new axis counts along which tensors of one shape stand side by side."""
    all_leaves = [
        [leaves(a) for n, a in enumerate(k.axes) if n != dim] for k in known
    ]
    first = all_leaves[0]
    differ = [
        n for n in range(len(first)) if any(other[n] != first[n] for other in all_leaves[1:])
    ]
    parts = [leaf for some in all_leaves for n in differ for leaf in some[n]]
    if not differ:
        return "data", None
    if all(part.home is parts[0].home for part in parts):
        return parts[0].role, parts[0]  # pieces of one axis, such as chunks of features
    if all(part.role == "features" for part in parts):
        return "heads", None  # what several matrices made of the same tokens
    return "data", None


def _viewed(axes: Sequence[Factors], shape: Sequence[int]) -> tuple[Factors, ...]:
    """The factors of a view's axes; new ones where they cannot be split as it does."""
    queue = list(leaves(a for factors in axes for a in factors))
    queue.reverse()
    result: list[Factors] = []
    for size in shape:
        left, group = size, list[Axis]()
        while left > 1 and queue:
            axis = queue.pop()
            if left % axis.size == 0:
                group.append(axis)
                left //= axis.size
            elif axis.size % left == 0:
                first, rest = axis.split(left)
                group.append(first)
                queue.append(rest)
                left = 1
            else:
                return _fresh(shape, "unknown")
        if left > 1:
            return _fresh(shape, "unknown")
        result.append(tuple(group))
    for group_ in result:
        _mark(group_)
    return tuple(result)


def _mark(factors: Factors) -> None:
    """A part of an axis that is joined with the features behind it is a head."""
    for axis, after in zip(factors, factors[1:], strict=False):
        if after.role == "features" and axis.role in ("data", "unknown") and axis.parent:
            axis.is_head = True


class Unread(Exception):
    """Attention whose axes cannot be told; its text says what is missing.

    Attributes:
        missing: whether the caller may say what they are.
    """

    def __init__(self, reason: str, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


def form_of(known: Known, softmax: int) -> Form:
    """What the axes of weights count.

    Args:
        known: of the weights.
        softmax: the axis that they sum to 1 over.

    Raises:
        Unread: the evidence is missing or contradicts itself, or this is no attention.
    """
    pair = known.pair
    if pair is None:
        raise Unread("its scores are no product of two tensors that are indexed by tokens")
    keys = _keys(known, softmax, pair)
    queries = 1 - keys
    every = [leaves(factors) for factors in known.axes]
    asking = [x for some in every for x in some if x.root in pair.sides[queries]]
    looked = [x for x in every[softmax] if x.root in pair.sides[keys]]
    _check_keys(looked, pair)
    learned = all(axis.role == "parameters" for axis in asking)
    letters: list[list[tuple[Axis, Letter]]] = []
    for factors in every:
        letters.append([])
        for axis in factors:
            if axis.root in pair.sides[keys]:
                letter: Letter = "k"
            elif axis.root in pair.sides[queries]:
                apart = _is_head(axis, pair) or (axis.role == "parameters" and not learned)
                letter = "h" if apart else "q"
            else:
                letter = _shared_letter(axis, pair)
            letters[-1].append((axis, letter))
    if asking and not any(letter == "q" for some in letters for _, letter in some):
        raise Unread("its queries are features or heads, not tokens")
    _check_order(letters, pair)
    return tuple(tuple((axis.size, letter) for axis, letter in some) for some in letters)


def _keys(known: Known, softmax: int, pair: Pair) -> int:
    """Which operand the softmax chooses from."""
    roots = {axis.root for axis in leaves(known.axes[softmax])}
    if not roots:  # a single key
        return 1 if not pair.sides[1] or pair.sides[0] else 0
    for side in (1, 0):
        if roots <= pair.sides[side] and not _outside(known, softmax, pair.sides[side]):
            return side
    raise Unread("its softmax does not go over the tokens of one operand of its scores")


def _outside(known: Known, softmax: int, side: frozenset[Axis]) -> bool:
    """Whether tokens of an operand stand on another axis too, heads not counted."""
    others = [f for n, f in enumerate(known.axes) if n != softmax]
    found = leaves(axis for factors in others for axis in factors)
    return any(axis.root in side and axis.role not in ("features", "heads") for axis in found)


def _check_keys(looked: Sequence[Axis], pair: Pair) -> None:
    made = [axis for axis in looked if _is_head(axis, pair)]
    if looked and len(made) == len(looked):
        raise Unread("its keys are features or heads (an axis that a matrix made), not tokens")
    if made:
        raise Unread("its keys mix tokens and features, as a view without a transpose does")
    if looked and all(axis.role == "parameters" for axis in looked):
        raise Unread("its keys are parameters, not tokens")
    if any(axis.role == "unknown" for axis in looked) and pair.raw:
        raise Unread("its keys could not be followed")


def _is_head(axis: Axis, pair: Pair) -> bool:
    return axis.role in ("features", "heads") or axis.home in pair.contracted


def _shared_letter(axis: Axis, pair: Pair) -> Letter:
    if _is_head(axis, pair) or axis.role == "parameters" or axis.is_head:
        return "h"
    siblings = axis.parent.parts if axis.parent else ()
    if axis.role == "unknown" and not any(x.is_head for x in leaves(siblings)):
        raise Unread("nothing tells heads from the batch", missing=True)
    return "b"


def _check_order(letters: Sequence[Sequence[tuple[Axis, Letter]]], pair: Pair) -> None:
    """Raise Unread where two operands contradict each other, or nothing tells heads apart."""
    for one, other in pair.shared:
        orders = []
        for factors in (one, other):
            heads = [axis.size for axis in leaves(factors) if _is_head(axis, pair)]
            order = "".join("h" if _is_head(a, pair) else "b" for a in leaves(factors))
            if heads and "b" in order:
                orders.append(order.replace("hh", "h").replace("bb", "b"))
        if len(set(orders)) > 1:
            raise Unread("queries and keys put heads and batch in different orders", missing=True)
    if pair.raw and not any(letter == "h" for some in letters for _, letter in some):
        apart = sum(any(letter == "b" for _, letter in some) for some in letters)
        if apart > 1:
            raise Unread("nothing tells heads from the batch", missing=True)


def hinted(
    shape: Sequence[int], softmax: int, layout: str | None, batch: int | None, order: str | None
) -> Form | None:
    """What the caller says that the axes of weights count; None where it says nothing of these."""
    if layout is not None and len(layout) == len(shape):
        if layout[softmax] != "k":
            raise Unread(f"layout={layout!r} puts keys elsewhere than its softmax, axis {softmax}")
        named: Any = layout
        return tuple(((size, letter),) for size, letter in zip(shape, named, strict=True))
    if batch is None or len(shape) != 3:
        return None
    heads, rest = divmod(shape[0], batch)
    if rest:
        raise Unread(f"batch={batch} does not divide its axis of {shape[0]}")
    if heads > 1 and order is None:
        raise Unread(f"batch={batch} leaves {heads} heads; order='bh' or 'hb' is missing")
    pairs: dict[str, tuple[int, Letter]] = {"b": (batch, "b"), "h": (heads, "h")}
    joined = tuple(pairs[letter] for letter in order or "bh")
    rest_: tuple[Letter, Letter] = ("q", "k") if softmax == 2 else ("k", "q")
    return (joined, ((shape[1], rest_[0]),), ((shape[2], rest_[1]),))


def arranged(x: Tensor, form: Form) -> Tensor:
    """A tensor of a form as [B, H, T, S]."""
    sizes = [size for some in form for size, _ in some]
    letters = [letter for some in form for _, letter in some]
    order = [n for letter in "bhqk" for n, own in enumerate(letters) if own == letter]
    shape = [prod(s for s, own in zip(sizes, letters, strict=True) if own == w) for w in "bhqk"]
    return x.reshape(sizes).permute(order).reshape(shape)


def head_factors(known: Known, form: Form) -> Factors:
    """The factors of weights that count heads, as a form says; its other sizes may be others.

    Raises:
        Unread: the axes have other factors than the form.
    """
    heads: list[Axis] = []
    for factors, some in zip(known.axes, form, strict=True):
        found = leaves(factors)
        if len(found) == 1 and len(some) == 2:
            first = some[0][0] if some[0][1] == "h" else found[0].size // some[1][0]
            found = found[0].split(first)
        counted = prod(axis.size for axis in found) == prod(s for s, w in some if w == "h")
        if all(letter == "h" for _, letter in some) and counted:
            heads += found
        elif any(letter == "h" for _, letter in some):
            if len(found) != len(some):
                raise Unread("its axes are others than those that told heads apart")
            heads += [axis for axis, (_, letter) in zip(found, some, strict=True) if letter == "h"]
    return tuple(heads)


def spread_gates(gates: Tensor, heads: Factors, axes: Sequence[Factors]) -> Tensor:
    """Gates of each head, [H], in the place of heads among axes; 1 long where no heads are.

    Raises:
        Unread: the heads are not among them.
    """
    parts = [leaves(factors) for factors in axes]
    order = [heads.index(axis) for some in parts for axis in some if axis in heads]
    if sorted(order) != list(range(len(heads))) or prod(a.size for a in heads) != len(gates):
        raise Unread("its heads are not where its values meet them")
    gates = gates.reshape([axis.size for axis in heads]).permute(order)
    inner, full, outer = list[int](), list[int](), list[int]()
    for some in parts:
        gated = any(axis in heads for axis in some)
        inner += [axis.size if axis in heads else 1 for axis in some]
        full += [axis.size if gated else 1 for axis in some]
        outer.append(prod(axis.size for axis in some) if gated else 1)
    return gates.reshape(inner).expand(full).reshape(outer)
