"""Everything known about the heads of a model, gathered by head from what commands found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from attnviz.core.heads import Head, SiteKind
from attnviz.core.result import ByHead, Finding, Result, Value
from attnviz.core.scores import Estimate, Role
from attnviz.core.split import Judged
from attnviz.drawing.labels import model_name
from attnviz.drawing.renderable import Renderable
from attnviz.features.ablation.result import DISTANCES, Effect
from attnviz.features.circuits.result import Copying, Edge
from attnviz.features.coref.result import AntecedentHead
from attnviz.features.profile.result import HeadProfile
from attnviz.features.sources.result import SourceShare
from attnviz.features.syntax.result import RelationHead
from attnviz.web.written import framed


@dataclass(frozen=True, slots=True)
class ExampleMap:
    """A window of a head's map on its first example.

    Attributes:
        queries, keys: of the rows; ``keys`` of the columns.
        row: of the example, in the window.
        first: position of the window's first row in the text.
        weights: [rows, columns], in thousandths.
    """

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    row: int
    first: int
    weights: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class AblationPart:
    """How heads were ablated; the fields are those of an ablation.

    Attributes:
        metric, unit: what changed, in ``unit``.
        methods, method: what took a head's place; ``method`` in words.
        texts, positions: how many, with ``positions`` that counted.
        base: the metric on the full model.
        smallest: the smallest effect of interest, in the metric's unit; None for a distance.
        worse: +1 if more of the metric is worse, -1 if less is.
    """

    metric: str
    unit: str
    methods: tuple[str, ...]
    method: str
    texts: int
    positions: int
    base: float
    smallest: float | None
    worse: int

    @property
    def distance(self) -> bool:
        """Whether the metric is how far the model moves, which is never below zero."""
        return self.metric in DISTANCES


@dataclass(frozen=True, slots=True)
class GoldPart(Judged):
    """How heads were compared with gold annotation.

    Attributes:
        cases: words of a treebank, or examples of coreference.
        texts, unit: clusters that they are from, each one of ``unit``.
        split: the documents that heads were chosen on.
    """

    cases: int
    texts: int
    unit: str
    split: str


@dataclass(frozen=True, slots=True)
class ReadShares:
    """What a head's queries and keys were measured to be from, over rows of texts.

    Attributes:
        score: whose target keys count, a name of the head scores; empty for the key with the
            largest weight in each row.
        texts, rows: how many, with so many ``rows`` that count.
        by_query, by_key: what heads of its ``reads`` and the largest sources add to its queries, as
            shares of the contrast between its keys; ``by_key`` to its keys.
    """

    score: str
    texts: int
    rows: int
    by_query: tuple[SourceShare, ...]
    by_key: tuple[SourceShare, ...]

    def of(self, side: str, writer: Head) -> SourceShare | None:
        """Return the share of a head; None where it is not known, as of values."""
        shares = {"Q": self.by_query, "K": self.by_key}.get(side, ())
        return next((share for share in shares if share.origin.head == writer), None)


@dataclass(frozen=True, slots=True)
class AtlasHead:
    """What is known of one head.

    Attributes:
        profile: over many texts, with the heads at the top of its list alone, and the strings
            that get more weight than their frequency gives them, the most telling first: by
            w log(w / u), a share w of the weight and u under uniform attention.
        effect: of ablating it; None where that was not measured.
        relations: that it has a role for, the clearest first.
        antecedents: how often it finds them; None where that was not measured.
        annotated: its roles from gold annotation, with their evidence.
        plain: copying with the token embeddings as they are; None where not known.
        first: the same with the embeddings as they leave the first layer.
        copies: whether it does, see :meth:`~attnviz.features.circuits.result.Circuits.copies`.
        feeds: the strongest edges out of it that random heads would hardly have.
        reads: those into it.
        shares: what its queries and keys are from on texts; None where that was not measured.
        map: of its first example; None where there is none.
    """

    profile: HeadProfile
    effect: Effect | None = None
    relations: tuple[RelationHead, ...] = ()
    antecedents: AntecedentHead | None = None
    annotated: tuple[tuple[Role, Estimate], ...] = ()
    plain: Copying | None = None
    first: Copying | None = None
    copies: bool | None = None
    feeds: tuple[Edge, ...] = ()
    reads: tuple[Edge, ...] = ()
    shares: ReadShares | None = None
    map: ExampleMap | None = None

    @property
    def head(self) -> Head:
        """Which head."""
        return self.profile.head

    @property
    def copying(self) -> Copying | None:
        """Copying by what the head reads: beyond the first layer what leaves it, where known."""
        return self.first or self.plain

    @property
    def needed(self) -> bool | None:
        """Whether it is needed; None where an ablation cannot say: one text, one method, ..."""
        if self.effect is None or self.effect.verdict is None:
            return None
        return self.effect.verdict == "needed"

    def has_role(self, title: str) -> bool:
        """Whether annotation gives it the role of that title."""
        return any(role.title == title for role, _ in self.annotated)


@dataclass(frozen=True, kw_only=True, repr=False)
class Atlas(ByHead[AtlasHead], Renderable, Result):
    """Everything known about the heads of a model; ``texts`` of the header are the profile's.

    Attributes:
        heads: one for each.
        windows, tokens: how many the profile is from, with ``tokens`` in all.
        files: what was read.
        clusters, grouped: independent units: texts, or groups of them where ``grouped``.
        simultaneous: whether the profile's intervals hold for all heads and scores at once.
        usual: by kind of layer, the distance of the median pair of heads, which likeness is held
            against.
        resamples: how often texts were drawn anew for the stability of roles and nearest heads.
        ablation: how heads were ablated; None where they were not.
        syntax, coref: how they were compared with a treebank; ``coref`` with antecedents.
        circuits: whether the weights were read.
        absent: why a part is missing, by its command.
        findings: what results that were laid beside it say of the heads.
    """

    schema: ClassVar[str] = "attnviz.atlas/1"
    command: ClassVar[str] = "atlas"
    indent: ClassVar[int | None] = None

    heads: tuple[AtlasHead, ...]
    windows: int
    tokens: int
    files: tuple[str, ...]
    clusters: int
    grouped: bool
    simultaneous: bool
    usual: Mapping[SiteKind, float] = field(default_factory=dict)
    resamples: int = 0
    ablation: AblationPart | None = None
    syntax: GoldPart | None = None
    coref: GoldPart | None = None
    circuits: bool = False
    absent: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def title(self) -> str:
        """Of its page."""
        return f"attnviz atlas: {model_name(self.source)}"

    @property
    def measured_on(self) -> str:
        """What roles from annotation were measured on, in words."""
        parts = [part.measured_on for part in (self.syntax, self.coref) if part is not None]
        return " and ".join(dict.fromkeys(parts))

    def annotated_roles(self) -> dict[Head, tuple[tuple[Role, Estimate], ...]]:
        """Return the heads that annotation gives roles."""
        return {head.head: head.annotated for head in self.heads if head.annotated}

    def measured_edges(self) -> Mapping[tuple[str, Head, Head], Value]:
        """Return the measured shares of earlier heads in queries and keys."""
        return {
            (side, share.origin.head, head.head): (share.share, share.low, share.high)
            for head in self.heads
            if head.shares is not None
            for side, shares in (("Q", head.shares.by_query), ("K", head.shares.by_key))
            for share in shares
            if share.origin.head is not None
        }

    def share_of(self, edge: Edge) -> SourceShare | None:
        """Return what was measured of an edge of weights; None where nothing was."""
        shares = self[edge.reader].shares
        return None if shares is None else shares.of(edge.side, edge.writer)

    def ranked(self) -> tuple[AtlasHead, ...]:
        """Return the heads that were ablated, the most harmful first."""
        worse = 1 if self.ablation is None else self.ablation.worse
        keys = [
            (-head.effect.change * worse, n) for n, head in enumerate(self.heads) if head.effect
        ]
        return tuple(self.heads[n] for _, n in sorted(keys))

    def __repr__(self) -> str:
        return f"<Atlas {self.source.model}, {self.texts:,} texts, {len(self.heads)} heads>"

    def _repr_html_(self) -> str:
        return framed(self.page(), self.title)
