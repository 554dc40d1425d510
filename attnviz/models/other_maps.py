"""A model whose observers see other maps in the place of its weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from attnviz.core.prompt import Inputs
from attnviz.core.source import PLAIN, ForwardRequest, Observer, Output, Source


class OtherMaps(ABC):
    """A source with other maps; everything else is the model's own."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def forward(
        self,
        batch: Sequence[Inputs],
        observers: Sequence[Observer] = (),
        request: ForwardRequest = PLAIN,
    ) -> Output:
        """Run the model; see :class:`~attnviz.core.source.Source`."""
        if not observers:
            return self._source.forward(batch, (), request)
        return self.watched(batch, observers, request)

    @abstractmethod
    def watched(
        self, batch: Sequence[Inputs], observers: Sequence[Observer], request: ForwardRequest
    ) -> Output:
        """Run the model, and tell the observers of the maps that take the place of weights."""
