"""Devices that are not here: tensors that say they are on one, and are computed on the CPU.

``with pretending():`` makes ``cuda:0``, ``cuda:1`` and ``mps`` devices of torch, as far as Python
can tell: tensors of two devices do not mix, NumPy cannot read them, Apple's have no float64, and
what waits for the host or starts a kernel is counted. Nothing about speed or rounding is like the
real ones.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

DEVICES = ("cuda:0", "cuda:1", "mps", "cpu")

_HOST = torch.device("cpu")
_FREE = frozenset(
    """view _unsafe_view _reshape_alias transpose t permute expand slice select unsqueeze squeeze
    detach alias as_strided unbind split split_with_sizes unfold diagonal lift_fresh view_as_real
    empty empty_like empty_strided new_empty new_empty_strided item _local_scalar_dense equal
    is_pinned""".split()  # noqa: SIM905
)
"""Operations that start no kernel: views, memory, and what only waits."""
_WAITS = frozenset(
    """_local_scalar_dense item is_nonzero equal nonzero masked_select _unique2 unique_dim
    unique_consecutive bincount""".split()  # noqa: SIM905
)
"""Operations whose answer, or whose size, the host has to wait for."""
_INDEXED = frozenset(("index", "index_put", "index_put_", "_index_put_impl_"))


class Elsewhere(Tensor):
    """A tensor on a device that is not here."""

    inner: Tensor
    place: torch.device

    @staticmethod
    def __new__(cls, inner: Tensor, place: torch.device) -> Elsewhere:
        """Wrap numbers of the host."""
        made: Elsewhere = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device=_HOST,
        )  # fmt: skip
        made.inner, made.place = inner, place
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where it says it is."""
        return self.place

    is_cuda = property(lambda self: self.place.type == "cuda")
    is_cpu = property(lambda self: False)

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"Elsewhere({tuple(self.shape)}, {self.dtype}, {self.place})"

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse, as a tensor of a device does."""
        raise TypeError(f"can't convert {self.place} device type tensor to numpy")

    __array__ = numpy

    def tolist(self) -> Any:
        """Wait for the numbers."""
        COUNTS.wait("tolist")
        return self.inner.tolist()

    def data_ptr(self) -> int:
        """Where the numbers begin."""
        return self.inner.data_ptr()

    def cpu(self, *args: Any) -> Tensor:
        """Move to the host."""
        return self.to(_HOST)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


class Counts:
    """What a pass made a device do, by operation and by the line of attnviz that asked for it."""

    def __init__(self) -> None:
        self.kernels: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()

    def wait(self, kind: str) -> None:
        """Count what the host waits for."""
        self.waits[f"{kind} {_line()}"] += 1

    def kernel(self, kind: str) -> None:
        """Count what a device starts."""
        self.kernels[f"{kind} {_line()}"] += 1

    def clear(self) -> None:
        """Begin anew."""
        self.kernels.clear()
        self.waits.clear()


COUNTS = Counts()


def _line() -> str:
    """The innermost line of attnviz that runs, but for those of arrays; else of transformers."""
    other, frame = "", sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if "/attnviz/" in name and "/core/arrays/" not in name and "/tests/" not in name:
            return f"{name.split('/attnviz/', 1)[1]}:{frame.f_lineno}"
        if not other and "/transformers/" in name:
            other = f"{name.rsplit('/', 1)[1]}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return other


def _compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation on the numbers, and what a device would have said to it."""
    name = func.overloadpacket.__name__
    if name == "_to_copy" and kwargs.get("non_blocking"):
        return _moved(args[0], _named(kwargs["device"]))
    tensors: list[Tensor] = []
    _tensors_mapped(tensors.append, (args, kwargs))
    there = [x for x in tensors if isinstance(x, Elsewhere)]
    here = [x for x in tensors if not isinstance(x, Elsewhere) and x.dim()]
    places = {x.place for x in there}
    if name != "copy_" and len(places | ({_HOST} if here else set())) > 1:
        if name not in _INDEXED or len(places) > 1:
            raise RuntimeError(
                f"Expected all tensors to be on the same device: {func}, "
                f"{[(str(x.device), tuple(x.shape)) for x in tensors]}"
            )
        COUNTS.wait("index of the host")
    if there and name == "copy_" and len(places) + bool(here) > 1:
        COUNTS.wait("copy")
    if there and (
        name in _WAITS
        or (name == "repeat_interleave" and kwargs.get("output_size") is None)
        or (name in _INDEXED and any(x.dtype == torch.bool for x in args[1] if x is not None))
    ):
        COUNTS.wait(name)
    if there and name not in _FREE:
        COUNTS.kernel(name)
    bare = _tensors_mapped(_bare, (args, kwargs))
    if name == "bmm" and "dtype" in str(func):  # in float32, which the host cannot
        func, bare = torch.ops.aten.bmm.default, (tuple(x.float() for x in bare[0][:2]), {})
    out = func(*bare[0], **bare[1])
    if not there or name in _WAITS - {"nonzero", "masked_select", "_unique2", "bincount"}:
        return out
    place = args[0].device if name == "copy_" else there[0].place
    if place == _HOST:
        return args[0]
    known = {id(x.inner): x for x in there}
    return _tensors_mapped(lambda x: _wrapped(x, place, known), out)


