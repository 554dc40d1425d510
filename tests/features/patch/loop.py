"""The loop that people write: hooks on transformers' own models, one pair at a time, in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from attnviz.features.patch.pairs import Pair


def token(pair: Pair, name: str) -> int:
    found = getattr(pair, name)
    assert isinstance(found, int)
    return found


class PlainLoop:
    """Runs a model with what some heads of another run give.

    Attributes:
        model: the model.
        modules: what W_O is in, by layer; None where a layer has no heads.
        heads: how many each layer has.
        mask: the token whose place is read in a masked model; else the last one is.
    """

    def __init__(self, model: Any, modules: list[Any], heads: int, mask: int | None = None) -> None:
        self.model, self.modules, self.heads = model.double().eval(), modules, heads
        self.mask = mask

    def difference(
        self, pair: Pair, ids: Any, change: Callable[[int, Tensor], Any] | None = None
    ) -> float:
        """The lead of the answer; ``change`` is given what goes into each W_O."""
        with torch.no_grad(), ExitStack() as hooks:
            for layer, module in enumerate(self.modules if change else ()):
                if module is None:
                    continue
                hook = module.register_forward_pre_hook(
                    lambda _, args, layer=layer: change(layer, args[0])  # type: ignore[misc]
                )
                hooks.callback(hook.remove)
            at = -1 if self.mask is None else list(ids).index(self.mask)
            logits = self.model(torch.tensor([ids])).logits[0, at]
        return float(logits[token(pair, "answer")] - logits[token(pair, "against")])

    def kept(self, pair: Pair, ids: Any) -> dict[int, Tensor]:
        """What goes into each W_O, by layer."""
        found: dict[int, Tensor] = {}
        self.difference(pair, ids, lambda layer, z: found.update({layer: z.clone()}))
        return found

    def patched(self, pair: Pair, base: Any, donor: Any, heads: Iterable[Sequence[int]]) -> float:
        """The lead with the columns of some heads, (layer, number), as another run has them."""
        kept = self.kept(pair, donor)
        width = next(iter(kept.values())).shape[-1] // self.heads

        def swap(layer: int, z: Tensor) -> tuple[Tensor]:
            mixed = z.clone()
            for head in (number for at, number in heads if at == layer):
                columns = slice(head * width, (head + 1) * width)
                mixed[..., columns] = kept[layer][..., columns]
            return (mixed,)

        return self.difference(pair, base, swap)

    def shares(self, pairs: list[Pair], layer: int, head: int) -> tuple[float, float]:
        restored = removed = gap = 0.0
        for pair in pairs:
            clean, corrupted = (self.difference(pair, ids) for ids in (pair.clean, pair.corrupted))
            gap += clean - corrupted
            one = [(layer, head)]
            restored += self.patched(pair, pair.corrupted, pair.clean, one) - corrupted
            removed += clean - self.patched(pair, pair.clean, pair.corrupted, one)
        return restored / gap, removed / gap
