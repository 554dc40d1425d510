"""How every model runs a pass: heads closed meanwhile, what is tracked, memory that runs out.

Where a model runs and in which precision, from what the user typed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from ctypes.util import find_library
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from attnviz.attention.blocks import sharing
from attnviz.core import arrays
from attnviz.core.arguments import check
from attnviz.core.arrays import Array
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.source import Cuts, Gate, Gates, Past, Start
from attnviz.core.threads import limit_threads, one_blas_thread
from attnviz.errors import DeviceError, ModelError, Setting, UsageError, install
from attnviz.scoring.select import select

if TYPE_CHECKING:
    import torch


@contextmanager
def running_on_numpy(name: str, batch: Sequence[Inputs]) -> Iterator[None]:
    """Run a forward pass on NumPy inside the ``with`` block; arguments as for :func:`running`."""
    try:
        with one_blas_thread():
            yield
    except MemoryError as error:
        raise _too_long(name, batch, "cpu") from error


@contextmanager
def running(
    name: str, batch: Sequence[Inputs], device: torch.device, *, grad: bool, states: bool
) -> Iterator[None]:
    """Run a forward pass inside the ``with`` block."""
    import torch

    limit_threads()
    tracking: AbstractContextManager[Any] = torch.inference_mode()
    if grad or states:
        tracking = torch.set_grad_enabled(grad)
    try:
        with tracking, sharing():
            yield
    except torch.OutOfMemoryError as error:
        raise _too_long(name, batch, device) from error


def _too_long(name: str, batch: Sequence[Inputs], device: object) -> ModelError:
    return ModelError(
        "{}: {:,} tokens do not fit in the memory of {}",
        name,
        max(item.length for item in batch),
        device,
        remedy="shorten the text or use {device}",
        device="cpu",
    )


def begin(
    name: str, start: Start, batch: Sequence[Inputs], layout: Layout, *, once: bool = False
) -> Array:
    """Return the states a pass begins with, [B, T, D]."""
    layers = max(map(layout.layers, layout.kinds))
    if not 0 <= start.layer <= layers:
        raise ModelError(
            f"{name} has layers 0 to {layers - 1}; a pass cannot begin at {start.layer}"
        )
    if start.end is not None and not start.layer < start.end <= layers:
        raise ModelError(
            f"a pass that begins at layer {start.layer} of {name} ends before one of the layers "
            f"{start.layer + 1} to {layers}, not {start.end}"
        )
    hidden = start.hidden
    if hidden.ndim != 3 or not len(hidden) or len(batch) % len(hidden):
        raise ModelError(
            f"a pass of {len(batch)} items begins with states [{len(batch)}, T, D] or of a part "
            f"that it repeats, got {list(hidden.shape)}"
        )
    if once:
        return hidden
    return arrays.of(hidden).xp.tile(hidden, (len(batch) // len(hidden), 1, 1))


_STANDING: ContextVar[Mapping[int, Gates]] = ContextVar(
    "attnviz_gates", default=MappingProxyType({})
)
"""The gates that stand, by the ``id`` of the source; each thread and task has its own."""
_CUTS: ContextVar[Mapping[int, Cuts]] = ContextVar("attnviz_cuts", default=MappingProxyType({}))
"""The cuts that stand, likewise."""


class Gated:
    """What every :class:`~attnviz.core.source.Source` shares: gates that stand for a while."""

    info: SourceInfo

    def __repr__(self) -> str:
        """Name the model, its heads by kind of layer, and where it runs."""
        count = sum(1 for _ in self.layout)
        where = f"{self.info.device} {self.info.dtype}"
        layers = "; ".join(f"{kind} {len(self.layout.heads[kind])}" for kind in self.layout.kinds)
        return (
            f"<{type(self).__name__} {self.info.model}: {count} heads, layers: {layers}; "
            f"{self.info.backend} backend, {where}>"
        )

    @property
    def _gated_model(self) -> object:
        """What gates stand on: of several views of a model, the model itself."""
        return self

    @property
    def _standing(self) -> Gates:
        """The gates that stand in this thread, their shares NumPy's."""
        return _STANDING.get().get(id(self._gated_model), {})

    def _cuts(self, asked: Cuts, like: Array) -> Cuts:
        """Give cuts of a pass where ``like`` is: those that stand, but where others are asked."""
        standing = _CUTS.get().get(id(self._gated_model), {})
        return {site: cut.converted(like) for site, cut in {**standing, **asked}.items()}

    @contextmanager
    def cutting(self, cuts: Cuts) -> Iterator[Self]:
        """Let cuts stand in every pass inside the ``with`` block, also where the model writes."""
        if self.no_gates:
            raise ModelError("attention of {} cannot be cut: {}", self.info.model, self.no_gates)
        token = _CUTS.set({**_CUTS.get(), id(self._gated_model): cuts})
        try:
            yield self
        finally:
            _CUTS.reset(token)

    @property
    def contents(self) -> str | None:
        """A hash of all that passes depend on beside texts: the model's numbers, and its files.

        The numbers as they are in memory, and the files that decide tokens, templates and ends.
        None where that is not known, where a file was changed since the model was loaded, and
        while gates or cuts stand. Reads every weight.
        """
        return None if self.standing else self._hash()

    @property
    def standing(self) -> bool:
        """Whether gates or cuts stand in this thread, so that passes are not the model's own."""
        return bool(self._standing or _CUTS.get().get(id(self._gated_model)))

    @property
    def continues(self) -> bool:
        """Whether a pass may go on behind the keys and values of another; by default it may not."""
        return False

    @property
    def concurrent(self) -> bool:
        """Whether threads may run passes of it side by side; by default they may not."""
        return False

    def _hash(self) -> str | None:
        """Return the same, whatever gates stand; None by default."""
        return None

    @property
    def layout(self) -> Layout:
        """Which heads there are."""
        raise TypeError(f"{type(self).__name__} is not a model by itself")

    @property
    def no_gates(self) -> str:
        """Why attention cannot be gated; empty where it can."""
        return ""

    @contextmanager
    def gated(self, shares: Mapping[str, float]) -> Iterator[Self]:
        """Let only a share of some heads' outputs pass, inside the ``with`` block.

        Whatever this thread runs on the model meanwhile, a capture or a whole ablation, runs on
        the changed one; other threads run it as it is. Blocks can be nested; shares then multiply.
        """
        check("shares", shares, Mapping)
        if self.no_gates:
            raise ModelError("attention of {} cannot be gated: {}", self.info.model, self.no_gates)
        before = self._standing
        added: dict[Site, Gate] = {}
        for text, share in shares.items():
            number = isinstance(share, int | float) and not isinstance(share, bool)
            if not (number and abs(share) < float("inf")):
                raise UsageError(f"a share is a number such as 0 or 0.5, not {share!r} for {text}")
            for head in select(text, self.layout):
                count = self.layout.heads[head.site.kind][head.layer]
                ones = arrays.array(np.ones(count, np.float32))
                added.setdefault(head.site, Gate(ones)).share[head.index] = share
        both = merged(before, added, arrays.array(np.empty(0)))
        token = _STANDING.set({**_STANDING.get(), id(self._gated_model): both})
        try:
            yield self
        finally:
            _STANDING.reset(token)


