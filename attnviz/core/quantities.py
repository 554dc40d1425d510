"""What a map shows: where a head looks, or what it writes. Plain Python, for everybody to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attnviz.core.heads import Layout
from attnviz.errors import ModelError, UsageError


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity from every key to every query."""

    formula: str  # as colour bars have it
    meaning: str  # in words
    layers: bool = False  # whether it is one map for each layer, of all its heads together
    # whether what the residual path carries belongs to it; ``norm`` whether the layer normalization
    # after it does
    residual: bool = False
    norm: bool = False
    # whether it is of layers with a state (linear attention), which have no weights; such values
    # have signs
    states: bool = False
    # whether it only ranks keys for attention: values have signs, and rows no sum
    ranks: bool = False

    @property
    def signed(self) -> bool:
        """Whether values have signs."""
        return self.states or self.ranks


QUANTITIES: Mapping[str, Quantity] = {
    "weights": Quantity("attention weight", "where each head looks"),
    "norm": Quantity("‖αf(x)‖", "what each head writes"),
    "norm-residual": Quantity(
        "‖Σαf(x) + x‖", "what each layer and its residual connection write", True, True
    ),
    "norm-residual-ln": Quantity(
        "‖LN(Σαf(x) + x)‖",
        "what each layer and its residual connection write, normalized",
        True,
        True,
        True,
    ),
    "linear": Quantity("coefficient of v", "what linear layers pass on of each value", states=True),
    "indexer": Quantity("index score", "how an indexer ranks keys", layers=True, ranks=True),
}
"""Weights; norms of weighted values (Kobayashi et al. 2020, arXiv:2004.10102); the same of whole
layers with the residual connection and layer normalization (2021, arXiv:2109.07152); coefficients
of values in linear attention and state-space layers (:mod:`attnviz.attention.linear`); what sparse
attention chooses its keys by (arXiv:2512.02556)."""


def check_unsigned(name: str, command: str) -> None:
    """UsageError for a quantity with signs, where maps are shown from 0 on."""
    if quantity_named(name).signed:
        raise UsageError(
            "{quantity} has signs, which {} does not show; draw it with attnviz heatmap",
            command,
            quantity=name,
        )


def check_attends(name: str, layout: Layout) -> None:
    """ModelError for a model none of whose layers attends."""
    if not len(layout):
        raise ModelError(
            "{} has no layer that attends, only layers with a state ({})",
            name,
            ", ".join(dict.fromkeys(layout.mixers)),
            remedy="see their coefficients with {quantity}",
            quantity="linear",
        )


def check_scored(name: str, layout: Layout | None = None) -> None:
    """UsageError for a quantity that is no share of a row, or a mean: neither can be scored."""
    if layout is not None and layout.mean:
        raise UsageError(
            "these maps are means over {}, which hide what single heads do and have no scores; "
            "draw them with attnviz heatmap",
            "the heads of each layer" if layout.mean == "heads" else layout.mean,
        )
    if quantity_named(name).ranks:
        raise UsageError(
            "{quantity} ranks keys and is no share of a row, so that it has no scores; draw it "
            "with attnviz heatmap, or capture it",
            quantity=name,
        )


def quantity_named(name: str) -> Quantity:
    """Return the quantity of that name; UsageError where there is none."""
    if name not in QUANTITIES:
        raise UsageError("unknown {quantity}; choose {}", ", ".join(QUANTITIES), quantity=name)
    return QUANTITIES[name]
