"""The long way: attention weights that a model returned whole, handed out as if they streamed.

Families that do not ask for an attention function (GPT-Neo, DeBERTa-v2, BLOOM, XLNet, Falcon, ...)
compute their weights themselves and return all of them after the pass, L·H·T·S numbers at once.
What each query was allowed to see is not returned with them and is put together again from the
padding, causality and the window.

W_O of such a model is the linear layer that takes, number for number, the product of weights and
values, which is recorded where the model makes it (:mod:`attnviz.models.hooked.qk_hook`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.attention.blocks import BLOCK_ELEMENTS
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.source import Observer, Rows, Terms
from attnviz.core.weights import OutputProjection
from attnviz.errors import ModelError
from attnviz.files import human_bytes
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.projection import Projections, why_unsplit
from attnviz.models.hooked.qk_hook import QKHook
from attnviz.models.limits import beyond

_FIELDS: Mapping[str, SiteKind] = {
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}


def check_room(
    name: str, layout: Layout, sides: Mapping[SiteKind, tuple[int, int]], size: int
) -> None:
    """Refuse a pass whose maps, which all come back at once, would fill the machine.

    ``size``: bytes of a weight, times the texts of a batch.
    """
    needed = size * sum(
        layout.heads[site.kind][site.layer] * math.prod(sides.get(site.kind, sides["encoder"]))
        for site in layout.sites
    )
    if over := beyond(needed):
        raise ModelError(
            f"{name} returns all its maps at once (the eager backend), {human_bytes(needed)} for "
            f"{max(map(max, sides.values())):,} tokens, {over}; shorten the text"
        )


def returned(output: Mapping[str, Any], kind: SiteKind | None) -> dict[Site, Tensor]:
    """The weights in a transformers output, [B, H, T, S] by site.

    Returns: layers without attention (None in the output) have no entry; empty if nothing came
    back.
    """
    fields: Mapping[str, SiteKind] = _FIELDS if kind is None else {"attentions": kind}
    sites = {}
    for name, site_kind in fields.items():
        for layer, weights in enumerate(output.get(name) or ()):
            if isinstance(weights, Tensor) and weights.ndim == 4:
                sites[Site(site_kind, layer)] = weights
    return sites


def hand_out(
    site: Site,
    weights: Tensor,
    observers: Sequence[Observer],
    *,
    padding: Tensor | None,
    causal: bool,
    windows: Iterable[int] = (),
    everywhere: Tensor | None = None,
    terms: Terms | None = None,
    values: Tensor | None = None,
) -> None:
    """Give ``weights`` to the observers in blocks of query rows.

    ``weights`` [B, H, T, S], any float dtype; handed out as float32 or float64; ``padding``: bool
    [B, S], True for real keys; None when all are; ``everywhere``: bool [B, T], the tokens that look
    beyond windows and are looked at from there; ``values`` [B, G, S, d_v], what they were
    multiplied with, where that was recorded.
    """
    batch, heads, length, keys = weights.shape
    fits = partial(_inside, weights, padding=padding, everywhere=everywhere)
    window = next((w for w in sorted(windows) if w < keys and fits(w)), None)
    rows = max(1, BLOCK_ELEMENTS // max(1, batch * heads * keys))
    for start in range(0, length, rows):
        block = weights[:, :, start : start + rows]
        block = block.to(torch.promote_types(block.dtype, torch.float32))
        allowed = _allowed(start, block, causal=causal, window=window)
        if allowed is not None and everywhere is not None:
            rows_of = everywhere[:, start : start + block.shape[2]]
            allowed = allowed | (rows_of[:, :, None] | everywhere[:, None])[:, None]
        if padding is not None:
            seen = padding[:, None, None, :]
            allowed = seen if allowed is None else allowed & seen
        for observer in observers:
            observer.observe(Rows(site, start, 0, block, allowed, values=values, terms=terms))


def _distance(start: int, rows: int, keys: int, device: torch.device) -> Tensor:
    """Query position - key position, [rows, keys]."""
    queries = torch.arange(start, start + rows, device=device)
    return queries[:, None] - torch.arange(keys, device=device)


def _inside(
    weights: Tensor, window: int, padding: Tensor | None, everywhere: Tensor | None
) -> bool:
    """Whether every real query of a self-attention layer stayed inside the window."""
    far = _distance(0, weights.shape[2], weights.shape[3], weights.device).abs() >= window
    outside = weights.amax(1) * far
    if everywhere is not None:
        outside = outside * ~(everywhere[:, :, None] | everywhere[:, None])
    return not bool((outside if padding is None else outside * padding[:, :, None]).any())


def _allowed(start: int, block: Tensor, *, causal: bool, window: int | None) -> Tensor | None:
    """Bool [1, 1, r, S], or None when every query sees every key."""
    if not causal and window is None:
        return None
    distance = _distance(start, block.shape[2], block.shape[3], block.device)
    allowed = torch.ones_like(distance, dtype=torch.bool)
    if causal:
        allowed &= distance >= 0
    if window is not None:
        allowed &= distance.abs() < window
    return allowed[None, None]


_UNSEEN = "no product of the weights that it returns with values was seen"


@dataclass(frozen=True)
class EagerOutputs:
    """What was found."""

    # W_O of every layer that attends, or why it is not known
    projections: Mapping[Site, OutputProjection] = field(default_factory=dict)
    # the linear layer that is W_O, by its ``id``, and the layer; of all layers or of none
    plan: tuple[tuple[int, Site], ...] = ()


def find_outputs(network: HookedModel, layout: Layout, items: Sequence[Item]) -> EagerOutputs:
    """Try with a few tokens which linear layer takes the outputs of every layer's heads."""
    projections = Projections()
    batch = len(items)

    def attended(z: Tensor) -> None:
        whole = z.reshape(batch, -1, *z.shape[-2:]) if z.shape[0] % batch == 0 else z[None]
        projections.attended(whole.transpose(1, 2))

    hook = QKHook(attended)
    try:
        with torch.no_grad(), hook, projections.watching(network.body):
            output = network.run(items, weights=True)
    except Exception:  # whatever a model's own code raises when it is listened to
        return EagerOutputs()
    heard = hook.values(returned(output, "decoder"))
    unseen = OutputProjection(None, None, _UNSEEN)
    outputs = {
        site: projections.seen[heard[site][0]] if site in heard else unseen
        for site in layout.sites
        if layout.heads[site.kind][site.layer]
    }
    if any(out.weight is None for out in outputs.values()):
        why = {site: replace(out, reason=why_unsplit(network.family, out.reason))
               for site, out in outputs.items() if out.weight is None}  # fmt: skip
        return EagerOutputs(outputs | why)
    modules = {
        weight.data_ptr(): id(module)
        for module in network.body.modules()
        if isinstance(weight := getattr(module, "weight", None), nn.Parameter)
    }
    plan = tuple((modules[out.weight.data_ptr()], site) for site, out in outputs.items()
                 if out.weight is not None)  # fmt: skip
    return EagerOutputs(outputs, plan)