def _tensors_mapped(function: Callable[[Tensor], Any], part: Any) -> Any:
    """What an operation takes or gives, with a function of each tensor in its place."""
    if isinstance(part, Tensor):
        return function(part)
    if isinstance(part, list | tuple):
        return type(part)([_tensors_mapped(function, inner) for inner in part])
    if isinstance(part, dict):
        return {key: _tensors_mapped(function, inner) for key, inner in part.items()}
    return part


def _bare(x: Tensor) -> Tensor:
    return x.inner if isinstance(x, Elsewhere) else x


def _wrapped(x: Tensor, place: torch.device, known: dict[int, Elsewhere]) -> Tensor:
    if id(x) in known:
        return known[id(x)]
    return Elsewhere(_checked(x, place), place)


def _checked(x: Tensor, place: torch.device) -> Tensor:
    if place.type == "mps" and x.dtype in (torch.float64, torch.complex128):
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype as MPS has no float64")
    return x


def _named(device: Any) -> torch.device | None:
    """A device that is pretended; None for those that are here."""
    if device is None or isinstance(device, torch.dtype | Tensor) or str(device) == "meta":
        return None
    found = torch.device(device)
    if found.type == "cuda" and found.index is None:
        found = torch.device("cuda:0")
    return found if found.type != "cpu" else None


class _Move(torch.autograd.Function):
    """From one device to another, such that gradients come back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, place: torch.device | None) -> Tensor:
        """Copy the numbers."""
        ctx.place = x.place if isinstance(x, Elsewhere) else None
        return _moved(x.detach(), place)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Copy them back."""
        # as an operation, which batches of gradients know
        back = torch.ops.aten._to_copy.default
        return back(gradients[0], device=ctx.place or _HOST, non_blocking=True), None


def _moved(x: Tensor, place: torch.device | None) -> Tensor:
    numbers = x.inner if isinstance(x, Elsewhere) else x
    COUNTS.wait("to the host" if place is None else "from the host")
    return numbers.clone() if place is None else Elsewhere(_checked(numbers.clone(), place), place)


class _Factories(TorchFunctionMode):
    """What is made on a device or moved to one, before torch looks for it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "to" and isinstance(args[0], Tensor):
            return self._to(func, args, kwargs)
        if name == "cuda":
            return args[0].to("cuda:0")
        like = args[0] if args and isinstance(args[0], Elsewhere) else None
        place = _named(kwargs.get("device"))
        if "device" not in kwargs or (place is None and like is None):
            return func(*args, **kwargs)
        kwargs["device"] = _HOST
        if like is not None and name in ("tensor", "as_tensor", "asarray"):
            made = like if kwargs.get("dtype") is None else like.to(kwargs["dtype"])
            return made if like.place == place else _Move.apply(made, place)
        made = func(*_tensors_mapped(_bare, args), **kwargs)
        if place is None:
            return made
        if name in ("tensor", "as_tensor", "asarray", "from_numpy"):
            COUNTS.wait("from the host")
        elif not name.startswith(("empty", "new_empty")):
            COUNTS.kernel(name)
        return Elsewhere(_checked(made, place), place)

    def _to(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        x, rest = args[0], list(args[1:])
        wanted = kwargs.pop("device", None)
        for part in list(rest):
            if isinstance(part, str | torch.device):
                wanted = part
                rest.remove(part)
            elif isinstance(part, Tensor):
                wanted = part.device
                rest[rest.index(part)] = part.dtype
        if rest or kwargs:
            types = [part for part in (*rest, kwargs.get("dtype")) if isinstance(part, torch.dtype)]
            if wanted is not None and _named(wanted) is None:  # the host knows every type
                x = _Move.apply(x, None) if isinstance(x, Elsewhere) else x
            if types and types[0] != x.dtype:
                x = func(x, types[0])
            elif kwargs.get("copy"):
                x = x.clone()
        if wanted is None:
            return x
        if str(wanted) == "meta":
            return func(x, "meta")
        place = _named(wanted)
        if place == (x.place if isinstance(x, Elsewhere) else None):
            return x
        return _Move.apply(x, place)


_STANDINS: dict[str, Any] = {
    "attnviz.models.device.present": lambda: DEVICES,
    "torch.inference_mode": lambda mode=True: torch.no_grad(),
    "torch.cuda.mem_get_info": lambda device: (1 << 34, 1 << 35),
    "torch.cuda.memory_reserved": lambda device: 0, "torch.cuda.memory_allocated": lambda device: 0,
    "torch.mps.recommended_max_memory": lambda: 1 << 34,
    "torch.mps.current_allocated_memory": lambda: 0, "torch.Event": mock.MagicMock(),
}  # fmt: skip
"""What torch asks of drivers."""


class _Everywhere(TorchDispatchMode):
    """Operations without any wrapped tensor among the first that torch looks at."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


@contextmanager
def pretending() -> Iterator[Counts]:
    """Let the devices be there inside the ``with`` block; what they did so far is counted."""
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    COUNTS.clear()
    try:
        with ExitStack() as around:
            for name, value in _STANDINS.items():
                around.enter_context(mock.patch(name, value))
            around.enter_context(_Everywhere())
            around.enter_context(_Factories())
            yield COUNTS
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)
