"""What a fresh layer is made of; :mod:`attnviz.models.untrained` makes it, with torch."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.attention.spec import KINDS, Kind, Sizes, check_sizes
from attnviz.core.arguments import check_fields
from attnviz.errors import Setting, SizeError, UsageError
from attnviz.files import human_bytes
from attnviz.models.limits import beyond

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

    def check(self) -> Sizes:
        """The sizes of one layer; raises SizeError or UsageError on what cannot be built."""
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
