"""How heads fare against the dependencies of a treebank.

A figure that is not known is None and never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from attnviz.core.heads import Head
from attnviz.core.result import Interval, Result
from attnviz.core.scores import Estimate, Role
from attnviz.core.split import Judged
from attnviz.corpus.gold.tally import evidence
from attnviz.drawing.renderable import Figured, Renderable
from attnviz.errors import Setting, UsageError
from attnviz.models.controls import Scale


@dataclass(frozen=True, slots=True)
class TreeHead:
    """How many dependencies the trees of a head have.

    Attributes:
        head: which.
        uuas: the share of dependencies that are edges, on all data.
    """

    head: Head
    uuas: float


@dataclass(frozen=True, slots=True)
class TreeChoice:
    """The head whose trees have most dependencies.

    Attributes:
        head: which.
        uuas: on the documents that it was not chosen on, unless all were asked for.
        count: dependencies in them.
        chain: UUAS of the chain of neighbours there.
        margin: of the head's UUAS over that.
    """

    head: Head
    uuas: Interval
    count: int
    chain: float | None
    margin: Interval


@dataclass(frozen=True, slots=True)
class Trees:
    """A maximum spanning tree of every head, undirected or from the gold root.

    Attributes:
        count: dependencies, on all data.
        chain: UUAS of the chain of neighbours, on all data.
        heads: all heads.
        best: the chosen head; None where nothing was there to choose on.
    """

    count: int
    chain: float
    heads: tuple[TreeHead, ...]
    best: TreeChoice | None


@dataclass(frozen=True, slots=True)
class CombinedWeight:
    """What the classifier over all heads multiplies the weights of one head with.

    Attributes:
        head: which.
        to_head: a dependent's weight on a word with this.
        from_head: and the word's weight on the dependent with this.
    """

    head: Head
    to_head: float
    from_head: float


@dataclass(frozen=True, slots=True)
class CombinedControl:
    """The classifier, trained and measured on weights without anything learned in them.

    Attributes:
        seed: of these weights.
        scale: see :class:`~attnviz.features.syntax.result.Untrained`.
        uas: where that of the model is from.
        margin: of the model's UAS over it.
    """

    seed: int
    scale: Scale
    uas: Interval
    margin: Interval


@dataclass(frozen=True, slots=True)
class Combined:
    """The attention-only classifier over all heads (Clark et al. 2019, section 4.2).

    Attributes:
        uas: on the documents that it was not trained on.
        controls: the same classifier on the model with nothing learned in it.
        offset: the best fixed offset of the documents that it was trained on.
        offset_accuracy: of that, where the others are from.
        margin: of ``uas`` over that.
        count: dependencies there.
        trained: dependencies that it was trained on.
        sentences, left_out: that these are from; ``left_out`` as many of the same half, for want of
            memory.
        weights: of all heads.
    """

    uas: Interval
    controls: tuple[CombinedControl, ...]
    offset: int
    offset_accuracy: float | None
    margin: Interval
    count: int
    trained: int
    sentences: int
    left_out: int
    weights: tuple[CombinedWeight, ...]


@dataclass(frozen=True, slots=True)
class Arc:
    """A dependency, and where the head that was chosen for it points from its dependent.

    Attributes:
        relation: of the dependency, such as ``obj``.
        chosen_for: the relation whose best head is shown: the same, or ``all``.
        dependent, head: number of a word, from 0; ``head`` of the one that it depends on.
        predicted: the word that is pointed to.
    """

    relation: str
    chosen_for: str
    dependent: int
    head: int
    predicted: int

    @property
    def right(self) -> bool:
        """Whether that is the dependent's head."""
        return self.predicted == self.head


@dataclass(frozen=True, slots=True)
class Parse:
    """A sentence with some of its dependencies.

    Attributes:
        name: its ``sent_id``, or file and line.
        words: syntactic words.
        arcs: in the order of the dependents.
    """

    name: str
    words: tuple[str, ...]
    arcs: tuple[Arc, ...]


Direction = Literal["to_head", "from_head"]
DIRECTIONS: tuple[Direction, ...] = ("to_head", "from_head")
"""Where a dependent looks (its row), and who looks most at a dependent (its column)."""
SYNTACTIC = "syntactic"  # the role of a head that finds a relation


@dataclass(frozen=True, slots=True)
class HeadAccuracy:
    """How often a head finds a relation, on all data.

    Attributes:
        head: which.
        to_head: by the dependent's row.
        from_head: by its column.
    """

    head: Head
    to_head: float
    from_head: float


@dataclass(frozen=True, slots=True)
class RelationHead:
    """How well a head finds a relation on the documents that it was not chosen on.

    Attributes:
        head: which.
        relation: such as ``obj``.
        direction: the better of :data:`DIRECTIONS` where heads were chosen.
        accuracy: on the held-out documents, or on all where that was asked for.
        count: cases in them.
        offset: the best fixed offset, chosen on the same documents as the head.
        offset_accuracy: of that offset, on the same cases as ``accuracy``.
        margin: accuracy minus that of the offset.
    """

    head: Head
    relation: str
    direction: Direction
    accuracy: Interval
    count: int
    offset: int
    offset_accuracy: float | None
    margin: Interval

    @property
    def title(self) -> str:
        """As its role is called."""
        return f"{SYNTACTIC}: {self.relation}"


