"""A hooked model whose maps are the coefficients of its layers with a state.

See :mod:`attnviz.attention.linear` for what they are, and :mod:`.recurrences` for where they come
from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.source import ForwardRequest, Observer, Output, Rows, Source
from attnviz.core.weights import OutputProjection
from attnviz.models.hooked.recurrences import Layer, States, recording
from attnviz.models.other_maps import OtherMaps
from attnviz.scoring.observe import sizes


class LinearMaps(OtherMaps):
    """The model with its layers with a state in the place of those that attend.

    Args:
        source: the model.
        body: its network without the LM head.
        kind: of its single stack.
        states: its layers with a state, of which it has some.
        shares: divide every row by the sum of its coefficients' sizes, as scores need it, which
            compare with chance; without, maps hold the coefficients, signs and all.
    """

    def __init__(
        self, source: Source, body: nn.Module, kind: SiteKind, states: States, *, shares: bool
    ) -> None:
        super().__init__(source)
        self._body, self._kind, self._shares = body, kind, shares
        layers = range(max(states.heads) + 1)
        self.layout = Layout({kind: tuple(states.heads.get(layer, 0) for layer in layers)})

    def output(self, site: Site) -> OutputProjection:
        """No W_O: what such a layer gives is normalized and gated first."""
        return OutputProjection(None, None, "what its layers with a state give is normalized first")

    def watched(
        self, batch: Sequence[Inputs], observers: Sequence[Observer], request: ForwardRequest
    ) -> Output:
        """Run the model; see :class:`~attnviz.models.other_maps.OtherMaps`."""

        def heard(layer: int, recurrence: Layer, output: Tensor) -> None:
            if layer < len(self.layout.heads[self._kind]):
                self._tell(Site(self._kind, layer), recurrence, observers)

        # the pass is to run all layers, also those behind the last one that attends
        with recording(self._body, heard):
            return self._source.forward(batch, (), replace(request, hidden=True))

    def _tell(self, site: Site, recurrence: Layer, observers: Sequence[Observer]) -> None:
        with torch.no_grad():
            for start, block in recurrence.blocks():
                shown = sizes(block) if self._shares else block
                count, keys = block.shape[2:]
                allowed = torch.ones(count, keys, dtype=torch.bool, device=block.device)
                allowed = allowed.tril(start)[None, None]
                values = recurrence.value[:, :, :keys]
                rows = Rows(site, start, 0, shown, allowed, values=values)
                for observer in observers:
                    observer.observe(rows)
