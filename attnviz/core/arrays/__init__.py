"""NumPy arrays and torch tensors, for formulas that are written once and run on either.

Formulas use what the two libraries spell alike: operators, indexing, ``x.sum(-1)``, ``x.clip(1)``,
``x.reshape``, ``x.swapaxes``, ``xp.where(...)``, ``xp.stack(..., axis)``. For the rest there are
two modules of the same functions, :mod:`~attnviz.core.arrays.on_numpy` and
:mod:`~attnviz.core.arrays.on_torch`; :func:`of` gives the one that an array belongs to. torch is
not imported before there is a tensor.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import on_numpy

__all__ = [
    "Array", "Bools", "Floats", "Integers", "Movable", "Reals", "array", "converted", "doubles",
    "exact", "fetched", "is_array", "mapped", "no_gradients", "norm", "of", "on_host", "to_numpy",
    "to_torch", "top",
]  # fmt: skip

if TYPE_CHECKING:
    from torch import Tensor as Array
else:
    Array = Any
    """A NumPy array or a torch tensor; type checkers take it for the tensor."""

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Reals = NDArray[np.floating[Any]]  # of any precision

_Part = TypeVar("_Part")


def is_array(value: Any) -> bool:
    """Tell NumPy arrays and torch tensors from others."""
    return isinstance(value, np.ndarray) or hasattr(value, "detach")


def of(x: Array) -> ModuleType:
    """Return the functions for an array, and with them for all that it is computed with."""
    if isinstance(x, np.ndarray):
        return on_numpy
    from attnviz.core.arrays import on_torch

    return on_torch


def array(numbers: NDArray[Any]) -> Array:
    """Return a NumPy array as what it is here: one of the two kinds."""
    untyped: Any = numbers
    return cast("Array", untyped)


def to_numpy(x: Array) -> NDArray[Any]:
    """Return the same numbers as a NumPy array; on a CPU it shares their memory.

    NumPy has no bfloat16: its numbers come in float32, which holds each of them.
    """
    if not hasattr(x, "detach"):
        return np.asarray(x)
    tensor = x.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    return tensor.numpy()


def to_torch(x: Array) -> Array:
    """Return the same numbers as a tensor, which shares their memory."""
    if not isinstance(x, np.ndarray):
        return x
    import torch

    return torch.from_numpy(x if x.flags.writeable else np.asarray(_Unwritten(x)))


class _Unwritten:
    """An array that is read only, under a name by which torch does not warn of that."""

    def __init__(self, x: NDArray[Any]) -> None:
        self._kept = x
        interface = x.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def no_gradients() -> contextlib.AbstractContextManager[object]:
    """Return a context in which torch keeps no gradients; nothing where it is not imported."""
    torch = sys.modules.get("torch")
    return contextlib.nullcontext() if torch is None else torch.no_grad()


def exact(x: Array) -> Array:
    """Get the same numbers in float64: on the CPU where their device, such as Apple's, has none."""
    return cast("Array", of(x).doubles(x))


def doubles(x: Array) -> NDArray[np.float64]:
    """Return NumPy's float64, of devices that have none and types that NumPy has not, too."""
    lib = of(x)
    return to_numpy(lib.cast(x, lib.largest_float(x))).astype(np.float64, copy=False)


def norm(x: Array) -> Array:
    """‖x‖ over the last axis, which goes."""
    xp = of(x).xp
    return xp.sqrt(xp.square(x).sum(-1))


def converted(x: Array, like: Array) -> Array:
    """Return the same numbers as an array of the kind of another, where that is."""
    lib = of(like)
    if of(x) is not lib:
        x = to_torch(x) if isinstance(x, np.ndarray) else array(to_numpy(x))
    return lib.asarray(x, x.dtype, like)


def joined(parts: Sequence[Array], axis: int = 0) -> Array:
    """Put arrays of one library together along an axis; a single one is given as it is."""
    return parts[0] if len(parts) == 1 else of(parts[0]).xp.concatenate(list(parts), axis)


def on_host(values: Any) -> NDArray[Any]:
    """Return what somebody gave, an array of any kind or a list, as a NumPy array."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def mapped(part: _Part, change: Callable[[Array], Array]) -> _Part:
    """Change every array in a value: of records, tuples and mappings too, which stay where none is.

    ``change``: gets an array and gives what takes its place.
    """
    node: Any = part
    if is_array(node):
        return cast("_Part", change(node))
    if isinstance(node, tuple):
        items = tuple(mapped(item, change) for item in node)
        unchanged = all(a is b for a, b in zip(items, node, strict=True))
        return part if unchanged else cast("_Part", items)
    record = is_dataclass(node) and not isinstance(node, type)
    if not record and not isinstance(node, Mapping):
        return part
    members = {f.name: getattr(node, f.name) for f in fields(node)} if record else dict(node)
    changed = {name: mapped(value, change) for name, value in members.items()}
    if all(changed[name] is value for name, value in members.items()):
        return part
    return cast("_Part", replace(node, **changed) if record else changed)


def fetched(parts: Sequence[Array]) -> list[NDArray[Any]]:
    """Return arrays as NumPy's, for which the host waits once: a device's in its largest type."""
    if not parts or not hasattr(parts[0], "detach") or of(parts[0]).on_cpu(parts[0]):
        return list(map(to_numpy, parts))
    lib, like = of(parts[0]), parts[0]
    dtype, sizes = lib.largest_float(like), [part.numel() for part in parts]
    flat = [lib.cast(converted(part, like), dtype).reshape(-1) for part in parts]
    numbers = np.split(to_numpy(lib.xp.concatenate(flat)), np.cumsum(sizes)[:-1])
    return [x.reshape(tuple(part.shape)) for x, part in zip(numbers, parts, strict=True)]


class Movable:
    """A record of arrays that follows others to where they are."""

    __slots__ = ()

    def converted(self, like: Array) -> Self:
        """Return the same as arrays of the kind of another, where that is."""
        return mapped(self, lambda x: converted(x, like))


def top(numbers: NDArray[Any], count: int) -> list[int]:
    """Get the places of the largest of some numbers, the largest first; of equal ones the first."""
    count = min(count, len(numbers))
    if not count:
        return []
    least = np.partition(numbers, -count)[-count]
    candidates = np.flatnonzero(numbers >= least)
    return candidates[np.argsort(-numbers[candidates], kind="stable")][:count].tolist()


def ends(numbers: NDArray[Any], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the places of :func:`top` for every row of [n, m], and for its negative, [n, count]."""
    count = min(count, numbers.shape[1])
    if not count or not len(numbers):
        empty = np.zeros((len(numbers), count), np.int64)
        return empty, empty
    split = np.partition(numbers, (count - 1, -count), 1)
    sides = []
    for signed, least in ((numbers, split[:, -count]), (-numbers, -split[:, count - 1])):
        far = signed >= least[:, None]
        tied = far.sum(1) != count  # several are equal
        far[tied] = False
        places = np.zeros((len(numbers), count), np.int64)
        places[~tied] = np.nonzero(far)[1].reshape(-1, count)
        order = np.argsort(-np.take_along_axis(signed, places, 1), 1, kind="stable")
        places = np.take_along_axis(places, order, 1)
        for row in np.flatnonzero(tied):
            indices = top(signed[row], count)
            places[row, : len(indices)] = indices
        sides.append(places)
    return sides[0], sides[1]
