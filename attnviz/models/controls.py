"""Weights without anything learned in them: what a trained model is held against."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Scale = Literal["default", "trained"]
"""As drawn before training, or as large as the trained ones."""


@dataclass(frozen=True, slots=True)
class Control:
    """Which random weights."""

    seed: int  # of them
    # ``default`` draws them as transformers does before training; ``trained`` takes the entries of
    # every trained tensor in random order, so that each keeps its own mean and spread and nothing
    # else
    scale: Scale = "default"

    @property
    def title(self) -> str:
        """As reports call it."""
        if self.scale == "trained":
            return f"shuffled weights (seed {self.seed})"
        return f"untrained (seed {self.seed})"


def shuffled(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """The entries of a tensor, of any shape, in random order."""
    import torch

    order = torch.randperm(tensor.numel(), generator=generator)
    return tensor.flatten()[order.to(tensor.device)].reshape(tensor.shape)


def shuffle(parameters: Iterable[Tensor], seed: int) -> None:
    """Shuffle every tensor in place, one after the other."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters:
            parameter.copy_(shuffled(parameter, generator))
