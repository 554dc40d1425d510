"""Heads that find antecedents: frozen values that know their own JSON.

The schema is docs/coref.schema.json. A figure that is not known is None and never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from attnviz.annotated.model import model_json
from attnviz.annotated.share import Share
from attnviz.records import Head, Layout, SourceInfo

COREF_SCHEMA = "attnviz.coref/1"

TO_NAME, FROM_NAME = "to_name", "from_name"
NAME_DIRECTIONS = (TO_NAME, FROM_NAME)
"""Where the pronoun or mention looks (its row), and who looks at it (its column)."""

Data = Literal["names", "mentions"]
"""A pronoun with two names to choose from (GAP), or the mentions of a text (CorefUD)."""


@dataclass(frozen=True, slots=True)
class Finder:
    """How well a head finds antecedents on the documents that it was not chosen on.

    Attributes:
        head: which.
        direction: the better of :data:`NAME_DIRECTIONS` where heads were chosen.
        accuracy: on the held-out documents, or on all where that was asked for.
        count: examples in them.
        baseline: the best baseline, chosen on the same documents as the head.
        baseline_accuracy: of that baseline, on the same examples as ``accuracy``.
        margin: accuracy minus that of the baseline.
    """

    head: Head
    direction: str
    accuracy: Share
    count: int
    baseline: str
    baseline_accuracy: float | None
    margin: Share

    def to_json(self, layout: Layout) -> dict[str, Any]:
        """As docs/coref.schema.json says."""
        return {
            "head": layout.name(self.head),
            "direction": self.direction,
            "accuracy": self.accuracy.value,
            "low": self.accuracy.low,
            "high": self.accuracy.high,
            "count": self.count,
            "baseline": self.baseline,
            "baseline_accuracy": self.baseline_accuracy,
            **self.margin.to_json("margin"),
        }


@dataclass(frozen=True, slots=True)
class Kind:
    """The examples of one kind, such as pronouns.

    Attributes:
        name: of the kind; ``all`` for every example.
        count: examples.
        baselines: accuracy of each, on all data; ``held_out`` where heads are measured.
        held_out: the same with intervals.
        to_name: accuracy of each head of the layout by the row of the pronoun or mention, on all
            data.
        from_name: by its column; None for causal models, where what comes before sees nothing.
        ranked: every head, those that are right most often where heads are chosen first; empty
            where there is nothing to choose on.
    """

    name: str
    count: int
    baselines: Mapping[str, float]
    held_out: Mapping[str, Share]
    to_name: tuple[float, ...]
    from_name: tuple[float, ...] | None
    ranked: tuple[Finder, ...]

    @property
    def best(self) -> Finder | None:
        """The chosen head."""
        return self.ranked[0] if self.ranked else None

    def to_json(self, layout: Layout) -> dict[str, Any]:
        """As docs/coref.schema.json says."""
        back = self.from_name or (None,) * len(self.to_name)
        return {
            "count": self.count,
            "baselines": dict(self.baselines),
            "held_out_baselines": {
                name: {"accuracy": share.value, "low": share.low, "high": share.high}
                for name, share in self.held_out.items()
            },
            "heads": [
                {"layer": head.layer, "head": head.index, TO_NAME: there, FROM_NAME: other}
                for head, there, other in zip(layout, self.to_name, back, strict=True)
            ],
            "best": None if self.best is None else self.best.to_json(layout),
        }


@dataclass(frozen=True)
class CorefReport:
    """Which heads find the antecedents of pronouns and other mentions.

    Attributes:
        source: the model.
        layout: its heads.
        data: what the examples are.
        examples: how many; ``documents`` they are from.
        documents: clusters of the intervals; ``unit`` is ``documents``, or ``windows`` where all
            are from a single document.
        unit: what a cluster is.
        skipped: examples that were left out, by reason.
        chosen_on: documents on which heads and the baseline were chosen, in words.
        measured_on: those that their figures are from.
        candidates: what heads choose from, in words.
        window: tokens that are read at a time, of longer documents; None where texts are whole.
        kinds: ``all`` first.
        roles: heads that beat the best baseline by ten points, surely, on held-out documents.
        notes: full sentences that the reader must not miss.
        identity: of the model, see :func:`~attnviz.annotated.model.model_json`.
    """

    source: SourceInfo
    layout: Layout
    data: Data
    examples: int
    documents: int
    unit: str
    skipped: Mapping[str, int]
    chosen_on: str
    measured_on: str
    candidates: str
    window: int | None
    kinds: tuple[Kind, ...]
    roles: tuple[Finder, ...] = ()
    notes: tuple[str, ...] = ()
    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def baselines(self) -> Mapping[str, float]:
        """Accuracy of each on every example."""
        return self.kinds[0].baselines

    @property
    def to_name(self) -> tuple[float, ...]:
        """Accuracy of each head on every example, by the row of the pronoun or mention."""
        return self.kinds[0].to_name

    @property
    def from_name(self) -> tuple[float, ...] | None:
        """By its column; None for causal models."""
        return self.kinds[0].from_name

    @property
    def best(self) -> Finder | None:
        """The chosen head."""
        return self.kinds[0].best

    def to_json(self) -> dict[str, Any]:
        """As docs/coref.schema.json says."""
        everything, *kinds = (kind.to_json(self.layout) for kind in self.kinds)
        del everything["count"]
        return {
            "schema": COREF_SCHEMA,
            **model_json(self.source, self.layout, self.identity),
            "data": self.data,
            "examples": self.examples,
            "clusters": {"unit": self.unit, "count": self.documents},
            "skipped": dict(self.skipped),
            "chosen_on": self.chosen_on,
            "measured_on": self.measured_on,
            "candidates": self.candidates,
            "window": self.window,
            **everything,
            "ranked": [found.to_json(self.layout) for found in self.kinds[0].ranked],
            "kinds": {k.name: found for k, found in zip(self.kinds[1:], kinds, strict=True)},
            "roles": [{"role": "coreference", **r.to_json(self.layout)} for r in self.roles],
            "notes": list(self.notes),
        }
