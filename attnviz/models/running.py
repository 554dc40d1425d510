"""How every model runs a pass: what is tracked, and what happens when memory runs out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from attnviz.attention.blocks import sharing
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Layout
from attnviz.core.prompt import Inputs
from attnviz.core.source import Start
from attnviz.core.threads import limit_threads, one_blas_thread
from attnviz.errors import ModelError

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
    """The states a pass begins with, [B, T, D]."""
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
    repeated: Array = arrays.of(hidden).xp.tile(hidden, (len(batch) // len(hidden), 1, 1))
    return repeated
