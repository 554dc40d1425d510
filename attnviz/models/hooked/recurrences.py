"""Layers with a state in a hooked model: what their recurrences read, recorded while they run.

transformers computes the gated delta rule, Kimi delta attention, the scans of Mamba and Mamba-2 and
RWKV's sums in functions of their own, the same in every family that has such layers. While a pass
is recorded, each of these runs inside one of ours, which notes what it was given and what it gave;
nothing of a family's code is repeated. Lightning attention has no function: queries, keys and
values are what one masks the padding of, and the layer's normalization gets what it gave. That the
coefficients of :class:`~attnviz.attention.linear.Recurrence` times the values are what the function
gave is proved on the model itself before they are shown.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnviz.attention.linear import ChannelRecurrence, Recurrence, SelectiveScan, WeightedKeys
from attnviz.core.arrays import mapped
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.source import ForwardRequest, Observer, Output, Rows, Source
from attnviz.core.weights import OutputProjection
from attnviz.errors import ModelError
from attnviz.models.external_errors import replacing
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.trace import TOLERANCE, TOLERANCE_LOW, first_of, is_low, listening
from attnviz.models.norm_based import OtherMaps
from attnviz.scoring.observe import sizes

Layer = Recurrence | ChannelRecurrence
Heard = Callable[[int, Layer, Tensor], None]
"""Gets the layer, what its recurrence read, and what it gave, [B, H, T, d_v]."""

_MASKING = "apply_mask_to_padding_states"
"""What masks the padding of a layer's queries, keys and values."""
_EARLIER = ("initial_state", "initial_states", "state")
"""Arguments of these functions that say what an earlier text left."""
_PATCHING = threading.RLock()
"""Functions of transformers' modules are everybody's: one pass at a time is recorded."""


@dataclass(frozen=True)
class States:
    """The layers with a state."""

    # how many heads they have, by layer; none where nothing is known
    heads: Mapping[int, int] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)  # what they compute, by layer
    reason: str = ""  # why there is none, as the end of a sentence; empty where there is one
    # the largest difference of an output from its coefficients times the values, relative to the
    # largest output
    error: float = 0.0


def find_states(network: HookedModel, items: Sequence[Item]) -> States:
    """Overhear a few tokens, and prove that every output is coefficients times values."""
    heads: dict[int, int] = {}
    names: dict[int, str] = {}
    errors: list[float] = []

    def heard(layer: int, recurrence: Layer, output: Tensor) -> None:
        if layer in heads:
            raise ModelError("its layers run the scan of Mamba in several parts")
        heads[layer], names[layer] = output.shape[1], recurrence.name
        difference = (recurrence.output() - output.float()).abs().max()
        errors.append(float(difference / output.float().abs().max().clamp_min(1e-30)))

    try:
        with torch.no_grad(), recording(network.body, heard):
            network.run(items)
    except ModelError as error:
        return States(reason=str(error))
    if not heads:
        return States(
            reason="none of its layers runs the gated delta rule, Kimi delta attention, lightning "
            "attention, RWKV-4 or the scan of Mamba or Mamba-2 as transformers has them"
        )
    worst = max(errors)
    if not worst <= (TOLERANCE_LOW if is_low(network.dtype) else TOLERANCE):
        return States(
            reason=f"the output of a layer differs from its coefficients times the values by "
            f"{worst:.0e} of the largest"
        )
    return States(heads, names, error=worst)


