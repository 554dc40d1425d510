"""Attention written by hand: one module that is right, and five with a bug each.

attnviz check sample_inputs/attention.py:Attention --d-model 32 --heads 4
attnviz check sample_inputs/attention.py:Viewed --d-model 32 --heads 4
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Causal multi-head self-attention, step by step."""

    causal = True

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.heads, self.width = num_heads, d_model // num_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)

    def split(self, x: Tensor) -> Tensor:
        """[B, T, D] to [B, H, T, d]."""
        return x.view(*x.shape[:2], self.heads, self.width).transpose(1, 2)

    def scale(self, scores: Tensor) -> Tensor:
        """Scores divided by √d."""
        return scores / math.sqrt(self.width)

    def mask(self, scores: Tensor) -> Tensor:
        """Scores without those of later keys."""
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(later, -math.inf)

    def weights(self, scores: Tensor) -> Tensor:
        """Softmax over the keys."""
        return scores.softmax(-1)

    def join(self, z: Tensor) -> Tensor:
        """[B, H, T, d] to [B, T, D]."""
        return z.transpose(1, 2).reshape(z.shape[0], z.shape[2], -1)

    def forward(self, x: Tensor) -> Tensor:
        """Attend: [B, T, D] to [B, T, D]."""
        query, key, value = map(self.split, (self.query(x), self.key(x), self.value(x)))
        scores = self.mask(self.scale(query @ key.transpose(-1, -2)))
        return self.out(self.join(self.weights(scores) @ value))


class Viewed(Attention):
    """Straight to [B, H, T, d]: the right shape, and every head cuts across tokens."""

    def split(self, x: Tensor) -> Tensor:
        """[B, T, D] to [B, H, T, d], by a view alone."""
        return x.view(x.shape[0], self.heads, x.shape[1], self.width)


class Unscaled(Attention):
    """Scores as they are."""

    def scale(self, scores: Tensor) -> Tensor:
        """Scores."""
        return scores


class LateMask(Attention):
    """Weights set to 0 after softmax, so that rows no longer sum to 1."""

    def mask(self, scores: Tensor) -> Tensor:
        """Scores."""
        return scores

    def weights(self, scores: Tensor) -> Tensor:
        """Softmax, then the mask."""
        return scores.softmax(-1).tril()


class WrongAxis(Attention):
    """Softmax over the queries."""

    causal = False

    def mask(self, scores: Tensor) -> Tensor:
        """Scores."""
        return scores

    def weights(self, scores: Tensor) -> Tensor:
        """Softmax over the wrong axis, at the same shape."""
        return scores.softmax(-2)


class Glued(Attention):
    """Without the transpose back, other tokens' parts stand side by side."""

    def join(self, z: Tensor) -> Tensor:
        """[B, H, T, d] to [B, T, D], by a reshape alone."""
        return z.reshape(z.shape[0], z.shape[2], -1)