@dataclass(frozen=True, slots=True)
class Relation:
    """A dependency relation, on all data.

    Attributes:
        name: such as ``obj``; ``all`` for every relation but root.
        count: words that have it.
        offset: the best fixed distance from dependent to head, in words; +1 is the next word.
        offset_accuracy: how often that is the head.
        heads: all heads.
        best: the chosen head; None where nothing was there to choose on.
    """

    name: str
    count: int
    offset: int
    offset_accuracy: float
    heads: tuple[HeadAccuracy, ...]
    best: RelationHead | None


@dataclass(frozen=True, slots=True)
class Untrained:
    """The same figures of the same model with nothing learned in it.

    Attributes:
        seed: of its weights.
        scale: ``default`` for weights as they are drawn before training, ``trained`` for the
            trained ones in random order.
        relations, roles, trees, rooted: see :class:`Syntax`.
    """

    seed: int
    scale: Scale
    relations: tuple[Relation, ...]
    roles: tuple[RelationHead, ...]
    trees: Trees | None = None
    rooted: Trees | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Syntax(Judged, Renderable, Result):
    """Which heads follow which dependency relations of a treebank.

    ``texts`` of the header is the number of clusters that intervals take as independent.

    Attributes:
        unit: what a cluster is: ``documents``, or ``sentences`` where nothing says which document a
            sentence is from.
        sentences: how many were run.
        words: syntactic words in them, each with a head or root.
        skipped: sentences that were left out, by reason.
        untokenized: words that no token belongs to; relations from and to them do not count.
        split: ``halves`` where heads and offsets are chosen on even documents and measured on
            odd ones, ``all`` where both is done on everything.
        subtypes: whether ``nmod:poss`` is a relation of its own.
        punct: whether punctuation counts.
        relations: the most frequent first, after ``all``.
        roles: heads that find a relation better than any fixed offset, by head.
        asked: questions that were asked of heads and relations for that, which Holm's correction
            is over.
        untrained: the same without anything learned, where that was asked for.
        trees: the undirected spanning tree of every head, likewise.
        rooted: the directed one from the gold root, likewise.
        combined: all heads together, likewise.
        shown: sentences with arcs, as many as were asked for.
    """

    schema: ClassVar[str] = "attnviz.syntax/1"
    command: ClassVar[str] = "syntax"

    unit: str
    sentences: int
    words: int
    skipped: Mapping[str, int]
    untokenized: int
    split: str
    subtypes: bool
    punct: bool
    relations: tuple[Relation, ...]
    roles: tuple[RelationHead, ...] = ()
    asked: int = 0
    untrained: tuple[Untrained, ...] = ()
    trees: Trees | None = None
    rooted: Trees | None = None
    combined: Combined | None = None
    shown: tuple[Parse, ...] = ()

    def annotated_roles(self) -> dict[Head, tuple[tuple[Role, Estimate], ...]]:
        """Of each head with a role the relations that it finds."""
        roles: dict[Head, tuple[tuple[Role, Estimate], ...]] = {}
        for role in self.roles:
            estimate = evidence(
                SYNTACTIC, role.accuracy, role.offset_accuracy, role.count, of=role.relation
            )
            roles[role.head] = (*roles.get(role.head, ()), estimate)
        return roles

    def named(self, names: str | None) -> tuple[Relation, ...]:
        """Return some relations by name, in the order given; all of them for None."""
        if names is None:
            return self.relations
        by_name = {relation.name: relation for relation in self.relations}
        requested = [name.strip() for name in names.split(",")]
        for name in requested:
            if name not in by_name:
                raise no_relation(name, by_name)
        return tuple(by_name[name] for name in requested)

    def arcs(self) -> Arcs:
        """Return the sentences that were asked for, ready to be drawn."""
        if not self.shown:
            raise UsageError("no sentence was kept; ask for some with {show}", show=3)
        return Arcs(self)

    def __repr__(self) -> str:
        heads = len({role.head for role in self.roles})
        return (
            f"<Syntax {self.source.model}, {self.sentences} sentences, "
            f"{len(self.relations)} relations: {heads} of {len(self.layout)} heads syntactic>"
        )


def no_relation(name: str, names: Iterable[str]) -> UsageError:
    """Return what to raise for a relation that a treebank, which has others, does not have."""
    return UsageError(
        "{} is not a relation of this treebank; it has {}",
        Setting("relation", name),
        ", ".join(names),
    )


@dataclass(frozen=True, eq=False, repr=False)
class Arcs(Figured):
    """Sentences with the arcs of a treebank above and those of heads below, as a picture."""

    report: Syntax

    def _draw(self, format: str) -> Any:
        return self.report._needed("figure", "arcs").draw_arcs(self.report, format)

    def __repr__(self) -> str:
        names = ", ".join(parse.name for parse in self.report.shown)
        right = [arc.right for parse in self.report.shown for arc in parse.arcs]
        model = self.report.source.model
        return f"<Arcs of {names}; {model}, {sum(right)} of {len(right)} right>"
