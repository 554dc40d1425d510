"""Maps of models that attend inside windows, put together from what they return.

Longformer and LED return of every token the weights on the keys around it, behind those on tokens
that all look at, and apart from them the rows of these; LongT5's encoder those of each block of
tokens on the block before it, on itself and on the next. That they are put in the right places is
seen on the model itself: a linear layer (W_O) takes, number for number, the product of the map with
what another linear layer gave (the values).

Shapes: B batch, H heads, T tokens, W keys of a band, L tokens of a block, G tokens that all look
at.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.models.hooked.trace import ModuleCall, listening

_GLOBAL = "global_attention_mask"
"""The argument that says which tokens look at all and are looked at by all."""


@dataclass(frozen=True)
class Windows:
    """How a model returns the weights of its windows."""

    field: str  # of its output, ``attentions`` or ``encoder_attentions``
    widths: tuple[int, ...]  # of each layer W, or L where windows are ``blocks``
    blocks: bool  # whether tokens share the windows of their block
    whole: bool = False  # whether its head says which tokens look at all, so that it runs too

    @property
    def reaches(self) -> tuple[int, ...]:
        """The distance from which on keys are outside, by layer."""
        return self.widths if self.blocks else tuple(width // 2 + 1 for width in self.widths)

    @property
    def note(self) -> str:
        """What they are, for the end of a sentence."""
        if self.blocks:
            return f"; put together from blocks of {max(self.widths)} tokens"
        seen = "tokens that look at all as its head says" if self.whole else "no token looks at all"
        return f"; put together from windows of {max(self.widths)} keys, {seen}"

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
                own = None if everywhere is None or rows is None else (everywhere, rows[n])
                maps.append(_of_band(weights, self.widths[n], own))
        return {**output, self.field: tuple(maps)}


def _of_blocks(weights: Tensor, length: int) -> Tensor:
    """Make a map [B, H, T, T] of the weights of blocks, [B, n, H, L, 3 L]."""
    batch, count, heads, size, _ = weights.shape
    whole = weights.new_zeros(batch, heads, count * size, (count + 2) * size)
    for n in range(count):
        whole[:, :, n * size : (n + 1) * size, n * size : (n + 3) * size] = weights[:, n]
    return whole[:, :, :length, size : size + length]


def _of_band(weights: Tensor, width: int, apart: tuple[Tensor, Tensor] | None) -> Tensor:
    """Make a map [B, H, T, T] of the weights of a band, [B, H, T, G + W].

    ``apart``: which tokens look at all, bool [B, T], and their rows, [B, H, T or more, G].
    """
    batch, heads, length, _ = weights.shape
    half = width // 2
    keys = torch.arange(length)[:, None] + torch.arange(width)
    keys = keys.to(weights.device).expand(batch, heads, length, width)
    whole = weights.new_zeros(batch, heads, length, length + 2 * half)
    whole.scatter_(-1, keys, weights[..., -width:])
    whole = whole[..., half : half + length].contiguous()
    if apart is not None:
        for item, (looking, rows) in enumerate(zip(*apart, strict=True)):
            places = looking.nonzero()[:, 0]
            whole[item][..., places] += weights[item][..., : len(places)]
            whole[item][:, places] = rows[:, :length, : len(places)].transpose(1, 2)
    return whole


@contextlib.contextmanager
def looking_at_all(body: nn.Module) -> Iterator[list[Tensor]]:
    """Keep which tokens look at all, bool [B, T], as the body is told inside the ``with`` block."""
    found: list[Tensor] = []

    def entering(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        mask = kwargs.get(_GLOBAL)
        if isinstance(mask, Tensor):
            found.append(mask > 0)

    with listening([body], before=entering):
        yield found


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
            seen, value = (_by_token(x, batch, length) for x in (call.entered, call.left))
            if seen is not None and any(
                x.shape == seen.shape and close(x[real], seen[real])
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