def converted(gates: Gates, like: Array) -> Gates:
    """Return the same gates as arrays of one kind and in one place."""
    return {site: gate.converted(like) for site, gate in gates.items()}


def merged(inner: Gates, outer: Gates, like: Array) -> Gates:
    """Gates that do what one set and then the other would, where ``like`` is.

    ξ z passes the inner ones, and ξ' ξ z + (1 - ξ') fill the outer; as one gate that has the share
    ξ' ξ and the fill scaled by (1 - ξ') / (1 - ξ' ξ).
    """
    inner, gates = converted(inner, like), dict(converted(outer, like))
    xp = arrays.of(like).xp
    for site, gate in inner.items():
        if site not in gates:
            gates[site] = gate
            continue
        other = gates[site]
        share = gate.share * other.share
        fill = other.fill
        if fill is not None:
            left = 1 - share
            scale = xp.where(
                left == 0, 0.0, (1 - other.share) / xp.where(left == 0, 1, left)
            )  # [H] or [B, H]
            scale = scale if scale.ndim == 1 or fill.ndim == 2 else scale[:, None]
            fill = fill * scale[..., None]
            if fill.ndim == 3:  # a scale for each item: the same at every position
                fill = fill[:, None]
        gates[site] = Gate(share, fill)
    return gates


def past_of_batch(past: Past | None, items: int, like: Array) -> tuple[tuple[Array, Array], ...]:
    """Keys and values of every layer for a batch, as arrays of the kind of another."""
    if past is None:
        return ()
    xp = arrays.of(like).xp
    return tuple(
        (
            xp.broadcast_to(arrays.converted(key, like), (items, *key.shape[1:])),
            xp.broadcast_to(arrays.converted(value, like), (items, *value.shape[1:])),
        )
        for key, value in past.layers
    )


