"""Our attention function inside transformers: where a hooked model calls :func:`attend`.

Every attention layer of transformers that supports it asks ``AttentionInterface`` for a function by
name, and ``AttentionMaskInterface`` for its mask. Both get one of ours under :data:`NAME`. A
:class:`WatchedPass` says who watches; it exists only inside ``with hooking(run)``, so that nothing
outlives a forward pass. Without one, the function attends and nobody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.attention.blocks import attend_unchecked
from attnviz.attention.interventions import exchanged
from attnviz.core.arrays import mapped
from attnviz.core.heads import Site
from attnviz.core.source import Cuts, Donors, Gates, Observer, Rows
from attnviz.core.threads import holding
from attnviz.errors import ModelError
from attnviz.models.hooked.projection import Passage, Passed
from attnviz.models.hooked.windows import Handing, informed, selected

NAME = "attnviz"
"""The name under which transformers finds our attention and mask functions."""

BLOCKED = -1e4
"""An additive mask of this or less blocks: transformers' oldest masks are -10000."""

_HARMLESS = frozenset(
    {"position_ids", "cache_position", "position_embeddings", "hidden_states", "inputs_embeds"}
    | {"token_type_ids", "mm_token_type_ids", "cu_seqlens", "cu_seq_lens_q", "cu_seq_lens_k"}
)
"""Tensors that layers pass along and that no attention function needs."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the attention function: which module, its own number, and the sizes."""

    module: int
    layer: int | None
    heads: int
    queries: int
    keys: int


@dataclass
class WatchedPass:
    """One forward pass that is watched."""

    observers: Sequence[Observer]  # who gets the blocks
    # the module (its ``id``) and site of every call, in order; without a plan the calls are
    # numbered as encoder sites and only recorded
    plan: Sequence[tuple[int, Site]] | None = None
    # what passes of the heads, by site; only with a plan, as for donors and cuts
    gates: Gates = field(default_factory=dict)
    donors: Donors = field(default_factory=dict)  # what other runs put in place of this one's
    cuts: Cuts = field(default_factory=dict)  # which edges of attention are cut
    calls: list[Call] = field(default_factory=list)  # what was called, in order
    # names of tensors that layers passed and the hooks do not know
    strangers: set[str] = field(default_factory=set)
    # gets the heads' outputs of every call, [B, T, H, d_v]
    attended: Callable[[Tensor], None] | None = None
    # what goes past the next call, B · T · D numbers; whoever knows it sets it
    residual: Tensor | None = None
    # gets queries, keys and values of every call, as the attention function does, and the factor on
    # the scores
    received: Callable[[Tensor, Tensor, Tensor, float], None] | None = None
    # follows heads' outputs to W_O in the layers of ``held``, whose blocks go to the observers when
    # it is known what they are multiplied with on the way
    passage: Passage | None = None
    held: Collection[Site] = ()  # the sites where something stands between heads and W_O
    # gets the number of every call and what became of its heads' outputs, in place of ``held``
    follows: Callable[[int, Passed], None] | None = None
    # whether layers that are not planned attend unwatched, as those of a tower do that reads
    # pictures for the others
    aside: bool = False
    # where observers get what layers on other devices computed; None for where it is
    device: torch.device | None = None
    _mask: tuple[Tensor, Tensor] | None = None

    def watches(self, module: nn.Module) -> bool:
        """Whether a layer is among those planned, where others may run aside."""
        return not self.aside or any(id(module) == planned for planned, _ in self.plan or ())

    def next_site(
        self, module: nn.Module, query: Tensor, keys: int, extras: Mapping[str, Any]
    ) -> Site:
        """Name the site of the next call, of queries [B, H, T, d]; ``extras``: what is passed."""
        self.strangers |= {
            name for name, extra in extras.items()
            if isinstance(extra, Tensor) and name not in _HARMLESS
        }  # fmt: skip
        index = getattr(module, "layer_idx", None)
        layer = index if type(index) is int else None
        _, heads, length, _ = query.shape
        call, number = Call(id(module), layer, heads, length, keys), len(self.calls)
        self.calls.append(call)
        if self.plan is None:
            return Site("encoder", number)
        if number >= len(self.plan) or self.plan[number][0] != call.module:
            raise ModelError(
                f"the model called its attention layers in another order than at first (call "
                f"{number}); its attention depends on the text and cannot be hooked"
            )
        return self.plan[number][1]

    def check_complete(self) -> None:
        """Raise ModelError if planned calls are missing after a forward pass."""
        if self.plan is not None and len(self.calls) != len(self.plan):
            raise ModelError(
                f"the model called {len(self.calls)} attention layers instead of {len(self.plan)}; "
                "its attention depends on the text and cannot be hooked"
            )
        if self.passage is not None and self.passage.pending:
            raise ModelError(
                "no linear layer took the outputs of the last heads, as one did when the model was "
                "loaded; what stands between its heads and W_O depends on the text"
            )

    def plain(self, mask: Tensor) -> Tensor:
        """Give the mask, as booleans if it only blocks; layers that share a mask share the work."""
        if self._mask is None or self._mask[0] is not mask:
            self._mask = (mask, as_boolean(mask))
        return self._mask[1]


