"""Layers with a state that forgets in every channel otherwise: one map of all their channels.

Where a state decays by another number in every channel of the values, an output is still a sum over
the values so far, channel by channel: o_t[d] = Σ_s c_ts[d] v_s[d].

- Mamba's selective state space (Gu & Dao 2023, arXiv:2312.00752; its coefficients Ali et al. 2024,
  arXiv:2403.01590) has h_t[d] = e^{Δ_t[d] A[d]} h_{t-1}[d] + Δ_t[d] x_t[d] B_t and o_t[d] =
  C_t · h_t[d] + D[d] x_t[d], hence c_ts[d] = Δ_s[d] Σ_n C_t[n] B_s[n] exp(A[d, n] Σ_{r=s+1..t}
  Δ_r[d]), and D[d] more where s = t.
- RWKV-4 (Peng et al. 2023, arXiv:2305.13048) divides: c_ts[d] is e^{k_s[d] - (t-1-s) w[d]}, and
  e^{k_t[d] + u[d]} where s = t, over their sum, so that a channel's row adds up to 1.

A map has the root of the mean square of c_ts over the channels: 0 or more, and the number itself
where all channels have the same.

Notation: B batch, T tokens, D channels, N width of the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnviz.attention.linear import BLOCK_NUMBERS


@dataclass(frozen=True, eq=False)
class ChannelRecurrence(ABC):
    """A layer as :class:`~attnviz.attention.linear.Recurrence`, with a coefficient per channel.

    Attributes:
        value: x or v, [B, 1, T, D].
    """

    value: Tensor

    @property
    @abstractmethod
    def name(self) -> str:
        """What computes it."""

    @abstractmethod
    def channels(self, rows: int) -> Iterator[tuple[int, Tensor]]:
        """Coefficients of every channel, in blocks of so many rows: [B, r, s, D], as ``blocks``."""

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """The map in blocks of rows, from the first.

        Yields the first row's position, and [B, 1, r, s] of the keys up to the block's last row.
        """
        for start, block in self.channels(self._rows(rows)):
            yield start, block.square().mean(3).sqrt()[:, None]

    def output(self) -> Tensor:
        """Σ_s c_ts v_s channel by channel, [B, 1, T, D]."""
        values = self.value[:, 0]
        made = [
            torch.einsum("brsd,bsd->brd", block, values[:, : block.shape[2]])
            for _, block in self.channels(self._rows(None))
        ]
        return torch.cat(made, 1)[:, None]

    def _rows(self, rows: int | None) -> int:
        batch, _, length, channels = self.value.shape
        return rows or max(1, BLOCK_NUMBERS // max(1, batch * length * channels))


@dataclass(frozen=True, eq=False)
class SelectiveScan(ChannelRecurrence):
    """Mamba's scan, in float32 or better.

    Attributes:
        query: C, [B, T, N].
        key: B, [B, T, N].
        decay: A, [D, N], below 0.
        step: Δ, [B, T, D].
        skip: D, [D], or None.
        gate: what the output is multiplied with, [B, 1, T, D]; None for nothing.
    """

    query: Tensor
    key: Tensor
    decay: Tensor
    step: Tensor
    skip: Tensor | None = None
    gate: Tensor | None = None

    @property
    def name(self) -> str:
        """Mamba."""
        return "Mamba"

    def channels(self, rows: int) -> Iterator[tuple[int, Tensor]]:
        """By a sweep from the last key of all rows of a block at once."""
        batch, length, channels = self.step.shape
        for start in range(0, length, rows):
            stop = min(start + rows, length)
            made = self.query.new_zeros(batch, stop - start, stop, channels)
            left = self.query.new_ones(batch, stop - start, *self.decay.shape)  # [B, r, D, N]
            for s in range(stop - 1, -1, -1):
                some = slice(max(s - start, 0), None)  # rows that see this key
                met = self.query[:, start:stop][:, some] * self.key[:, s, None]  # [B, r, N]
                kept = (left[:, some] @ met[..., None])[..., 0]  # [B, r, D]
                made[:, some, s] = kept * self.step[:, s, None]
                left[:, some] *= (self.decay * self.step[:, s, :, None]).exp()[:, None]
            if self.skip is not None:
                own = torch.arange(stop - start, device=made.device)
                made[:, own, own + start] += self.skip
            yield start, made

    def output(self) -> Tensor:
        """As of any, times the gate."""
        made = super().output()
        return made if self.gate is None else made * self.gate


@dataclass(frozen=True, eq=False)
class WeightedKeys(ChannelRecurrence):
    """RWKV-4's weighted sum, in float32 or better.

    Attributes:
        key: k, [B, T, D].
        decay: w, [D], above 0.
        bonus: u, [D].
    """

    key: Tensor
    decay: Tensor
    bonus: Tensor

    @property
    def name(self) -> str:
        """RWKV-4."""
        return "RWKV-4"

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
