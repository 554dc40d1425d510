"""Whole sentences: the trees of heads, all heads together, and sentences with arcs."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.core.findings import Interval
from attnviz.core.heads import Head
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
        sentences: that these are from; ``left_out`` as many of the same half, for want of memory.
        left_out: see ``sentences``.
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
        dependent: number of a word, from 0; ``head`` of the one that it depends on.
        head: see ``dependent``.
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
