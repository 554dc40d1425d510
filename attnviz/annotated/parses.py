"""Whole sentences: the trees of heads, all heads together, and sentences with arcs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from attnviz.annotated.share import Share
from attnviz.records import Head, Layout


@dataclass(frozen=True, slots=True)
class TreeChoice:
    """The head whose trees have most dependencies.

    Attributes:
        head: which.
        accuracy: UUAS on the documents that it was not chosen on, unless all were asked for.
        count: dependencies in them.
        chain: UUAS of the chain of neighbours there.
        margin: accuracy minus that.
    """

    head: Head
    accuracy: Share
    count: int
    chain: float | None
    margin: Share


@dataclass(frozen=True, slots=True)
class Trees:
    """The maximum spanning tree of every head (Htut et al. 2019, arXiv:1911.12246).

    Attributes:
        count: dependencies, on all data.
        chain: UUAS of the chain of neighbours, on all data.
        heads: UUAS of each head of the layout, on all data.
        best: the chosen head; None where nothing was there to choose on.
    """

    count: int
    chain: float
    heads: tuple[float, ...]
    best: TreeChoice | None

    def to_json(self, layout: Layout) -> dict[str, Any]:
        """As docs/syntax.schema.json says."""
        best = self.best
        return {
            "count": self.count,
            "chain": self.chain,
            "heads": [
                {"layer": head.layer, "head": head.index, "uuas": uuas}
                for head, uuas in zip(layout, self.heads, strict=True)
            ],
            "best": None
            if best is None
            else {
                "head": layout.name(best.head),
                **best.accuracy.to_json("uuas"),
                "count": best.count,
                "chain": best.chain,
                **best.margin.to_json("margin"),
            },
        }


@dataclass(frozen=True, slots=True)
class Combined:
    """The attention-only classifier over all heads (Clark et al. 2019, section 4.2).

    Attributes:
        accuracy: UAS on the documents that it was not trained on.
        untrained: of the same classifier on random weights.
        margin: the difference of the two.
        offset: the best fixed offset of the documents that it was trained on.
        offset_accuracy: of that, where the others are from.
        count: dependencies there.
        trained: dependencies that it was trained on.
        sentences: that these are from; ``left_out`` as many of the same half, for want of memory.
        left_out: see ``sentences``.
        to_head: what the classifier multiplies a dependent's weight on a word with, by head.
        from_head: and a word's weight on the dependent.
    """

    accuracy: Share
    untrained: Share
    margin: Share
    offset: int
    offset_accuracy: float | None
    count: int
    trained: int
    sentences: int
    left_out: int
    to_head: tuple[float, ...]
    from_head: tuple[float, ...]

    def to_json(self, layout: Layout) -> dict[str, Any]:
        """As docs/syntax.schema.json says."""
        return {
            **self.accuracy.to_json("uas"),
            **self.untrained.to_json("untrained"),
            **self.margin.to_json("margin"),
            "offset": self.offset,
            "offset_accuracy": self.offset_accuracy,
            "count": self.count,
            "trained": self.trained,
            "sentences": self.sentences,
            "left_out": self.left_out,
            "weights": [
                {"layer": head.layer, "head": head.index, "to_head": there, "from_head": back}
                for head, there, back in zip(layout, self.to_head, self.from_head, strict=True)
            ],
        }


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

    def to_json(self) -> dict[str, Any]:
        """As docs/syntax.schema.json says."""
        return {
            "name": self.name,
            "words": list(self.words),
            "arcs": [asdict(arc) for arc in self.arcs],
        }
