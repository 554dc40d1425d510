"""Where a model runs and in which precision, from what the user typed."""

from __future__ import annotations

import re

import torch

from attnviz.errors import DeviceError, Setting, UsageError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""The precisions a user can ask for; ``auto`` is that of the weights, or float32."""

_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?")


def resolve(
    device: str = "auto", dtype: str = "auto", stored: str = "float32"
) -> tuple[torch.device, torch.dtype]:
    """Find the device and the precision.

    Args:
        device: ``auto`` (the first GPU, else Apple's, else the CPU), ``cpu``, ``cuda``,
            ``cuda:1``, ``mps``.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``. Auto is float32, but for models
            whose weights are stored in bfloat16, see :attr:`Located.precision`.

        stored: what ``auto`` stands for.

    Raises:
        DeviceError: no such device here; names those present.
        UsageError: not the name of a device or a precision.
    """
    if isinstance(device, torch.device):
        device = str(device)
    if isinstance(dtype, torch.dtype):
        dtype = str(dtype).removeprefix("torch.")
    for given in (Setting("device", device), Setting("dtype", dtype)):
        if not isinstance(given.value, str):
            raise UsageError(
                "{} takes a name such as 'auto', not {!r}", Setting(given.name), given.value
            )
    return _device(device.strip().lower()), _dtype(dtype.strip().lower(), stored)


def present() -> tuple[str, ...]:
    """The devices of this machine, the best first; the CPU is always among them."""
    cuda = [f"cuda:{n}" for n in range(torch.cuda.device_count())]
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return (*cuda, *mps, "cpu")


def _device(name: str) -> torch.device:
    if not _DEVICE.fullmatch(name):
        raise UsageError(f"unknown device {name!r}; choose auto, cpu, cuda, cuda:N or mps")
    devices = present()
    if name == "auto":
        return torch.device(devices[0])
    if name == "cuda":
        name = "cuda:0"
    if name not in devices:
        raise DeviceError(f"no device {name} on this machine; present: {', '.join(devices)}")
    return torch.device(name)


def _dtype(name: str, stored: str) -> torch.dtype:
    if name == "auto":
        return DTYPES[stored]
    if name not in DTYPES:
        raise UsageError(f"unknown dtype {name!r}; choose auto, {', '.join(DTYPES)}")
    return DTYPES[name]
