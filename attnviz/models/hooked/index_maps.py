"""What an indexer leaves of the keys, and a model whose maps are the scores by which it ranks them.

An indexer scores every key that a query may see and leaves the k best to attention (DeepSeek Sparse
Attention, arXiv:2512.02556). Its scores are no weights: they have any size and either sign, and
rows do not add up to anything. They are read where the model chooses by them, in the last call of
``topk`` before a layer attends, and are a layer's if the keys they choose are those that its
attention was left. Layers give the attention function the places of the keys that stay. Those that
a query could have seen and that did not stay are no weights of 0 and no masked keys: observers are
told which they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import ForwardRequest, Observer, Output, Rows, Source
from attnviz.core.weights import OutputProjection
from attnviz.errors import ModelError
from attnviz.models.norm_based import OtherMaps

_NEVER = torch.finfo(torch.bfloat16).min / 2
"""Scores below this are of keys that a query may not see."""


class Choosing(TorchFunctionMode):
    """Hears what is chosen from, inside its ``with`` block.

    Attributes:
        calls: scores [., ., .] and the places chosen from them, of every such call since they were
            taken.
    """

    def __init__(self) -> None:
        super().__init__()
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
        """The last call that chose among so many keys for so many items; all are forgotten."""
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
        shown = replace(
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
            observer.observe(shown)


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
    """The layers that choose keys by an indexer of their own, seen in a pass."""
    with Choosing() as choosing:
        ranking = _Ranking(choosing, ())
        source.forward(batch, [ranking], ForwardRequest(hidden=False))
    return ranking.layers


def selected(
    mask: Tensor | None, places: Tensor | None, causal: bool, keys: int
) -> tuple[Tensor | None, bool, Tensor | None]:
    """A mask without the keys that do not stay, and which of the allowed ones these are.

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
    """The observers, told which keys were left out, bool [B, 1, T, S]; None for no indexer."""
    if unselected is None:
        return tuple(observers)
    return tuple(_Selecting(observer, unselected) for observer in observers)


@dataclass(frozen=True)
class _Selecting:
    """An observer that tells another which keys were left out."""

    observer: Observer
    unselected: Tensor

    def observe(self, rows: Rows) -> None:
        """Hand a block on."""
        queries = slice(rows.start, rows.start + rows.weights.shape[2])
        self.observer.observe(replace(rows, unselected=self.unselected[:, :, queries]))
