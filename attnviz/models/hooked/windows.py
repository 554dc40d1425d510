"""Maps of models that attend inside windows, put together from what they return.

Longformer and LED return of every token the weights on the keys around it, behind those on tokens
that all look at, and apart from them the rows of these; LongT5's encoder those of each block of
tokens on the block before it, on itself and on the next. That they are put in the right places is
seen on the model itself: a linear layer (W_O) takes, number for number, the product of the map with
what another linear layer gave (the values).

Shapes: B batch, H heads, T tokens, W keys of a band, L tokens of a block, G tokens that all look
at.

What an indexer leaves of the keys, and a model whose maps are the scores by which it ranks them.

An indexer scores every key that a query may see and leaves the k best to attention (DeepSeek Sparse
Attention, arXiv:2512.02556). Its scores are no weights: they have any size and either sign, and
rows do not add up to anything. They are read where the model chooses by them, in the last call of
``topk`` before a layer attends, and are a layer's if the keys they choose are those that its
attention was left. Layers give the attention function the places of the keys that stay. Those that
a query could have seen and that did not stay are no weights of 0 and no masked keys: observers are
told which they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import ForwardRequest, Observer, Output, Rows, Source
from attnviz.core.weights import OutputProjection
from attnviz.errors import ModelError
from attnviz.models.hooked.trace import ModuleCall, listening
from attnviz.models.norm_based import OtherMaps

_GLOBAL = "global_attention_mask"
"""The argument that says which tokens look at all and are looked at by all."""


@dataclass(frozen=True)
class Windows:
    """How a model returns the weights of its windows."""

    field: str  # of its output, ``attentions`` or ``encoder_attentions``
    widths: tuple[int, ...]  # of each layer W, or L where windows are ``blocks``
    blocks: bool  # whether tokens share the windows of their block
    needs_head: bool = False  # whether its head says which tokens look at all, so that it runs too

    @property
    def reaches(self) -> tuple[int, ...]:
        """The distance from which on keys are outside, by layer."""
        return self.widths if self.blocks else tuple(width // 2 + 1 for width in self.widths)

    @property
    def note(self) -> str:
        """What they are, for the end of a sentence."""
        if self.blocks:
            return f"; put together from blocks of {max(self.widths)} tokens"
        tail = (
            "tokens that look at all as its head says"
            if self.needs_head
            else "no token looks at all"
        )
        return f"; put together from windows of {max(self.widths)} keys, {tail}"

    def unrolled(
        self, output: Mapping[str, Any], length: int, everywhere: Tensor | None
    ) -> dict[str, Any]:
        """Put maps [B, H, T, T] in the place of windows; ``everywhere`` is bool [B, T] or None."""
        rows = output.get(self.field.replace("attentions", "global_attentions"))
        maps = []
        for n, weights in enumerate(output[self.field]):
            if self.blocks:
                maps.append(_of_blocks(weights, length))
            else:
                looking = None if everywhere is None or rows is None else (everywhere, rows[n])
                maps.append(_of_band(weights, self.widths[n], looking))
        return {**output, self.field: tuple(maps)}


def _of_blocks(weights: Tensor, length: int) -> Tensor:
    """Make a map [B, H, T, T] of the weights of blocks, [B, n, H, L, 3 L]."""
    batch, count, heads, size, _ = weights.shape
    result = weights.new_zeros(batch, heads, count * size, (count + 2) * size)
    for n in range(count):
        result[:, :, n * size : (n + 1) * size, n * size : (n + 3) * size] = weights[:, n]
    return result[:, :, :length, size : size + length]


def _of_band(weights: Tensor, width: int, looking: tuple[Tensor, Tensor] | None) -> Tensor:
    """Make a map [B, H, T, T] of the weights of a band, [B, H, T, G + W].

    ``looking``: which tokens look at all, bool [B, T], and their rows, [B, H, T or more, G].
    """
    batch, heads, length, _ = weights.shape
    half = width // 2
    keys = torch.arange(length)[:, None] + torch.arange(width)
    keys = keys.to(weights.device).expand(batch, heads, length, width)
    result = weights.new_zeros(batch, heads, length, length + 2 * half)
    result.scatter_(-1, keys, weights[..., -width:])
    result = result[..., half : half + length].contiguous()
    if looking is not None:
        for item, (tokens, rows) in enumerate(zip(*looking, strict=True)):
            columns = tokens.nonzero()[:, 0]
            result[item][..., columns] += weights[item][..., : len(columns)]
            result[item][:, columns] = rows[:, :length, : len(columns)].transpose(1, 2)
    return result


@contextlib.contextmanager
def looking_at_all(body: nn.Module) -> Iterator[list[Tensor]]:
    """Keep which tokens look at all, bool [B, T], as the body is told inside the ``with`` block."""
    masks: list[Tensor] = []

    def entering(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        mask = kwargs.get(_GLOBAL)
        if isinstance(mask, Tensor):
            masks.append(mask > 0)

    with listening([body], pre_hook=entering):
        yield masks


def windows_of(output: Mapping[str, Any], length: int, *, stacks: bool) -> Windows | None:
    """Tell by the shapes of what a text of ``length`` tokens gave whether these are windows."""
    field = "encoder_attentions" if stacks else "attentions"
    layers = output.get(field) or ()
    shapes = [tuple(x.shape) for x in layers if isinstance(x, Tensor)]
    if not shapes or len(shapes) != len(layers):
        return None
    if all(len(shape) == 5 and shape[4] == 3 * shape[3] for shape in shapes):
        return Windows(field, tuple(shape[3] for shape in shapes), blocks=True)
    if all(len(s) == 4 and s[2] == length != s[3] and s[3] % 2 for s in shapes):
        return Windows(field, tuple(shape[3] for shape in shapes), blocks=False)
    return None


def are_taken(
    maps: Sequence[Tensor],
    calls: Sequence[ModuleCall],
    real: Tensor,
    close: Callable[[Tensor, Tensor], bool],
) -> bool:
    """Whether each map [B, H, T, T] times values is what a linear layer takes in rows [B, T]."""
    start = 0
    for weights in maps:
        batch, heads, length, _ = weights.shape
        values: list[Tensor] = []
        for n, call in enumerate(calls[start:], start):
            entered, value = (_by_token(x, batch, length) for x in (call.entered, call.output))
            if entered is not None and any(
                x.shape == entered.shape and close(x[real], entered[real])
                for x in (_times(weights, value) for value in values)
            ):
                start = n + 1
                break
            if value is not None and value.shape[-1] % heads == 0:
                values.append(value)
        else:
            return False
    return bool(maps)


def _by_token(x: Tensor, batch: int, length: int) -> Tensor | None:
    """Numbers of tokens as [B, T, D], of tokens first too and without what fills them up."""
    if x.ndim != 3:
        return None
    if x.shape[0] != batch and x.shape[1] == batch:
        x = x.transpose(0, 1)
    return x[:, :length] if x.shape[0] == batch and x.shape[1] >= length else None


def _times(weights: Tensor, value: Tensor) -> Tensor:
    """Multiply a map [B, H, T, T] with values [B, T, H · d], as [B, T, H · d]."""
    heads, (batch, length, width) = weights.shape[1], value.shape
    split = value.reshape(batch, length, heads, width // heads).transpose(1, 2)
    product: Tensor = weights.to(split.dtype) @ split
    return product.transpose(1, 2).reshape(batch, length, width)


_NEVER = torch.finfo(torch.bfloat16).min / 2
"""Scores below this are of keys that a query may not see."""


class Choosing(TorchFunctionMode):
    """Hears what is chosen from, inside its ``with`` block."""

    def __init__(self) -> None:
        super().__init__()
        # scores [., ., .] and the places chosen from them, of every such call since they were taken
        self.calls: list[tuple[Tensor, Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let a function run."""
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") == "topk":
            scores = args[0] if args else (kwargs or {})["input"]
            if scores.ndim == 3:
                self.calls.append((scores.detach(), out[1]))
        return out

    def taken(self, items: int, keys: int) -> tuple[Tensor, Tensor] | None:
        """Give the last call that chose among so many keys for so many items; all are forgotten."""
        calls, self.calls = self.calls, []
        sizes = (items, keys)
        return next((c for c in reversed(calls) if (len(c[0]), c[0].shape[2]) == sizes), None)


