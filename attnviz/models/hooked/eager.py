"""The long way: attention weights that a model returned whole, handed out as if they streamed.

Families that do not ask for an attention function (GPT-Neo, DeBERTa-v2, BLOOM, XLNet, Falcon, ...)
compute their weights themselves and return all of them after the pass, L·H·T·S numbers at once.
What each query was allowed to see is not returned with them and is put together again from the
padding, causality and the window.

W_O of such a model is the linear layer that takes, number for number, the product of weights and
values.

Queries, keys and values are heard as well: while such code runs, every product of two tensors and
every softmax is recorded; a softmax whose scores are one product, scaled, plus what depends on the
key or on its distance alone (ALiBi, Press et al. 2021, arXiv:2108.12409) has told its queries and
keys. Scores that are sums of several products (disentangled or Transformer-XL attention) have not.
The next product with what the softmax gave is that with the values, and gives the heads' outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnviz.attention.blocks import BLOCK_ELEMENTS
from attnviz.attention.masks import Masks, cut
from attnviz.core.arrays import exact
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.source import Observer, Rows, Terms
from attnviz.core.weights import OutputProjection
from attnviz.errors import ModelError
from attnviz.files import human_bytes
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.projection import Projections, why_unsplit
from attnviz.models.hooked.trace import close
from attnviz.models.limits import beyond
from attnviz.models.tensor_calls import Call

_PRODUCTS = frozenset({"matmul", "__matmul__", "bmm", "baddbmm"})
_CLOSE = 1e-4
"""How far weights that are computed again may be off, and biases from depending on keys alone."""


@dataclass
class _Heard:
    """One softmax: the product before it, its scores and weights, and what follows it."""

    query: Tensor
    key: Tensor
    alpha: float
    scores: Tensor
    weights: Tensor
    value: Tensor | None = None
    output: Tensor | None = None


class QKHook(TorchFunctionMode):
    """Listens inside its ``with`` block."""

    def __init__(self, attended: Callable[[Tensor], None] | None = None) -> None:
        super().__init__()
        self._attended = attended
        self._product: tuple[Tensor, Tensor, float, int] | None = None
        self._heard: list[_Heard] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let a function run, and note what it did."""
        out = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in _PRODUCTS:
            self._multiplied(Call(name, func, args, kwargs or {}), out)
        elif name == "softmax" and self._product is not None and args:
            query, key, alpha, size = self._product
            if args[0].numel() == size:
                self._heard.append(_Heard(query, key, alpha, args[0], out))
            self._product = None
        return out

    def terms(self, returned: Mapping[Site, Tensor]) -> dict[Site, Terms]:
        """Return what the weights that came back are made of, for the layers that told it."""
        terms, heard = {}, iter(self._heard)
        for site, weights in returned.items():
            call = next((h for h in heard if _same(h.weights, weights)), None)
            layer_terms = None if call is None else _terms(call, weights)
            if layer_terms is not None:
                terms[site] = layer_terms
        return terms

    def values(self, returned: Mapping[Site, Tensor]) -> dict[Site, tuple[int, Tensor]]:
        """Return the values that the weights that came back were multiplied with.

        By layer the number of its call among those that multiplied, and the values, [B, G, S, d_v];
        of layers where weights times values are what that product gave.
        """
        products, heard = {}, iter(enumerate(h for h in self._heard if h.value is not None))
        for site, weights in returned.items():
            call = next(((n, h) for n, h in heard if _same(h.weights, weights)), None)
            layer_values = None if call is None else _values(call[1], weights)
            if call is not None and layer_values is not None:
                products[site] = (call[0], layer_values)
        return products

    def _multiplied(self, call: Call, out: Any) -> None:
        product = call.product()
        if product is None or product.operands[1].ndim < 3:
            return
        left, right = product.operands
        last = self._heard[-1] if self._heard else None
        if last is not None and last.value is None and left.numel() == last.weights.numel():
            last.value, last.output = right, out
            if self._attended is not None:
                self._attended(out)
        else:
            self._product = (left, right, float(call.kwargs.get("alpha", 1)), out.numel())


def _same(heard: Tensor, returned: Tensor) -> bool:
    return heard.numel() == returned.numel() and torch.equal(
        heard.reshape(returned.shape).to(returned.dtype), returned
    )


