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
    """The model with another quantity in its maps.

    Args:
        source: the model.
        quantity: a name of :data:`attnviz.core.quantities.QUANTITIES`; for ``weights`` the model
            itself comes back.
        shares: divide every row by its sum, as scores need it, which compare with chance; without,
            maps hold the norms themselves.
        beside: who sees the model's own rows in every pass that is watched.

    Returns:
        A source that runs the same passes. Of layers it has one map each
        (:attr:`~attnviz.core.heads.Layout.whole`).

    Raises:
        UsageError: no such quantity, or one that the model's layers already have.
        ModelError: what the heads write, or what stands around them, is not known.
    """
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