@dataclass
class _Ranking:
    """An observer of attention that tells others the scores behind what it was left."""

    choosing: Choosing
    observers: Sequence[Observer]
    layers: list[int] = field(default_factory=list)
    site: Site | None = None

    def observe(self, rows: Rows) -> None:
        """Take in a block; the first of a layer tells of all of it."""
        if rows.site == self.site:
            return
        self.site, left_out = rows.site, rows.unselected
        if left_out is None:
            self.choosing.calls.clear()
            return
        chosen = self.choosing.taken(len(left_out), left_out.shape[3])
        if chosen is None:  # the choice of an earlier layer
            return
        scores, places = chosen
        visible = scores > _NEVER
        stays = torch.zeros_like(visible).scatter(-1, places.long(), value=True) & visible
        if not torch.equal((visible & ~stays)[:, None, : left_out.shape[2]], left_out):
            raise ModelError(
                f"the keys that layer {rows.site.layer} is left are not those with its indexer's "
                "highest scores"
            )
        self.layers.append(rows.site.layer)
        ranked = replace(
            rows,
            start=0,
            key_start=0,
            weights=scores.float().masked_fill(~visible, 0.0)[:, None],
            allowed=stays[:, None],
            unselected=(visible & ~stays)[:, None],
            logits=None,
            sink=False,
        )
        for observer in self.observers:
            observer.observe(ranked)


