"""What later layers make of a part of the residual stream: factors, and normalizations held.

Post-norm layers normalize the whole stream, x → γ ⊙ (x - mean x) / σ(x) + β. With σ held at its
value on a row, that is linear beside β, so what was added before is carried on as
γ ⊙ (p - mean p) / σ, and a direction d behind it is (γ ⊙ d - mean(γ ⊙ d)) / σ before it; RMS
normalization leaves the means in. Shapes: D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from attnviz.core.arrays import Array, exact
from attnviz.core.weights import Normalization, Readout


@dataclass(frozen=True)
class Carrying:
    """The way of the stream through a model's layers, at one row or several.

    Attributes:
        readout: of the model, its arrays of the kind of what is carried.
        deviations: σ of the normalizations that each layer puts over the stream at these rows,
            [..., n] by layer (:attr:`attnviz.core.source.Output.deviations`).
    """

    readout: Readout
    deviations: Mapping[int, Array] = field(default_factory=dict)

    def factor(self, layer: int) -> Any:
        """What alone is left to multiply with behind a layer, a number or [D]; 1 with norms."""
        return 1.0 if self.readout.over else self.readout.onward(layer)

    def back(self, toward: Array, layer: int, passed: int | None = None) -> Array:
        """The direction in which what a layer adds moves what ``toward`` measures at the end.

        ``toward`` [..., D] in float64.
        """
        readout = self.readout
        if not readout.over:
            scaled: Array = toward * readout.onward(layer)
            return scaled
        for later in reversed(range(layer + 1, self._layers)):
            toward = self.inside(toward, later)
            if readout.residual_scales:
                toward = toward * readout.residual_scales[later]
        return toward if passed is None else self.inside(toward, layer, passed)

    def inside(self, toward: Array, layer: int, passed: int = 0) -> Array:
        """The same through the normalizations of one layer, of a direction behind it."""
        norms = self._norms(layer)
        for number in reversed(range(passed, len(norms))):
            norm = norms[number]
            toward = exact(norm.scale) * toward
            toward = toward - toward.mean(-1)[..., None] if norm.centred else toward
            toward = toward / self.deviations[layer][..., number, None]
        return toward

    def onward(self, part: Array, layer: int, passed: int = 0) -> Array:
        """What is left at the end of what a layer adds, [..., D] in float64."""
        readout = self.readout
        if not readout.over:
            scaled: Array = part * readout.onward(layer)
            return scaled
        for later in range(max(layer, 0), self._layers):
            if later > layer and readout.residual_scales:
                part = part * readout.residual_scales[later]
            norms = self._norms(later)
            for number in range(passed if later == layer else 0, len(norms)):
                norm = norms[number]
                part = part - part.mean(-1)[..., None] if norm.centred else part
                part = exact(norm.scale) * part / self.deviations[later][..., number, None]
        return part

    def shifts(self, toward: Array, layer: int) -> Array | None:
        """What the β of a layer's normalizations add along a direction behind it, [...].

        Returns None where there is no β.
        """
        total = None
        for number, norm in enumerate(self._norms(layer)):
            if norm.shift is not None:
                adds = self.inside(toward, layer, number + 1) @ exact(norm.shift)
                total = adds if total is None else total + adds
        return total

    def passed(self, layer: int) -> tuple[int, int]:
        """How many of a layer's normalizations stand before its heads, and before its MLP."""
        over = self.readout.over.get(layer)
        return (0, 0) if over is None else (over.heads, over.mlp)

    @property
    def _layers(self) -> int:
        """The layers that change what enters them."""
        return max(len(self.readout.residual_scales), 1 + max(self.readout.over))

    def _norms(self, layer: int) -> tuple[Normalization, ...]:
        over = self.readout.over.get(layer)
        return () if over is None else over.norms
