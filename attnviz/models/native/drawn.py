"""Random weights in place of a checkpoint's: the same model with nothing learned in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.models.controls import shuffled
from attnviz.models.native.config import GPT2, Config
from attnviz.models.native.weights import Weights

if TYPE_CHECKING:
    import torch

Numbers = NDArray[np.float32]

NO_WORDS = "its weights are untrained"
_RANGE = 0.02
_GROUP, _BITS = 16, 24


class NormalDraws:
    """What ``torch.randn`` draws of a seed, in float32, without torch: equal to 1e-6.

    Mersenne Twister (Matsumoto & Nishimura 1998), of each output the low 24 bits, and the two
    numbers that Box & Muller (1958) make of each two, in groups of 16.
    """

    def __init__(self, seed: int) -> None:
        self._twister = np.random.RandomState(seed & 0xFFFFFFFF)

    def take(self, *shape: int) -> Numbers:
        """The next numbers."""
        count = math.prod(shape)
        uniform = self._uniform(max(count, _GROUP))
        whole = len(uniform) - len(uniform) % _GROUP
        drawn = _normal(uniform[:whole])
        if len(uniform) > whole:  # the last sixteen are drawn anew
            kept = drawn[: len(uniform) - _GROUP]
            drawn = np.concatenate([kept, _normal(self._uniform(_GROUP))])
        return drawn[:count].reshape(shape)

    def _uniform(self, count: int) -> Numbers:
        """From 0 to before 1."""
        bits = self._twister.randint(0, 1 << 32, count, np.uint32)
        bits &= (1 << _BITS) - 1
        return bits.astype(np.float32) * np.float32(2.0**-_BITS)


def _normal(uniform: Numbers) -> Numbers:
    """Normal numbers of as many uniform ones, [16 n]: 8 radii and 8 angles make 16."""
    radius, angle = uniform.reshape(-1, 2, _GROUP // 2).swapaxes(0, 1)
    radius = np.sqrt(np.float32(-2) * np.log(1 - radius))
    angle = np.float32(2 * math.pi) * angle
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)


class DrawnWeights:
    """Weights as transformers draws them before training, under the names of a checkpoint.

    Matrices and embeddings are normal with the configuration's ``initializer_range``, biases 0,
    normalizations 1. In GPT-2 what is added to the residual stream is smaller by √(2 layers)
    (Radford et al. 2019).

    ``target``: where tensors go, and in which precision; None for NumPy arrays in float32.
    """

    def __init__(
        self,
        raw: Mapping[str, Any],
        config: Config,
        seed: int,
        target: tuple[torch.device, torch.dtype] | None,
    ) -> None:
        self._draws, self._target = NormalDraws(seed), target
        self._range = float(raw.get("initializer_range", _RANGE))
        self._added = (2 * config.layers) ** -0.5 if config.family is GPT2 else 1.0

    def take(self, name: str, *shape: int) -> Array:
        """The tensor of this name."""
        if name.endswith(".bias"):
            drawn = np.zeros(shape, np.float32)
        elif len(shape) == 1:
            drawn = np.ones(shape, np.float32)
        else:
            scale = self._range * (self._added if name.endswith("c_proj.weight") else 1.0)
            drawn = self._draws.take(*shape)
            drawn *= np.float32(scale)
        made = arrays.array(drawn)
        return made if self._target is None else arrays.to_torch(made).to(*self._target)

    def check_all_taken(self) -> None:
        """Nothing is left over where nothing is stored."""


class ShuffledWeights:
    """The tensors of a checkpoint, the entries of each in random order, which torch draws."""

    def __init__(self, weights: Weights, seed: int) -> None:
        import torch

        self._weights, self._generator = weights, torch.Generator().manual_seed(seed)

    def take(self, name: str, *shape: int) -> Array:
        """The tensor of this name."""
        return shuffled(self._weights.take(name, *shape), self._generator)

    def check_all_taken(self) -> None:
        """See :class:`~attnviz.models.native.weights.Weights`."""
        self._weights.check_all_taken()
