"""Heads that find antecedents: frozen values that know their own JSON.

The schema is docs/coref.schema.json. A figure that is not known is None and never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from attnviz.annotated.model import model_json
from attnviz.annotated.share import Share
from attnviz.records import Head, Layout, SourceInfo

COREF_SCHEMA = "attnviz.coref/1"

TO_NAME, FROM_NAME = "to_name", "from_name"
NAME_DIRECTIONS = (TO_NAME, FROM_NAME)
"""Which name the pronoun looks at (its row), and which name looks at the pronoun (its column)."""


@dataclass(frozen=True, slots=True)
class NameChoice:
    """How well a head chooses the antecedent of a pronoun from two names.

    Attributes:
        head: which.
        direction: one of :data:`NAME_DIRECTIONS`.
        accuracy: on the documents that it was not chosen on, unless all were asked for.
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


@dataclass(frozen=True)
class CorefReport:
    """Which heads choose the antecedents of pronouns.

    Attributes:
        source: the model.
        layout: its heads.
        examples: pronouns with two names, one of them the antecedent; ``documents`` they are from.
        documents: clusters of the intervals.
        skipped: examples that were left out, by reason.
        chosen_on: documents on which heads and the baseline were chosen, in words.
        measured_on: those that their figures are from.
        baselines: accuracy of each, on all data.
        to_name: accuracy of each head of the layout by the pronoun's row, on all data.
        from_name: by its column; None for causal models, whose names cannot see the pronoun.
        best: the chosen head; None where nothing was there to choose on.
        roles: heads that beat the best baseline by ten points, surely, on held-out documents.
        notes: full sentences that the reader must not miss.
        identity: of the model, see :func:`~attnviz.annotated.model.model_json`.
    """

    source: SourceInfo
    layout: Layout
    examples: int
    documents: int
    skipped: Mapping[str, int]
    chosen_on: str
    measured_on: str
    baselines: Mapping[str, float]
    to_name: tuple[float, ...]
    from_name: tuple[float, ...] | None
    best: NameChoice | None
    roles: tuple[NameChoice, ...] = ()
    notes: tuple[str, ...] = ()
    identity: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As docs/coref.schema.json says."""
        back = self.from_name or (None,) * len(self.to_name)
        return {
            "schema": COREF_SCHEMA,
            **model_json(self.source, self.layout, self.identity),
            "examples": self.examples,
            "documents": self.documents,
            "skipped": dict(self.skipped),
            "chosen_on": self.chosen_on,
            "measured_on": self.measured_on,
            "baselines": dict(self.baselines),
            "heads": [
                {"layer": head.layer, "head": head.index, TO_NAME: there, FROM_NAME: other}
                for head, there, other in zip(self.layout, self.to_name, back, strict=True)
            ],
            "best": None if self.best is None else self._choice(self.best),
            "roles": [{"role": "coreference", **self._choice(role)} for role in self.roles],
            "notes": list(self.notes),
        }

    def _choice(self, choice: NameChoice) -> dict[str, Any]:
        return {
            "head": self.layout.name(choice.head),
            "direction": choice.direction,
            "accuracy": choice.accuracy.value,
            "low": choice.accuracy.low,
            "high": choice.accuracy.high,
            "count": choice.count,
            "baseline": choice.baseline,
            "baseline_accuracy": choice.baseline_accuracy,
            **choice.margin.to_json("margin"),
        }
