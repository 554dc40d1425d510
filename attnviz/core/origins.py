"""What writes to the residual stream, and so what a query or a key can be made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from attnviz.core.heads import Head, Layout, Site

OriginKind = Literal["token", "position", "segment", "embedding", "head", "mixer", "mlp", "bias"]

ORIGIN_KINDS: tuple[OriginKind, ...] = get_args(OriginKind)


@dataclass(frozen=True, slots=True)
class Origin:
    """Something that writes to the residual stream.

    Attributes:
        kind: ``token``, ``position`` and ``segment`` embeddings; ``embedding`` for what matrices
            make before the first attention layer; ``head``; ``mixer`` for what mixes tokens
            without attention (a layer with a state, a convolution); ``mlp``; ``bias`` for all
            constants together: b_O of attention, β of normalizations, and the bias of W_Q or W_K
            itself.
        head: which, for heads.
        layer: the attention layer that an MLP comes after, or that of a mixer; None elsewhere.
    """

    kind: OriginKind
    head: Head | None = None
    layer: Site | None = None

    def name(self, layout: Layout) -> str:
        """In a word or two: ``1.4``, ``MLP 1``, ``token``."""
        if self.head is not None:
            return layout.name(self.head)
        if self.layer is not None:
            single = len(layout.kinds) == 1
            stack = "encoder" if self.layer.kind == "encoder" else "decoder"
            name = f"{'mixer' if self.kind == 'mixer' else 'MLP'} {self.layer.layer}"
            return name if single else f"{stack} {name}"
        return _NAMES[self.kind]


_NAMES = {
    "token": "token",
    "position": "position",
    "segment": "segment",
    "embedding": "embedding",
    "bias": "biases",
}