_RUN: ContextVar[WatchedPass | None] = ContextVar("attnviz_run", default=None)

_CAUSAL: ContextVar[frozenset[int]] = ContextVar("attnviz_causal", default=frozenset())
"""Configurations (their ``id``) whose mask of this pass was left out: causality says it all."""


def hooking(run: WatchedPass) -> AbstractContextManager[WatchedPass]:
    """Let ``run`` watch every forward pass of a hooked model inside the ``with`` block."""
    return holding(_RUN, run)


def masks_forgotten() -> AbstractContextManager[object]:
    """Let passes inside the ``with`` block know of no mask that an earlier pass left out."""
    return holding(_CAUSAL, frozenset())


def register() -> None:
    """Make :data:`NAME` known to transformers; doing it again changes nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)


def as_boolean(mask: Tensor) -> Tensor:
    """Turn an additive mask that is 0 or blocks into booleans (True = may attend); leave others."""
    if mask.dtype == torch.bool:
        return mask
    if not mask.is_floating_point():
        return mask.bool()
    free = mask == 0
    return free if bool((free | (mask <= BLOCKED)).all()) else mask


def mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """Return Transformers' boolean SDPA mask, [B, 1, T, S] or None where causality says it all.

    Padding on the right of a causal model needs no mask: no real token sees it. An indexer always
    gets one, since it scores every key and leaves out those that are blocked itself.
    """
    from transformers import AttentionMaskInterface

    if torch.device(kwargs.get("device") or "cpu").type == "meta":  # shapes alone are asked for
        return None
    if getattr(kwargs.get("config"), "index_topk", None):
        kwargs["allow_is_causal_skip"] = False
    padding = kwargs.get("attention_mask")
    if kwargs.get("allow_is_causal_skip", True) and padding is not None and padding.ndim == 2:
        real = padding.bool()
        if not bool((real[:, 1:] > real[:, :-1]).any()):
            kwargs["attention_mask"] = None
    masks: Any = AttentionMaskInterface
    result: Tensor | None = masks()["sdpa"](*args, **kwargs)
    left_out = result is None and kwargs.get("allow_is_causal_skip", True)
    config = frozenset({id(kwargs.get("config"))})
    _CAUSAL.set(_CAUSAL.get() | config if left_out else _CAUSAL.get() - config)
    return result


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    indices: Tensor | None = None,
    **extras: Any,
) -> tuple[Tensor, None]:
    """Return what a hooked layer calls instead of its own attention.

    ``query`` [B, H, T, d]; ``key`` [B, G, S, d]; ``value`` [B, G, S, d_v]; ``attention_mask``:
    None, boolean or additive, broadcastable to [B, H, T, S]; it contains the sliding window, if
    there is one, so ``sliding_window`` among ``extras`` adds nothing; ``s_aux`` [H], learned sinks;
    ``indices`` [B, T, k], the keys that an indexer leaves to each query; None for all; returns the
    output [B, T, H, d], and no weights: those went to the observers.
    """
    run = _RUN.get()
    if run is None or not run.watches(module):
        run = WatchedPass(())  # the layer attends and nobody looks
    if query.is_meta:
        return _shaped(module, query, key, value, run, extras)
    length, keys = query.shape[2], key.shape[2]
    attention_mask, causal = _masking(module, query, key, attention_mask, is_causal, run)
    attention_mask, causal, unselected = selected(attention_mask, indices, causal, keys)
    site = run.next_site(module, query, keys, extras)
    observers = informed(run.observers, unselected)
    on_the_way: dict[int, Tensor] = {}
    if observers and run.device not in (None, query.device) and query.requires_grad:
        # by way of the device where they are seen, so that gradients reach what is seen
        moved = [x.to(run.device) for x in (query, key, value)]
        query, key, value = (x.to(query.device) for x in moved)
        on_the_way = dict(zip(map(id, (query, key, value)), moved, strict=True))
    observers = arriving(observers, run.device, query, on_the_way)
    residual, run.residual = run.residual, None
    if residual is not None:
        residual = residual.reshape(query.shape[0], length, -1)  # some layers flatten the batch
    if run.received is not None:
        run.received(query, key, value, query.shape[-1] ** -0.5 if scaling is None else scaling)
    donors = [donor.converted(query) for donor in run.donors.get(site, ())]
    gate = run.gates[site].converted(query) if site in run.gates else None
    cuts = run.cuts[site].converted(query) if site in run.cuts else None

    def attended(observers: Sequence[Observer]) -> Tensor:
        result = attend_unchecked(
            query,
            key,
            value,
            mask=attention_mask,
            bias=position_bias,
            causal=causal,
            scale=scaling,
            softcap=softcap,
            sinks=s_aux,
            dropout=dropout,
            cuts=cuts,
            gate=gate,
            donors=donors,
            residual=residual,
            site=site,
            observers=observers,
        )
        return result.output

    passage = run.passage if site in run.held or run.follows is not None else None
    # blocks are told when the gate is known; computed in the same way as if they were told now
    watchers = (_Nobody(),) if passage is not None and observers else observers
    output = attended(watchers).transpose(1, 2).contiguous()
    if run.attended is not None:
        run.attended(output)
    if passage is not None:
        on_passed = partial(_told, attended, observers)
        if run.follows is not None:
            on_passed = partial(run.follows, len(run.calls) - 1)
        donor = next((donor for donor in donors if donor.part == "gate"), None)
        passage.begin(output, on_passed, None if donor is None else partial(exchanged, donor))
    return output, None


def _shaped(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    run: WatchedPass,
    extras: Mapping[str, Any],
) -> tuple[Tensor, None]:
    """Get the shape of an output, and to the observers that of the weights: nothing is computed."""
    batch, heads, length, _ = query.shape
    output = query.new_empty(batch, length, heads, value.shape[-1])
    site = run.next_site(module, query, key.shape[2], extras)
    weights = query.new_empty(batch, heads, length, key.shape[2])
    for observer in run.observers:
        observer.observe(Rows(site, 0, 0, weights, None))
    if run.attended is not None:
        run.attended(output)
    return output, None


def _masking(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    is_causal: bool | None,
    run: WatchedPass,
) -> tuple[Tensor | None, bool]:
    """Return the mask, as booleans if it only blocks, and whether causality takes its place."""
    length, keys = query.shape[2], key.shape[2]
    if mask is not None:
        mask = mask[..., :keys] if mask.shape[-1] > keys else mask
        return run.plain(mask), False
    if is_causal is None:
        # without a mask eager attention blocks nothing, unless ours left a causal one out
        left_out = id(getattr(module, "config", None)) in _CAUSAL.get()
        is_causal = getattr(module, "is_causal", left_out)
    causal = bool(is_causal) and length > 1
    if causal and length != keys:  # the first query is the first token, not the last but T
        return torch.ones(length, keys, dtype=torch.bool, device=key.device).tril(), False
    return None, causal


class _Nobody:
    """An observer that looks at nothing."""

    def observe(self, rows: Rows) -> None:
        """Take in a block."""


def arriving(
    observers: Sequence[Observer],
    device: torch.device | None,
    beside: Tensor,
    moved: Mapping[int, Tensor] = MappingProxyType({}),
) -> tuple[Observer, ...]:
    """Give the observers of a layer that is where ``beside`` is: they see it on their device.

    ``moved``: what is there already, by the ``id`` of what is made of it.
    """
    if device is None or device == beside.device:
        return tuple(observers)

    def change(rows: Rows) -> Rows:
        return mapped(rows, lambda x: moved[id(x)] if id(x) in moved else x.to(device))

    return tuple(Handing(observer, change) for observer in observers)


def _told(
    attended: Callable[[Sequence[Observer]], Tensor], observers: Sequence[Observer], passed: Passed
) -> None:
    """Show the blocks of a layer whose heads' outputs have reached W_O, with what they passed."""

    def change(rows: Rows) -> Rows:
        queries = slice(rows.start, rows.start + rows.weights.shape[2])
        passes = passed.factor[:, queries].transpose(1, 2)
        opened = None if passed.gate is None else passed.gate[:, queries].transpose(1, 2)
        openness = opened.float().mean(-1) if opened is not None and passed.opens else None
        return replace(rows, passes=passes, openness=openness, opened=opened)

    if observers:
        attended([Handing(observer, change) for observer in observers])