@contextlib.contextmanager
def recording(body: nn.Module, heard: Heard) -> Iterator[None]:
    """Tell of every recurrence that this thread runs inside the ``with`` block."""
    owner, layer = threading.get_ident(), [-1]

    def entering(module: Any, args: Any, kwargs: Any) -> None:
        layer[0] = _number(module)

    def stand_in(original: Any, read: Any, module: ModuleType) -> Any:
        signature = inspect.signature(original)

        @wraps(original)
        def running(*args: Any, **kwargs: Any) -> Any:
            out = original(*args, **kwargs)
            if threading.get_ident() == owner:
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                arguments = mapped(dict(bound.arguments), Tensor.detach)
                if any(arguments.get(name) is not None for name in _EARLIER):
                    raise ModelError("its layers begin with a state of an earlier text")
                recurrence = read(arguments, module)
                state = first_of(out).detach()
                if isinstance(recurrence, SelectiveScan):  # [B, D, T]
                    state = state.mT
                state = state[:, :, None] if state.ndim == 3 else state  # [B, T, H, d_v]
                heard(layer[0], recurrence, state.transpose(1, 2))
            return out

        return running

    with _PATCHING, contextlib.ExitStack() as undo:
        numbered = [part for part in body.modules() if _number(part) >= 0]
        undo.enter_context(listening(numbered, pre_hook=entering))
        for module in {sys.modules[type(part).__module__] for part in body.modules()}:
            for name, read in _READ.items():
                function = getattr(module, name, None)
                if function is not None:
                    recorded = stand_in(function, read, module)
                    undo.enter_context(replacing(module, name, recorded))
        lightning = [part for part in body.modules() if hasattr(part, "slope_rate")]
        if lightning and hasattr(sys.modules[type(lightning[0]).__module__], _MASKING):
            undo.enter_context(_lightning(lightning, heard))
        yield


def _number(module: Any) -> int:
    """Return the layer that a module says it belongs to; -1 where it does not say."""
    numbers = (getattr(module, name, None) for name in ("layer_idx", "layer_id"))
    return next((number for number in numbers if type(number) is int), -1)


@contextlib.contextmanager
def _lightning(layers: Sequence[Any], heard: Heard) -> Iterator[None]:
    """Tell of lightning attention: q, k and v side by side for each head, as it masks them."""
    owner, masked = threading.get_ident(), list[Tensor]()
    module = sys.modules[type(layers[0]).__module__]
    original = getattr(module, _MASKING)
    owners = {id(layer.norm): layer for layer in layers}

    def masking(*args: Any, **kwargs: Any) -> Any:
        out = original(*args, **kwargs)
        if threading.get_ident() == owner:
            masked[:] = [out.detach()]
        return out

    def normalizing(norm: Any, args: Any, kwargs: Any) -> None:
        layer = owners[id(norm)]
        if not masked:
            raise ModelError("its lightning attention has no queries, keys and values at one place")
        parts = masked.pop().float()
        heads = (*parts.shape[:2], layer.num_attention_heads, -1)
        query, key, value = parts.view(heads).transpose(1, 2).chunk(3, -1)
        decay = -layer.slope_rate.detach().float().reshape(1, -1, 1).expand(query.shape[:3])
        write = torch.ones_like(decay)
        recurrence = Recurrence(
            query, key, value, decay, write, erases=False, called="lightning attention"
        )
        heard(layer.layer_idx, recurrence, args[0].detach().view(heads).transpose(1, 2))

    listens = listening([layer.norm for layer in layers], pre_hook=normalizing)
    with listens, replacing(module, _MASKING, masking):
        yield