class IndexMaps(OtherMaps):
    """The model with one map for each layer that has an indexer of its own."""

    def __init__(self, source: Source, layers: Sequence[int]) -> None:
        super().__init__(source)
        (kind,) = source.layout.kinds
        count = len(source.layout.heads[kind])
        heads = tuple(int(layer in layers) for layer in range(count))
        self.layout = Layout({kind: heads}, whole=True)

    def output(self, site: Site) -> OutputProjection:
        """No W_O: an indexer writes nothing."""
        return OutputProjection(None, None, "an indexer chooses keys and writes nothing")

    def watched(
        self, batch: Sequence[Inputs], observers: Sequence[Observer], request: ForwardRequest
    ) -> Output:
        """Run the model; see :class:`~attnviz.models.norm_based.OtherMaps`."""
        with Choosing() as choosing:
            return self._source.forward(batch, [_Ranking(choosing, observers)], request)


def indexed_layers(source: Source, batch: Sequence[Inputs]) -> list[int]:
    """Return the layers that choose keys by an indexer of their own, seen in a pass."""
    with Choosing() as choosing:
        ranking = _Ranking(choosing, ())
        source.forward(batch, [ranking], ForwardRequest(hidden=False))
    return ranking.layers


def selected(
    mask: Tensor | None, places: Tensor | None, causal: bool, keys: int
) -> tuple[Tensor | None, bool, Tensor | None]:
    """Return a mask without the keys that do not stay, and which of the allowed ones these are.

    ``mask``: broadcastable to [B, 1, T, S]; boolean (True = may attend) or added to the scores;
    ``places`` [B, T, k], the keys that stay; those that are blocked otherwise stay blocked. None
    where all stay, and nothing is done; returns the mask, of the same kind, whether causality
    stands beside it, and the keys that were left out, bool [B, 1, T, S].
    """
    if places is None:
        return mask, causal, None
    shape = (*places.shape[:2], keys)
    stays = torch.zeros(shape, dtype=torch.bool, device=places.device)
    stays = stays.scatter(-1, places.long(), value=True)[:, None]
    if mask is None:
        mask = torch.ones_like(stays)
        mask = mask.tril() if causal else mask
    if mask.dtype == torch.bool:
        return mask & stays, False, mask & ~stays
    least = torch.finfo(mask.dtype).min
    return mask.masked_fill(~stays, least), False, (mask > least / 2) & ~stays


def informed(observers: Sequence[Observer], unselected: Tensor | None) -> tuple[Observer, ...]:
    """Give the observers, told which keys were left out, bool [B, 1, T, S]; None for no indexer."""
    if unselected is None:
        return tuple(observers)

    def change(rows: Rows) -> Rows:
        queries = slice(rows.start, rows.start + rows.weights.shape[2])
        return replace(rows, unselected=unselected[:, :, queries])

    return tuple(Handing(observer, change) for observer in observers)


@dataclass(frozen=True)
class Handing:
    """An observer that hands blocks on to another, changed."""

    observer: Observer
    change: Callable[[Rows], Rows]

    def observe(self, rows: Rows) -> None:
        """Hand a block on."""
        self.observer.observe(self.change(rows))