DTYPES = ("float32", "bfloat16", "float16")
"""The precisions a user can ask for; ``auto`` is that of the weights, or float32."""

_SHORT = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""What they are called as well."""

LOAD_IN = ("8bit", "4bit")
"""Quantization on the way in, by bitsandbytes."""

DEVICE_MAPS = ("balanced", "balanced_low_0", "sequential")
"""How accelerate divides a model among devices, by its own names."""


@dataclass(frozen=True, slots=True)
class Placement:
    """How a large model gets into memory."""

    load_in: str | None = None  # one of :data:`LOAD_IN`; None for the precision asked for
    device_map: str | None = None  # one of :data:`DEVICE_MAPS`; None for a single device

    @property
    def plain(self) -> bool:
        """Whether nothing was asked for."""
        return self.load_in is None and self.device_map is None

    @classmethod
    def of(cls, device: object, dtype: object) -> Placement:
        """Return what a device and a precision ask for beyond one device and one type of number."""
        return cls(
            dtype if isinstance(dtype, str) and dtype in LOAD_IN else None,
            device if isinstance(device, str) and device in DEVICE_MAPS else None,
        )

    def rest(self, device: str, dtype: str) -> tuple[str, str]:
        """Return the device and the precision of what is neither divided nor quantized."""
        return (
            "auto" if self.device_map is not None else device,
            "auto" if self.load_in is not None else dtype,
        )

    def check(self) -> None:
        """Raise UsageError for packages that are not installed."""
        for name, value, package in (
            ("dtype", self.load_in, "bitsandbytes"),
            ("device", self.device_map, "accelerate"),
        ):
            if value is not None and find_spec(package) is None:
                raise UsageError("{} needs {}; {}", Setting(name, value), package, install(package))


PLAIN = Placement()

_DRIVERS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-ctrl-gpu", "/dev/kfd", "/dev/dxg")
"""NVIDIA's on servers and on Jetson, AMD's, and that of Windows' subsystem for Linux."""

_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?")


def resolve(device: str = "auto", dtype: str = "auto", auto: str = "float32") -> tuple[str, str]:
    """Find the device and the precision.

    ``dtype``: ``auto``, ``float32``, ``bfloat16`` or ``float16``. Auto is float32, but for models
    whose weights are stored in bfloat16, see :attr:`Located.precision`.
    """
    if (torch := sys.modules.get("torch")) is not None:  # its own objects do as well
        device = str(device) if isinstance(device, torch.device) else device
        if isinstance(dtype, torch.dtype):
            dtype = str(dtype).removeprefix("torch.")
    for given in (Setting("device", device), Setting("dtype", dtype)):
        if not isinstance(given.value, str):
            raise UsageError(
                "{} takes a name such as 'auto', not {!r}", Setting(given.name), given.value
            )
    return _device(device.strip().lower()), _dtype(dtype.strip().lower(), auto)


def torch_dtype(name: str) -> torch.dtype:
    """One of :data:`DTYPES` as torch calls it."""
    import torch

    return getattr(torch, name)


def present() -> tuple[str, ...]:
    """Return the devices of this machine; the CPU is always among them."""
    if "torch" not in sys.modules and not _may_have_gpu():
        return ("cpu",)  # torch would say the same, seconds later
    import torch

    cuda = [f"cuda:{n}" for n in range(torch.cuda.device_count())]
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return (*cuda, *mps, "cpu")


def _may_have_gpu() -> bool:
    """Whether a driver that torch works with may be here, by what it leaves on every machine."""
    if sys.platform == "linux":
        return any(map(os.path.exists, _DRIVERS))
    if sys.platform == "win32":
        return find_library("nvcuda") is not None
    return True


def _device(name: str) -> str:
    if not _DEVICE.fullmatch(name):
        raise UsageError(
            f"unknown device {name!r}; choose auto, cpu, cuda, cuda:N, mps, "
            f"{', '.join(DEVICE_MAPS)}"
        )
    if name == "cpu":
        return name
    devices = present()
    if name == "auto":  # Apple's was never tried, and not all that attnviz asks for is there
        return next(device for device in devices if device != "mps")
    if name == "cuda":
        name = "cuda:0"
    if name not in devices:
        raise DeviceError(f"no device {name} on this machine; present: {', '.join(devices)}")
    return name


def _dtype(name: str, auto: str) -> str:
    name = _SHORT.get(name, name)
    if name == "auto":
        return auto
    if name not in DTYPES:
        raise UsageError(f"unknown dtype {name!r}; choose auto, {', '.join((*DTYPES, *LOAD_IN))}")
    return name
