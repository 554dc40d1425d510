"""Weights without anything learned in them: a trained model's controls, and fresh layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attnviz.attention.spec import KINDS, AttentionSpec, Kind, check_sizes
from attnviz.core.arguments import check_fields
from attnviz.errors import Setting, SizeError, UsageError
from attnviz.files import human_bytes
from attnviz.models.limits import beyond

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
    """Return the entries of a tensor, of any shape, in random order."""
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


_LAYER_BYTES = 32 << 10  # what a layer's modules take beside its weights, as measured


@dataclass(frozen=True, slots=True)
class FreshConfig:
    """The options of a fresh model; see :func:`attnviz.attention.layers.build_layer`."""

    d_model: int = 128
    heads: int = 8
    kv_heads: int | None = None
    layers: int = 1
    kind: Kind = "mha"
    causal: bool = False
    bias: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self) -> AttentionSpec:
        """Return the sizes of one layer; raises SizeError or UsageError on what cannot be built."""
        for name in ("d_model", "heads", "kv_heads", "layers", "seed"):
            value = getattr(self, name)
            if type(value) is not int and not (value is None and name == "kv_heads"):
                raise SizeError("{} must be a whole number, not {!r}", Setting(name), value)
        if self.kind not in KINDS:
            raise UsageError(f"unknown kind {self.kind!r}; choose one of {', '.join(KINDS)}")
        if self.layers < 1:
            raise SizeError(f"layers must be at least 1, got {self.layers}")
        if not 0 <= self.seed < 1 << 63:
            raise UsageError(f"seed must be from 0 to 2^63 - 1, got {self.seed}")
        sizes = check_sizes(self.d_model, self.heads, kind=self.kind, kv_heads=self.kv_heads)
        inner = sizes.heads * sizes.head_dim
        shared = 2 * sizes.kv_heads * sizes.head_dim if sizes.kind != "mla" else 6 * inner
        needed = self.layers * (4 * self.d_model * (2 * inner + shared) + _LAYER_BYTES)
        if over := beyond(needed):
            raise SizeError(
                f"{self.layers} layer(s) of d-model {self.d_model:,} need about "
                f"{human_bytes(needed)} for weights and modules, {over}: choose a smaller d-model "
                "or fewer layers"
            )
        return sizes
