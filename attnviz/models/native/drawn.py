"""Random weights in place of a checkpoint's: the same model with nothing learned in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from attnviz.models.controls import shuffled
from attnviz.models.native.config import Config
from attnviz.models.native.families import GPT2
from attnviz.models.native.weights import Weights

NO_WORDS = "its weights are untrained"
_RANGE = 0.02


class DrawnWeights:
    """Weights as transformers draws them before training, under the names of a checkpoint.

    Matrices and embeddings are normal with the configuration's ``initializer_range``, biases 0,
    normalizations 1. In GPT-2 what is added to the residual stream is smaller by √(2 layers)
    (Radford et al. 2019).

    Args:
        raw: the model's ``config.json``; ``config`` as it was read.
        seed: of every tensor, in the order in which they are taken.
        device: where tensors go; ``dtype``: in which precision.
    """

    def __init__(
        self,
        raw: Mapping[str, Any],
        config: Config,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._range = float(raw.get("initializer_range", _RANGE))
        self._added = (2 * config.layers) ** -0.5 if config.family is GPT2 else 1.0
        self._device, self._dtype = device, dtype

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor of this name."""
        if name.endswith(".bias"):
            drawn = torch.zeros(shape)
        elif len(shape) == 1:
            drawn = torch.ones(shape)
        else:
            scale = self._range * (self._added if name.endswith("c_proj.weight") else 1.0)
            drawn = scale * torch.randn(shape, generator=self._generator)
        return drawn.to(self._device, self._dtype)

    def check_all_taken(self) -> None:
        """Nothing is left over where nothing is stored."""


class ShuffledWeights:
    """The tensors of a checkpoint, the entries of each in random order.

    Args:
        weights: the checkpoint, open.
        seed: of the order, in the order in which tensors are taken.
    """

    def __init__(self, weights: Weights, seed: int) -> None:
        self._weights, self._generator = weights, torch.Generator().manual_seed(seed)

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor of this name."""
        return shuffled(self._weights.take(name, *shape), self._generator)

    def check_all_taken(self) -> None:
        """See :class:`~attnviz.models.native.weights.Weights`."""
        self._weights.check_all_taken()
