"""Records of what was measured over many texts: estimates with intervals, head by head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnviz.findings import Finding
from attnviz.measures import PrefixMatching, SinkRate
from attnviz.records import Head, HeadScores, Layout, Role, SiteKind, SourceInfo

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Estimate:
    """One score of one head over many texts.

    Attributes:
        mean: over all rows on which the score is defined; None where there is none.
        chance: the same of uniform attention; ``lift`` is mean / chance.
        rows: how many rows; ``texts`` of how many texts, or groups of texts.
        low, high: the 95 % interval of the mean, with texts (or groups) as clusters; None from
            fewer than two of them.
        quartiles: of the means of single texts (or groups), to a 500th of the scale.
    """

    mean: float | None
    chance: float | None
    lift: float | None
    rows: int
    texts: int
    low: float | None = None
    high: float | None = None
    quartiles: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """A share of a head's weight, and what it would be under uniform attention."""

    weight: float
    uniform: float


@dataclass(frozen=True, slots=True)
class ExampleRow:
    """A row that shows a role.

    Attributes:
        sort: ``best`` or ``random``.
        value: the role's score in this row.
        number, place: the text, by its number and by file and line.
        window: which window of a long text, from 0; ``text`` its words, cut if there are many.
        row: the query's position in the window; ``token`` its readable text.
    """

    sort: str
    value: float
    number: int
    place: str
    window: int
    text: str
    row: int
    token: str


@dataclass(frozen=True, slots=True)
class HeadProfile:
    """What one head does over many texts.

    Attributes:
        scores: means over all rows, and the roles that they support.
        estimates: the scores with their intervals, by name.
        distances: shares of the weight by position of the key less that of the query, from
            "farther back than 32" over -32 ... 32 to "farther ahead"; empty in cross-attention.
        kinds: by kind of token.
        tenths: by the key's place in the text, in tenths.
        tokens: the token strings with the most weight, the heaviest first.
        examples: rows that show each role.
        nearest: the heads most alike, each with its distance (0 to 1).
        place: in the plane of heads of its kind; None where nothing was compared.
    """

    scores: HeadScores
    estimates: Mapping[str, Estimate]
    distances: tuple[Share, ...]
    kinds: Mapping[str, Share]
    tenths: tuple[Share, ...]
    tokens: tuple[tuple[str, Share], ...]
    examples: Mapping[str, tuple[ExampleRow, ...]]
    nearest: tuple[tuple[Head, float], ...]
    place: tuple[float, float] | None

    @property
    def head(self) -> Head:
        """Which head."""
        return self.scores.head

    def evidence(self, role: Role) -> Estimate:
        """What a role rests on; those from annotation have estimates of their own."""
        return self.estimates.get(role.title) or self.estimates[role.score]


@dataclass(frozen=True, eq=False, slots=True)
class Alike:
    """How much alike n heads of one kind of layer are, in a plane.

    Attributes:
        heads: which.
        places: [n, 2], in the unit of the distances; the plane that keeps most of them.
        nearest: of each, the heads most alike and their distances, the nearest first.
        kept: share of the squared distances that the plane keeps.
        rows: how many rows were compared, of ``texts`` texts.
        texts: see there.
    """

    heads: tuple[Head, ...]
    places: NDArray[np.float64]
    nearest: tuple[tuple[tuple[Head, float], ...], ...]
    kept: float
    rows: int
    texts: int


@dataclass(frozen=True)
class Profile:
    """What the heads of a model do over many texts.

    Attributes:
        source: where the weights come from.
        layout: all heads of the model.
        heads: one for each.
        texts, windows, tokens: how many ran; a long text runs in several windows.
        clusters: independent units: texts, or groups of them where ``grouped``.
        simultaneous: whether the intervals hold for all heads and scores at once.
        width: half the width of a simultaneous interval in standard errors, else None.
        likeness: [n, n] distances between the heads of each kind of site, in the layout's order.
        compared: texts on which likeness was measured.
        bad_count: texts that could not be used; ``bad`` are the first of them, place and reason.
        empty_rows: query rows without any weight, counted once per layer.
        files: what was read.
        seed: of everything that was drawn.
        notes: full sentences that the reader must not miss.
        quantity: what was scored, a name of :data:`attnviz.quantities.QUANTITIES`; all but weights
            with rows divided by their sums.
        sink_rate: as Gu et al. 2024 define it; None where no text has the tokens for it, or the
            model is not a single causal stack.
        matching: prefix matching on random tokens; None where it is not defined.
        identity: what no other model shares; empty where one was handed over loaded.
        findings: what other commands say of these heads.
    """

    source: SourceInfo
    layout: Layout
    heads: tuple[HeadProfile, ...]
    texts: int
    windows: int
    tokens: int
    clusters: int
    grouped: bool
    simultaneous: bool
    width: float | None
    likeness: Mapping[SiteKind, NDArray[np.float64]]
    compared: int
    bad_count: int
    bad: tuple[tuple[str, str], ...]
    empty_rows: int
    files: tuple[str, ...]
    seed: int
    notes: tuple[str, ...] = ()
    quantity: str = "weights"
    sink_rate: SinkRate | None = None
    matching: PrefixMatching | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def __repr__(self) -> str:
        unit = "groups" if self.grouped else "texts"
        return (
            f"<Profile {self.source.model}, {self.texts:,} texts, {self.clusters:,} {unit} as "
            f"clusters, {self.tokens:,} tokens, {len(self.heads)} heads"
            f"{'' if self.quantity == 'weights' else f', {self.quantity}'}>"
        )

    def __getitem__(self, head: Head) -> HeadProfile:
        """What one head does; KeyError for a head that is not there."""
        for found in self.heads:
            if found.head == head:
                return found
        raise KeyError(head)
