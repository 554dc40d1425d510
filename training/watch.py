"""Head scores as a model trains: attention weights [L, B, H, T, T] in, [L, H] out."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def best(scores: Mapping[str, Tensor]) -> dict[str, float]:
    """The best head's value of each score."""
    return {name: float(values.max()) for name, values in scores.items()}


def offset_scores(weights: Tensor, offset: int) -> Tensor:
    """[L, B, H, T, T] → [L, H]: mean weight on position i + ``offset``.

    Rows 0 and 1 are left out for the previous token: row 1's is also the first.
    """
    diagonal = weights.diagonal(offset, dim1=-2, dim2=-1)
    return diagonal[..., 1:].mean(dim=(1, 3))


def first_scores(weights: Tensor) -> Tensor:
    """[L, B, H, T, T] → [L, H]: mean weight on position 0, from row 2 on."""
    return weights[..., 2:, 0].mean(dim=(1, 3))


def matched_scores(weights: Tensor, wanted: Tensor) -> Tensor:
    """[L, B, H, T, T] and a mask [B, T, T] → [L, H]: mean weight on the wanted keys.

    The mean is over the rows that have any.
    """
    rows = wanted.any(-1)
    mass = (weights * wanted[None, :, None]).sum(-1)
    return mass.transpose(2, 3)[:, rows].mean(1)


def earlier_same(ids: Tensor) -> Tensor:
    """[B, T] → [B, T, T]: key j < i holds the token of query i."""
    return (ids[:, :, None] == ids[:, None, :]).tril(-1)


def after_earlier_same(ids: Tensor) -> Tensor:
    """[B, T] → [B, T, T]: key j <= i - 1 follows an earlier occurrence of query i's token."""
    same = earlier_same(ids)
    return torch.cat([torch.zeros_like(same[:, :, :1]), same[:, :, :-1]], dim=2).tril(-1)


def causal_scores(
    text: Tensor, text_ids: Tensor, repeat: Tensor, repeat_ids: Tensor
) -> Mapping[str, Tensor]:
    """[L, H] each: previous, first and duplicate on text; the rest on repeated random tokens.

    ``repeat_ids`` is a begin token, then random tokens twice; the second time counts.
    """
    half = repeat_ids.shape[1] // 2 + 1
    induction, same = after_earlier_same(repeat_ids), earlier_same(repeat_ids)
    induction[:, :half] = False
    same[:, :half] = False
    return {
        "previous": offset_scores(text, -1),
        "first": first_scores(text),
        "duplicate": matched_scores(text, earlier_same(text_ids)),
        "induction": matched_scores(repeat, induction),
        "duplicate_random": matched_scores(repeat, same),
    }


def masked_scores(weights: Tensor, ids: Tensor, cls: int, sep: int) -> Mapping[str, Tensor]:
    """[L, H] each, of a BERT: previous, next, [CLS], [SEP], duplicate."""
    same = (ids[:, :, None] == ids[:, None, :]) & ~torch.eye(
        ids.shape[1], dtype=torch.bool, device=ids.device
    )
    ordinary = (ids != cls) & (ids != sep)
    separators = (ids == sep)[:, None, :] & ordinary[:, :, None]
    return {
        "previous": offset_scores(weights, -1),
        "next": offset_scores(weights, 1),
        "cls": first_scores(weights),
        "sep": matched_scores(weights, separators),
        "duplicate": matched_scores(weights, same & ordinary[:, :, None]),
    }
