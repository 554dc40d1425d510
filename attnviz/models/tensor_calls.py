"""Calls of functions of tensors: what they are called, what they are given, what they sum over.

The same for a function, a method and an operator, for arguments by place and by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

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
        """The axes of an operand that are summed over."""
        return [n for n, label in enumerate(self.labels[index]) if label not in self.out]


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a function."""

    name: str  # of the function
    func: Any  # the function
    args: tuple[Any, ...]  # what it was given by place; ``kwargs`` by name
    kwargs: Mapping[str, Any]
    tensors: tuple[Tensor, ...]  # those among both, in lists too


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
    """A call of a matrix product, an einsum or distances of two tensors with its axes named.

    None for any other.
    """
    if name == "einsum":
        return _einsum(args)
    first = int(name.startswith(("baddbmm", "addmm")))  # these add to a tensor before
    a = argument(args, kwargs, first, *(("batch1", "mat1") if first else ("input", "self")))
    b = argument(args, kwargs, first + 1, "other", "mat2", "batch2", "weight", "vec")
    if name == "__rmatmul__":
        a, b = b, a
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or not a.ndim or not b.ndim:
        return None
    if name == "tensordot":
        return _tensordot(a, b, argument(args, kwargs, 2, "dims"))
    if name == "inner":
        leading = tuple(range(a.ndim + b.ndim - 2))
        split = a.ndim - 1
        return Product((a, b), ((*leading[:split], "i"), (*leading[split:], "i")), leading)
    if name == "linear":
        rows = ("o",) if b.ndim == 2 else ()
        leading = tuple(range(a.ndim - 1))
        return Product((a, b), ((*leading, "i"), (*rows, "i")), (*leading, *rows))
    depth = max(a.ndim, b.ndim) - 2
    before = [tuple(range(depth - (x.ndim - 2), depth)) if x.ndim > 2 else () for x in (a, b)]
    left = (*before[0], "t", "i") if a.ndim > 1 else ("i",)
    right = (*before[1], "i", "s") if b.ndim > 1 else ("i",)
    right = (*before[1], "s", "i") if name == "cdist" else right
    out = tuple(range(max(depth, 0)))
    return Product((a, b), (left, right), (*out, *("t",) * (a.ndim > 1), *("s",) * (b.ndim > 1)))


def _tensordot(a: Tensor, b: Tensor, dims: Any) -> Product:
    """A call that sums over axes of both, the last and the first ones where it says how many."""
    count = 2 if dims is None else dims
    if isinstance(count, int):
        count = (range(a.ndim - count, a.ndim), range(count))
    first, second = ([int(n) % x.ndim for n in some] for x, some in zip((a, b), count, strict=True))
    left: list[Any] = list(range(a.ndim))
    right: list[Any] = [a.ndim + n for n in range(b.ndim)]
    for n, other in zip(first, second, strict=True):
        left[n] = right[other] = f"i{n}"
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
        before, ellipsis, after = output.partition("...")
        out = (*before, *(dots if ellipsis else ()), *after)
    return Product((operands[0], operands[1]), (labels[0], labels[1]), tuple(out))


def _letters(term: str, ndim: int) -> tuple[Any, ...]:
    """The labels of an operand's axes; an ellipsis counts from its end, -1."""
    before, ellipsis, after = term.partition("...")
    count = ndim - len(before) - len(after) if ellipsis else 0
    return (*before, *range(-count, 0), *after)


def reduced_axes(args: Any, kwargs: Mapping[str, Any], ndim: int) -> set[int]:
    """The axes that a sum goes over; all where it names none."""
    dims = argument(args, kwargs, 1, "dim", "axis")
    if dims is None:
        return set(range(ndim))
    return {d % ndim for d in (dims if isinstance(dims, list | tuple) else (dims,))}
