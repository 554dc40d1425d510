"""How heads fare against gold annotation: frozen values that know their own JSON.

The schema is docs/syntax.schema.json. A figure that is not known is None and never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from attnviz.annotated.model import model_json
from attnviz.annotated.parses import Combined, Parse, Trees
from attnviz.annotated.share import Share
from attnviz.errors import Setting, UsageError
from attnviz.records import Head, Layout, SourceInfo

SYNTAX_SCHEMA = "attnviz.syntax/1"

TO_HEAD, FROM_HEAD = "to_head", "from_head"
DIRECTIONS = (TO_HEAD, FROM_HEAD)
"""Where a dependent looks (its row), and who looks most at a dependent (its column)."""


@dataclass(frozen=True, slots=True)
class Best:
    """The head that finds a relation best, and how well it does.

    Attributes:
        head: which; ``direction`` is one of :data:`DIRECTIONS`.
        direction: of the two.
        accuracy: on the documents that it was not chosen on, unless all were asked for.
        count: cases in them.
        offset: the best fixed offset, chosen on the same documents as the head.
        offset_accuracy: of that offset, on the same cases as ``accuracy``.
        margin: accuracy minus that of the offset.
    """

    head: Head
    direction: str
    accuracy: Share
    count: int
    offset: int
    offset_accuracy: float | None
    margin: Share


@dataclass(frozen=True, slots=True)
class Relation:
    """A dependency relation, on all data.

    Attributes:
        name: such as ``obj``; ``all`` for every relation but root.
        count: words that have it.
        offset: the best fixed distance from dependent to head, in words; +1 is the next word.
        offset_accuracy: how often that is the head.
        to_head: accuracy of each head of the layout, by the dependent's row.
        from_head: by its column.
        best: the chosen head; None where nothing was there to choose on.
    """

    name: str
    count: int
    offset: int
    offset_accuracy: float
    to_head: tuple[float, ...]
    from_head: tuple[float, ...]
    best: Best | None


@dataclass(frozen=True, slots=True)
class SyntacticRole:
    """A head that finds a relation better than any fixed offset: ``syntactic: obj``.

    Attributes:
        head: which.
        relation: its name.
        direction: the better of :data:`DIRECTIONS` where it was chosen.
        accuracy: on the held-out documents.
        margin: over the best offset, there.
        count: cases there.
    """

    head: Head
    relation: str
    direction: str
    accuracy: Share
    margin: Share
    count: int

    @property
    def name(self) -> str:
        """As roles are called."""
        return f"syntactic: {self.relation}"


@dataclass(frozen=True)
class SyntaxReport:
    """Which heads follow which dependency relations of a treebank.

    Attributes:
        source: the model.
        layout: its heads.
        sentences: how many were run; ``words`` and ``documents`` in them.
        words: syntactic words, each with a head or root.
        documents: clusters of the intervals; ``unit`` is ``documents``, or ``sentences`` where
            nothing says which document a sentence is from.
        unit: what a cluster is.
        skipped: sentences that were left out, by reason.
        untokenized: words that no token belongs to; relations from and to them do not count.
        chosen_on: documents on which heads and offsets were chosen, in words.
        measured_on: those that their figures are from.
        subtypes: whether ``nmod:poss`` is a relation of its own.
        punct: whether punctuation counts.
        relations: the most frequent first, after ``all``.
        roles: by head.
        notes: full sentences that the reader must not miss.
        identity: of the model, see :func:`~attnviz.annotated.model.model_json`.
        untrained: the same of the same model with random weights, where that was asked for.
        trees: the spanning tree of every head, likewise.
        combined: all heads together, likewise.
        shown: sentences with arcs, as many as were asked for.
    """

    source: SourceInfo
    layout: Layout
    sentences: int
    words: int
    documents: int
    unit: str
    skipped: Mapping[str, int]
    untokenized: int
    chosen_on: str
    measured_on: str
    subtypes: bool
    punct: bool
    relations: tuple[Relation, ...]
    roles: tuple[SyntacticRole, ...] = ()
    notes: tuple[str, ...] = ()
    identity: Mapping[str, Any] = field(default_factory=dict)
    untrained: SyntaxReport | None = None
    trees: Trees | None = None
    combined: Combined | None = None
    shown: tuple[Parse, ...] = ()

    def named(self, names: str | None) -> tuple[Relation, ...]:
        """Some relations by name, in the order given; all of them for None.

        Args:
            names: with commas between them.

        Raises:
            UsageError: a relation that is not in the treebank.
        """
        if names is None:
            return self.relations
        known = {relation.name: relation for relation in self.relations}
        wanted = [name.strip() for name in names.split(",")]
        for name in wanted:
            if name not in known:
                raise UsageError(
                    "{} is no relation of this treebank; there are {}",
                    Setting("relation", name),
                    ", ".join(known),
                )
        return tuple(known[name] for name in wanted)

    def to_json(self) -> dict[str, Any]:
        """As docs/syntax.schema.json says."""
        return {
            "schema": SYNTAX_SCHEMA,
            **model_json(self.source, self.layout, self.identity),
            "sentences": self.sentences,
            "words": self.words,
            "clusters": {"unit": self.unit, "count": self.documents},
            "skipped": dict(self.skipped),
            "untokenized_words": self.untokenized,
            "chosen_on": self.chosen_on,
            "measured_on": self.measured_on,
            "subtypes": self.subtypes,
            "punct": self.punct,
            "relations": {relation.name: self._relation(relation) for relation in self.relations},
            "roles": [
                {
                    "head": self.layout.name(role.head),
                    "role": role.name,
                    "direction": role.direction,
                    **role.accuracy.to_json("accuracy"),
                    **role.margin.to_json("margin"),
                    "count": role.count,
                }
                for role in self.roles
            ],
            "notes": list(self.notes),
            "untrained": None if self.untrained is None else self.untrained.to_json(),
            "trees": None if self.trees is None else self.trees.to_json(self.layout),
            "combined": None if self.combined is None else self.combined.to_json(self.layout),
            "shown": [parse.to_json() for parse in self.shown],
        }

    def _relation(self, relation: Relation) -> dict[str, Any]:
        return {
            "count": relation.count,
            "offset": {"offset": relation.offset, "accuracy": relation.offset_accuracy},
            "heads": [
                {"layer": head.layer, "head": head.index, TO_HEAD: there, FROM_HEAD: back}
                for head, there, back in zip(
                    self.layout, relation.to_head, relation.from_head, strict=True
                )
            ],
            "best": None if relation.best is None else self._best(relation.best),
        }

    def _best(self, best: Best) -> dict[str, Any]:
        return {
            "head": self.layout.name(best.head),
            "direction": best.direction,
            "accuracy": best.accuracy.value,
            "low": best.accuracy.low,
            "high": best.accuracy.high,
            "count": best.count,
            "offset": best.offset,
            "offset_accuracy": best.offset_accuracy,
            **best.margin.to_json("margin"),
        }
