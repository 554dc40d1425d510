"""How every model runs a pass: heads closed meanwhile, what is tracked, memory that runs out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
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
from attnviz.core.threads import holding, limit_threads, one_blas_thread
from attnviz.errors import ModelError, UsageError
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
        location = f"{self.info.device} {self.info.dtype}"
        layers = "; ".join(f"{kind} {len(self.layout.heads[kind])}" for kind in self.layout.kinds)
        return (
            f"<{type(self).__name__} {self.info.model}: {count} heads, layers: {layers}; "
            f"{self.info.backend} backend, {location}>"
        )

    @property
    def _gated_model(self) -> object:
        """What gates stand on: of several views of a model, the model itself."""
        return self

    @property
    def _standing(self) -> Gates:
        """The gates that stand in this thread, their shares NumPy's."""
        return _STANDING.get().get(id(self._gated_model), {})

    def _cuts(self, requested: Cuts, like: Array) -> Cuts:
        """Give cuts of a pass where ``like`` is: those that stand, but where others are asked."""
        standing = _CUTS.get().get(id(self._gated_model), {})
        return {site: cut.converted(like) for site, cut in {**standing, **requested}.items()}

    @contextmanager
    def cutting(self, cuts: Cuts) -> Iterator[Self]:
        """Let cuts stand in every pass inside the ``with`` block, also where the model writes."""
        if self.no_gates:
            raise ModelError("attention of {} cannot be cut: {}", self.info.model, self.no_gates)
        with holding(_CUTS, {**_CUTS.get(), id(self._gated_model): cuts}):
            yield self

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
    def concurrent(self) -> int:
        """How many passes of it threads may run side by side; by default none."""
        return 0

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
        standing = self._standing
        added: dict[Site, Gate] = {}
        for text, share in shares.items():
            number = isinstance(share, int | float) and not isinstance(share, bool)
            if not (number and abs(share) < float("inf")):
                raise UsageError(f"a share is a number such as 0 or 0.5, not {share!r} for {text}")
            for head in select(text, self.layout):
                count = self.layout.heads[head.site.kind][head.layer]
                full = arrays.array(np.ones(count, np.float32))
                added.setdefault(head.site, Gate(full)).share[head.index] = share
        combined = merged(standing, added, arrays.array(np.empty(0)))
        with holding(_STANDING, {**_STANDING.get(), id(self._gated_model): combined}):
            yield self


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
        outer_gate = gates[site]
        share = gate.share * outer_gate.share
        fill = outer_gate.fill
        if fill is not None:
            closed = 1 - share
            scale = xp.where(
                closed == 0, 0.0, (1 - outer_gate.share) / xp.where(closed == 0, 1, closed)
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
