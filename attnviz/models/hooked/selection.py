"""What an indexer leaves of the keys, inside the hooks: DeepSeek Sparse Attention.

Its layers give the attention function the places of the keys that stay, for every query
(arXiv:2512.02556). Those that a query could have seen and that did not stay are no weights of 0 and
no masked keys: observers are told which they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnviz.core.source import Observer, Rows


def selected(
    mask: Tensor | None, places: Tensor | None, causal: bool, keys: int
) -> tuple[Tensor | None, bool, Tensor | None]:
    """A mask without the keys that do not stay, and which of the allowed ones these are.

    Args:
        mask: broadcastable to [B, 1, T, S]; boolean (True = may attend) or added to the scores.
        places: [B, T, k], the keys that stay; those that are blocked otherwise stay blocked. None
            where all stay, and nothing is done.
        causal: whether a query sees no later key, T = S, where there is no mask.
        keys: S.

    Returns:
        The mask, of the same kind, whether causality stands beside it, and the keys that were left
        out, bool [B, 1, T, S].
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
