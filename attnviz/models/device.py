"""Where a model runs and in which precision, from what the user typed."""

from __future__ import annotations

import os
import re
import sys
from ctypes.util import find_library
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from attnviz.core.threads import WORKER
from attnviz.errors import DeviceError, Setting, UsageError, install

if TYPE_CHECKING:
    import torch

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

    ``dtype``: ``auto``, ``float32``, ``bfloat16`` or ``float16``; ``auto``: how weights are stored,
    see :attr:`Located.precision`, which is taken but for float16 on a CPU: few compute in it.
    """
    if (torch := sys.modules.get("torch")) is not None:  # its own objects do as well
        device = str(device) if isinstance(device, torch.device) else device
        if isinstance(dtype, torch.dtype):
            dtype = str(dtype).removeprefix("torch.")
    for choice in (Setting("device", device), Setting("dtype", dtype)):
        if not isinstance(choice.value, str):
            raise UsageError(
                "{} takes a name such as 'auto', not {!r}", Setting(choice.name), choice.value
            )
    device, dtype = _device(device.strip().lower()), dtype.strip().lower()
    return device, _dtype(dtype, "float32" if (device, auto) == ("cpu", "float16") else auto)


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
    gpus = [device for device in devices if device.startswith("cuda")]
    if name == "auto":  # Apple's was never tried, and not all that attnviz asks for is there
        name = "cuda" if gpus else "cpu"
    if name == "cuda":  # worker processes go round them
        name = f"cuda:{int(os.environ.get(WORKER, '0')) % max(1, len(gpus))}"
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
