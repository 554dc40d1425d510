"""Linear attention and state-space layers as exact maps: what every value has in every output.

A layer with a state has no softmax, and still its output is a sum over the values so far,
o_t = Σ_s c_ts v_s, with one number c_ts for a head wherever the state forgets in the same way in
all channels of the values. With a state S [d_v, d] that starts at 0:

- the gated delta rule (Yang et al. 2024, arXiv:2412.06464) has
  S_t = S_{t-1} D_t (I - β_t k_t k_tᵀ) + β_t v_t k_tᵀ and o_t = S_t q_t, where D_t is α_t I, or of
  Kimi delta attention (arXiv:2510.26692) a diagonal. Unrolled, S_t = Σ_s β_s v_s k_sᵀ M_{s+1} … M_t
  with M_r = D_r (I - β_r k_r k_rᵀ), hence **c_ts = β_s k_sᵀ M_{s+1} … M_t q_t**. From the right:
  w ← q_t, and for s = t, t - 1, …: c_ts = β_s k_s · w, then w ← D_s (w - β_s k_s (k_s · w)).
- Mamba-2's state-space duality (Dao & Gu 2024, arXiv:2405.21060) has S_t = e^{Δ_t A} S_{t-1} +
  Δ_t x_t B_tᵀ and o_t = S_t C_t + D x_t, hence c_ts = (C_t · B_s) Δ_s exp(Σ_{r=s+1..t} Δ_r A), and
  D more where s = t.

- Lightning attention (MiniMax-01, arXiv:2501.08313) has S_t = λ S_{t-1} + v_t k_tᵀ with a λ for
  each head, hence c_ts = λ^{t-s} q_t · k_s.

Coefficients have signs and their rows do not add up to 1. What forgets in every channel otherwise
is in :mod:`attnviz.attention.linear`.

Notation: B batch, H heads, T tokens, d width of keys, d_v width of values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

BLOCK_NUMBERS = 1 << 21
"""Coefficients and states that a block of rows takes, at most (but always one row)."""


@dataclass(frozen=True, eq=False)
class Recurrence:
    """What a layer with a state reads, in float32 or better."""

    query: Tensor  # q or C, [B, H, T, d], as it meets keys
    key: Tensor  # k or B, [B, H, T, d]
    value: Tensor  # v or x, [B, H, T, d_v]
    decay: Tensor  # log α, [B, H, T], or [B, H, T, d] for a diagonal
    write: Tensor  # β or Δ, [B, H, T]: how much of a value is written
    erases: bool  # whether what a key held is taken out before (the delta rule)
    # D, [H], what of its own value every output has besides; None for nothing
    skip: Tensor | None = None
    called: str = "Mamba-2"  # what it is where nothing is erased

    @property
    def name(self) -> str:
        """What computes it: the rule or the model that it is known from."""
        if not self.erases:
            return self.called
        return "gated delta rule" if self.decay.ndim == 3 else "Kimi delta attention"

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """Coefficients in blocks of rows, from the first.

        Yields the first row's position, and [B, H, r, s] of the keys up to the block's last row; 0
        where a key comes later than the query.
        """
        batch, heads, length, width = self.query.shape
        if rows is None:
            rows = max(1, BLOCK_NUMBERS // max(1, batch * heads * (length + width)))
        for start in range(0, length, rows):
            stop = min(start + rows, length)
            block = self._erasing(start, stop) if self.erases else self._adding(start, stop)
            if self.skip is not None:
                diagonal = torch.arange(stop - start, device=block.device)
                block[:, :, diagonal, diagonal + start] += self.skip.to(block.dtype)[:, None]
            yield start, block

    def _erasing(self, start: int, stop: int) -> Tensor:
        """By the backward sweep, of all rows of the block at once."""
        batch, heads, _, _ = self.query.shape
        coefficients = self.query.new_zeros(batch, heads, stop - start, stop)
        w = self.query[:, :, start:stop].clone()
        decay = self.decay.exp()
        decay = decay[..., None] if decay.ndim == 3 else decay
        for s in range(stop - 1, -1, -1):
            below = slice(max(s - start, 0), None)  # rows that see this key
            key = self.key[:, :, s, :, None]  # [B, H, d, 1]
            wrote = (w[:, :, below] @ key)[..., 0] * self.write[:, :, s, None]  # [B, H, r]
            coefficients[:, :, below, s] = wrote
            w[:, :, below] -= wrote[..., None] * key.mT
            w[:, :, below] *= decay[:, :, s, None]
        return coefficients

    def _adding(self, start: int, stop: int) -> Tensor:
        """Scores times what is left of them: nothing is ever erased."""
        total = self.decay.cumsum(2)  # [B, H, T]
        decay = total[:, :, start:stop, None] - total[:, :, None, :stop]
        queries = torch.arange(start, stop, device=decay.device)
        later = torch.arange(stop, device=decay.device) > queries[:, None]
        decay = decay.masked_fill(later, -torch.inf).exp()
        scores = self.query[:, :, start:stop] @ self.key[:, :, :stop].mT
        return scores * decay * self.write[:, :, None, :stop]

    def output(self) -> Tensor:
        """Σ_s c_ts v_s, [B, H, T, d_v]."""
        outputs = [block @ self.value[:, :, : block.shape[3]] for _, block in self.blocks()]
        return torch.cat(outputs, 2)


@dataclass(frozen=True, eq=False)
class ChannelRecurrence(ABC):
    """A layer as :class:`~attnviz.attention.linear.Recurrence`, with a coefficient per channel."""

    name: ClassVar[str]  # what computes it
    value: Tensor  # x or v, [B, 1, T, D]

    @abstractmethod
    def channels(self, rows: int) -> Iterator[tuple[int, Tensor]]:
        """Coefficients of every channel, in blocks of so many rows: [B, r, s, D], as ``blocks``."""

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """Yield the map in blocks of rows, from the first.

        Yields the first row's position, and [B, 1, r, s] of the keys up to the block's last row.
        """
        for start, block in self.channels(self._rows(rows)):
            yield start, block.square().mean(3).sqrt()[:, None]

    def output(self) -> Tensor:
        """Σ_s c_ts v_s channel by channel, [B, 1, T, D]."""
        values = self.value[:, 0]
        outputs = [
            torch.einsum("brsd,bsd->brd", block, values[:, : block.shape[2]])
            for _, block in self.channels(self._rows(None))
        ]
        return torch.cat(outputs, 1)[:, None]

    def _rows(self, rows: int | None) -> int:
        batch, _, length, channels = self.value.shape
        return rows or max(1, BLOCK_NUMBERS // max(1, batch * length * channels))


@dataclass(frozen=True, eq=False)
class SelectiveScan(ChannelRecurrence):
    """Mamba's scan, in float32 or better."""

    name = "Mamba"
    query: Tensor  # C, [B, T, N]
    key: Tensor  # B, [B, T, N]
    decay: Tensor  # A, [D, N], below 0
    step: Tensor  # Δ, [B, T, D]
    skip: Tensor | None = None  # D, [D], or None
    gate: Tensor | None = None  # what the output is multiplied with, [B, 1, T, D]; None for nothing

    def channels(self, rows: int) -> Iterator[tuple[int, Tensor]]:
        """By a sweep from the last key of all rows of a block at once."""
        batch, length, channels = self.step.shape
        for start in range(0, length, rows):
            stop = min(start + rows, length)
            coefficients = self.query.new_zeros(batch, stop - start, stop, channels)
            decay = self.query.new_ones(batch, stop - start, *self.decay.shape)  # [B, r, D, N]
            for s in range(stop - 1, -1, -1):
                below = slice(max(s - start, 0), None)  # rows that see this key
                met = self.query[:, start:stop][:, below] * self.key[:, s, None]  # [B, r, N]
                products = (decay[:, below] @ met[..., None])[..., 0]  # [B, r, D]
                coefficients[:, below, s] = products * self.step[:, s, None]
                decay[:, below] *= (self.decay * self.step[:, s, :, None]).exp()[:, None]
            if self.skip is not None:
                diagonal = torch.arange(stop - start, device=coefficients.device)
                coefficients[:, diagonal, diagonal + start] += self.skip
            yield start, coefficients

    def output(self) -> Tensor:
        """As of any, times the gate."""
        output = super().output()
        return output if self.gate is None else output * self.gate


@dataclass(frozen=True, eq=False)
class WeightedKeys(ChannelRecurrence):
    """RWKV-4's weighted sum, in float32 or better."""

    name = "RWKV-4"
    key: Tensor  # k, [B, T, D]
    decay: Tensor  # w, [D], above 0
    bonus: Tensor  # u, [D]

    def channels(self, rows: int) -> Iterator[tuple[int, Tensor]]:
        """By softmax over the keys, channel by channel."""
        length = self.key.shape[1]
        for start in range(0, length, rows):
            stop = min(start + rows, length)
            past = torch.arange(start, stop, device=self.key.device)[:, None] - torch.arange(
                stop, device=self.key.device
            )  # [r, s]
            added = -(past - 1)[..., None] * self.decay
            added = torch.where(past[..., None] == 0, self.bonus, added)
            scores = self.key[:, None, :stop] + added.masked_fill(past[..., None] < 0, -torch.inf)
            yield start, scores.softmax(2)