def _values(heard: _Heard, weights: Tensor) -> Tensor | None:
    """[B, G, S, d_v], if weights times these are what the model made of them."""
    assert heard.value is not None
    assert heard.output is not None
    batch, heads, queries, keys = weights.shape
    value = _split(heard.value, batch, keys)
    output = _split(heard.output, batch, queries)
    if value is None or output is None or output.shape[1] != heads or heads % value.shape[1]:
        return None
    product = exact(weights) @ exact(value.repeat_interleave(heads // value.shape[1], 1))
    return value if close(product, output) else None


def _terms(heard: _Heard, weights: Tensor) -> Terms | None:
    """Give queries, keys, scale and bias of one softmax, where its scores are of these alone."""
    batch, heads, queries, keys = weights.shape
    if heard.value is None:
        return None
    query = _split(heard.query, batch, queries)
    key = _split(heard.key.mT, batch, keys)
    value = _split(heard.value, batch, keys)
    if query is None or key is None or value is None or query.shape[1] != heads:
        return None
    if heads % key.shape[1] or key.shape[:2] != value.shape[:2]:
        return None
    products = exact(query) @ exact(key.repeat_interleave(heads // key.shape[1], 1)).mT
    scores, visible = exact(heard.scores.reshape(weights.shape)), weights > 0
    for scale in (heard.alpha, heard.alpha / query.shape[-1] ** 0.5):
        bias = _simple(scores - scale * products, visible)
        if bias is None:
            continue
        redone = (
            (scale * products + bias).masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num()
        )
        if bool(((redone - weights).abs() <= _CLOSE).all()):
            biases = (bias.to(query.dtype),) if bool((bias.abs() > _CLOSE).any()) else ()
            return Terms(query, key, value, scale, None, biases)
    return None


def _split(x: Tensor, batch: int, length: int) -> Tensor | None:
    """[B, heads, length, width] of a tensor that may have batch and heads in one axis."""
    if x.shape[-2] != length or x.numel() % (batch * length * x.shape[-1]):
        return None
    return x.reshape(batch, -1, length, x.shape[-1])


def _simple(remainder: Tensor, visible: Tensor) -> Tensor | None:
    """Give what is left of scores, [B, H, T, S], of keys alone or of distances alone; or None."""
    low = remainder.masked_fill(~visible, torch.inf)
    high = remainder.masked_fill(~visible, -torch.inf)
    by_key = low.amin(2, keepdim=True)
    tolerance = _CLOSE * (1 + remainder.masked_fill(~visible, 0).abs().amax())
    if bool(((high.amax(2, keepdim=True) - by_key) <= tolerance).all()):
        return by_key.nan_to_num(posinf=0.0).expand_as(remainder)
    size = remainder.shape[2:]
    distance = torch.arange(size[1])[None] - torch.arange(size[0])[:, None] + size[0] - 1
    flat = distance.flatten().to(remainder.device).expand(*remainder.shape[:2], -1)
    lowest = remainder.new_full((*remainder.shape[:2], sum(size)), torch.inf)
    highest = -lowest
    lowest = lowest.scatter_reduce(2, flat, low.flatten(2), "amin")
    highest = highest.scatter_reduce(2, flat, high.flatten(2), "amax")
    if bool(((highest - lowest) <= tolerance).all()):
        return lowest.nan_to_num(posinf=0.0).gather(2, flat).view_as(remainder)
    return None


_FIELDS: Mapping[str, SiteKind] = {
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}


def check_room(
    name: str, layout: Layout, sides: Mapping[SiteKind, tuple[int, int]], size: int, device: str
) -> None:
    """Refuse a pass whose maps, which all come back at once, would fill the device it runs on.

    ``size``: bytes of a weight, times the texts of a batch.
    """
    needed = size * sum(
        layout.heads[site.kind][site.layer] * math.prod(sides.get(site.kind, sides["encoder"]))
        for site in layout.sites
    )
    if over := beyond(needed, device=device):
        raise ModelError(
            f"{name} returns all its maps at once (the eager backend), {human_bytes(needed)} for "
            f"{max(map(max, sides.values())):,} tokens, {over}; shorten the text"
        )


def returned(output: Mapping[str, Any], kind: SiteKind | None) -> dict[Site, Tensor]:
    """Return the weights in a transformers output, [B, H, T, S] by site that has some."""
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
    allowed = free = None  # [B or 1, 1, T, S]; the keys that no window takes from a query
    if everywhere is not None:
        free = (everywhere[:, :, None] | everywhere[:, None])[:, None]
    for window in (*(width for width in sorted(windows) if width < keys), None):
        allowed = Masks(length, keys, weights, None, None, causal, window).whole()
        if allowed is not None and free is not None:
            allowed = allowed | free
        if window is None or allowed is None or _inside(weights, allowed, padding):
            break
    if padding is not None:
        visible = padding[:, None, None, :]
        allowed = visible if allowed is None else allowed & visible
    rows = max(1, BLOCK_ELEMENTS // max(1, batch * heads * keys))
    for start in range(0, length, rows):
        block = weights[:, :, start : start + rows]
        block = block.to(torch.promote_types(block.dtype, torch.float32))
        part = None if allowed is None else cut(allowed, start, start + rows, slice(None))
        for observer in observers:
            observer.observe(Rows(site, start, 0, block, part, values=values, terms=terms))


def _inside(weights: Tensor, allowed: Tensor, padding: Tensor | None) -> bool:
    """Whether every real query of a self-attention layer stayed inside the window."""
    outside = weights.amax(1) * ~allowed[:, 0]
    return not bool((outside if padding is None else outside * padding[:, :, None]).any())


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
        by_item = z.reshape(batch, -1, *z.shape[-2:]) if z.shape[0] % batch == 0 else z[None]
        projections.attended(by_item.transpose(1, 2))

    hook = QKHook(attended)
    try:
        with torch.no_grad(), hook, projections.watching(network.body):
            output = network.run(items, weights=True)
    except Exception:  # whatever a model's own code raises when it is listened to
        return EagerOutputs()
    heard = hook.values(returned(output, "decoder"))
    unseen = OutputProjection(None, None, _UNSEEN)
    outputs = {
        site: projections.by_call[heard[site][0]] if site in heard else unseen
        for site in layout.sites
        if layout.heads[site.kind][site.layer]
    }
    if any(out.weight is None for out in outputs.values()):
        unsplit = {site: replace(out, reason=why_unsplit(network.family, out.reason))
               for site, out in outputs.items() if out.weight is None}  # fmt: skip
        return EagerOutputs(outputs | unsplit)
    modules = {
        weight.data_ptr(): id(module)
        for module in network.body.modules()
        if isinstance(weight := getattr(module, "weight", None), nn.Parameter)
    }
    plan = tuple((modules[out.weight.data_ptr()], site) for site, out in outputs.items()
                 if out.weight is not None)  # fmt: skip
    return EagerOutputs(outputs, plan)
