"""A model with the quantity in its maps that was asked for: its weights, or another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from attnviz.core.quantities import check_attends, check_scored, quantity_named
from attnviz.core.source import Observer, Source
from attnviz.errors import ModelError


def with_quantity(
    source: Source, quantity: str, *, shares: bool, beside: Sequence[Observer] = ()
) -> Source:
    """The model with another quantity in its maps."""
    what = quantity_named(quantity)
    if quantity == "weights":
        check_attends(source.info.model, source.layout)
        return source
    if what.states:
        states = getattr(source, "states", None)
        if states is None:
            raise ModelError(
                "{quantity} is of linear attention and state-space layers, and {} has none",
                source.info.model,
                quantity=quantity,
            )
        return cast("Source", states(shares=shares))
    if what.ranks:
        if shares:
            check_scored(quantity)
        return _indexed(source, quantity)
    check_attends(source.info.model, source.layout)
    from attnviz.models.norm_based import norm_based

    return norm_based(source, quantity, beside, shares=shares)


def _indexed(source: Source, quantity: str) -> Source:
    """The model with the scores of its indexers for maps; ModelError for a model without one."""
    indexed = getattr(source, "indexed", None)
    if indexed is None:
        raise ModelError(
            "{quantity} is of sparse attention, whose indexers choose keys, and {} has none",
            source.info.model,
            quantity=quantity,
        )
    return cast("Source", indexed())