def _delta(arguments: Mapping[str, Any], module: Any) -> Recurrence:
    """Of ``chunk_gated_delta_rule`` and ``chunk_kda``, whose queries are divided by √d inside."""
    query, key, value, decay, write = (
        arguments[name].float().transpose(1, 2) for name in ("query", "key", "value", "g", "beta")
    )
    if arguments.get("use_qk_l2norm_in_kernel"):
        query, key = (module.l2norm(x, dim=-1, eps=1e-6) for x in (query, key))
    heads = value.shape[1]
    query, key = (x.repeat_interleave(heads // x.shape[1], 1) for x in (query, key))
    query = query * query.shape[-1] ** -0.5
    return Recurrence(query, key, value, decay, write, erases=True)


def _scan(arguments: Mapping[str, Any], module: Any) -> Recurrence:
    """Of ``mamba_chunk_scan_combined``."""
    value = arguments["hidden_states"].float().transpose(1, 2)
    write = arguments["dt"]
    if arguments.get("dt_bias") is not None:
        write = write + arguments["dt_bias"].to(write.dtype)
    write = F.softplus(write) if arguments.get("dt_softplus") else write
    low, high = arguments["dt_limit"]
    write = write.clamp(low, high).float().transpose(1, 2)  # [B, H, T]
    decay = arguments["A"].float()[:, None] * write
    heads, groups = value.shape[1], arguments["B"].shape[2]
    key, query = (
        arguments[name].float().transpose(1, 2).repeat_interleave(heads // groups, 1)
        for name in ("B", "C")
    )
    skip = arguments.get("D")
    skip = None if skip is None else skip.float()
    return Recurrence(query, key, value, decay, write, erases=False, skip=skip)


def _selective(arguments: Mapping[str, Any], module: Any) -> SelectiveScan:
    """Of ``mamba_selective_scan``."""
    value, step = (arguments[name].mT for name in ("hidden_states", "dt"))
    if arguments.get("delta_bias") is not None:
        step = step + arguments["delta_bias"].to(step.dtype)
    step = F.softplus(step) if arguments.get("delta_softplus") else step
    key, query = (arguments[name].float().mT for name in ("B", "C"))
    skip, gate = arguments.get("D"), arguments.get("z")
    return SelectiveScan(
        value.float()[:, None],
        query,
        key,
        arguments["A"].float(),
        step.float(),
        None if skip is None else skip.float(),
        None if gate is None else F.silu(gate.float()).mT[:, None],
    )


def _weighted(arguments: Mapping[str, Any], module: Any) -> WeightedKeys:
    """Of ``rwkv_linear_attention``."""
    value, key, decay, bonus = (
        arguments[name].float() for name in ("value", "key", "time_decay", "time_first")
    )
    return WeightedKeys(value[:, None], key, decay.exp(), bonus)


_READ: Mapping[str, Callable[[Mapping[str, Any], Any], Layer]] = {
    "torch_chunk_gated_delta_rule": _delta,
    "chunk_kimi_delta_attention": _delta,
    "mamba2_chunk_scan": _scan,
    "mamba_selective_scan": _selective,
    "rwkv_linear_attention": _weighted,
}
"""transformers' functions, and how what they are given is read."""


class LinearMaps(OtherMaps):
    """The model with its layers with a state in the place of those that attend."""

    def __init__(
        self, source: Source, body: nn.Module, kind: SiteKind, states: States, *, shares: bool
    ) -> None:
        super().__init__(source)
        self._body, self._kind, self._shares = body, kind, shares
        layers = range(max(states.heads) + 1)
        self.layout = Layout({kind: tuple(states.heads.get(layer, 0) for layer in layers)})

    def output(self, site: Site) -> OutputProjection:
        """No W_O: what such a layer gives is normalized and gated first."""
        return OutputProjection(None, None, "what its layers with a state give is normalized first")

    def watched(
        self, batch: Sequence[Inputs], observers: Sequence[Observer], request: ForwardRequest
    ) -> Output:
        """Run the model; see :class:`~attnviz.models.norm_based.OtherMaps`."""

        def heard(layer: int, recurrence: Layer, output: Tensor) -> None:
            if layer < len(self.layout.heads[self._kind]):
                self._tell(Site(self._kind, layer), recurrence, observers)

        # the pass is to run all layers, also those behind the last one that attends
        with recording(self._body, heard):
            return self._source.forward(batch, (), replace(request, hidden=True))

    def _tell(self, site: Site, recurrence: Layer, observers: Sequence[Observer]) -> None:
        with torch.no_grad():
            for start, block in recurrence.blocks():
                weights = sizes(block) if self._shares else block
                count, keys = block.shape[2:]
                allowed = torch.ones(count, keys, dtype=torch.bool, device=block.device)
                allowed = allowed.tril(start)[None, None]
                values = recurrence.value[:, :, :keys]
                rows = Rows(site, start, 0, weights, allowed, values=values)
                for observer in observers:
                    observer.observe(rows)
