"""Heads that find antecedents. A figure that is not known is None and never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from attnviz.core.heads import Head
from attnviz.core.result import Interval, Result
from attnviz.core.scores import Estimate, Role
from attnviz.core.split import Judged
from attnviz.corpus.gold.tally import evidence
from attnviz.drawing.renderable import Renderable

NameDirection = Literal["to_name", "from_name"]
NAME_DIRECTIONS: tuple[NameDirection, ...] = ("to_name", "from_name")
"""Where the pronoun or mention looks (its row), and who looks at it (its column)."""
COREFERENCE = "coreference"  # the role of a head that finds antecedents

Data = Literal["names", "mentions"]
"""A pronoun with two names to choose from (GAP), or the mentions of a text (CorefUD)."""
Candidates = Literal["names", "words", "mentions"]
"""What heads choose from: the two names, any other word, or the head words of earlier mentions."""


@dataclass(frozen=True, slots=True)
class NameAccuracy:
    """How often a head finds antecedents, on all data.

    Attributes:
        head: which.
        to_name: by the row of the pronoun or mention.
        from_name: by its column; None in causal models, where what comes before sees nothing.
    """

    head: Head
    to_name: float
    from_name: float | None


@dataclass(frozen=True, slots=True)
class AntecedentHead:
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
    direction: NameDirection
    accuracy: Interval
    count: int
    baseline: str
    baseline_accuracy: float | None
    margin: Interval


@dataclass(frozen=True, slots=True)
class Baseline:
    """How often a rule without attention finds antecedents.

    Attributes:
        name: ``nearest``, ``first`` or ``same_word``.
        accuracy: on all data.
        held_out: where heads are measured.
    """

    name: str
    accuracy: float
    held_out: Interval


@dataclass(frozen=True, slots=True)
class MentionKind:
    """The examples of one kind, such as pronouns.

    Attributes:
        name: of the kind; ``all`` for every example.
        count: examples.
        baselines: see :class:`Baseline`.
        heads: all heads.
        ranked: all heads, those that are right most often where heads are chosen first; empty
            where there is nothing to choose on.
    """

    name: str
    count: int
    baselines: tuple[Baseline, ...]
    heads: tuple[NameAccuracy, ...]
    ranked: tuple[AntecedentHead, ...]

    @property
    def best(self) -> AntecedentHead | None:
        """The chosen head."""
        return self.ranked[0] if self.ranked else None


@dataclass(frozen=True, kw_only=True, repr=False)
class Coref(Judged, Renderable, Result):
    """Which heads find the antecedents of pronouns and other mentions.

    ``texts`` of the header is the number of clusters that intervals take as independent.

    Attributes:
        unit: what a cluster is: ``documents``, or ``windows`` where all are from a single document.
        data: what the examples are.
        examples: how many.
        skipped: examples that were left out, by reason.
        split: ``halves`` where heads and the baseline are chosen on even documents and measured
            on odd ones, ``all`` where both is done on everything.
        candidates: what heads choose from.
        window: tokens that are read at a time, of longer documents; None where texts are whole.
        kinds: ``all`` first.
        roles: heads that beat the best baseline by ten points, surely, on held-out documents.
    """

    schema: ClassVar[str] = "attnviz.coref/1"
    command: ClassVar[str] = "coref"

    unit: str
    data: Data
    examples: int
    skipped: Mapping[str, int]
    split: str
    candidates: Candidates
    window: int | None
    kinds: tuple[MentionKind, ...]
    roles: tuple[AntecedentHead, ...] = ()

    @property
    def everything(self) -> MentionKind:
        """The examples of all kinds together."""
        return self.kinds[0]

    @property
    def best(self) -> AntecedentHead | None:
        """The chosen head."""
        return self.everything.best

    def annotated_roles(self) -> dict[Head, tuple[tuple[Role, Estimate], ...]]:
        """Return the heads that find antecedents."""
        return {
            head.head: (evidence(COREFERENCE, head.accuracy, head.baseline_accuracy, head.count),)
            for head in self.roles
        }

    def __repr__(self) -> str:
        return (
            f"<Coref {self.source.model}, {self.examples} examples: {len(self.roles)} of "
            f"{len(self.layout)} heads find the antecedent>"
        )
