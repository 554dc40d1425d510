"""Records of what was measured over many texts: estimates with intervals, head by head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from attnviz.captures.settings import INPUT, MapSettings
from attnviz.core.heads import Head, SiteKind
from attnviz.core.lengths import OneOf
from attnviz.core.quantities import QUANTITIES
from attnviz.core.result import ByHead, Finding, Leaf, Result
from attnviz.core.scores import Estimate, HeadScores, PrefixMatching, Role, SinkRate, UserDefined
from attnviz.core.settings import RUN, Parallel, Settings, like, setting
from attnviz.drawing.renderable import Renderable
from attnviz.features.profile.parts import Distribution

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
class Stability:
    """What is said of a head when the texts are drawn anew, with replacement, some times.

    Attributes:
        roles: in how many of the draws each role is given, by its title; the most frequent first.
        nearest: in how many each other head is the one most alike, the most frequent first.
    """

    roles: Mapping[str, int]
    nearest: tuple[tuple[Head, int], ...]


@dataclass(frozen=True, slots=True)
class HeadProfile:
    """What one head does over many texts.

    Attributes:
        scores: means over all rows, and the roles that are sure among all that were asked about.
        estimates: the scores with their intervals, by name.
        distances: shares of the weight by position of the key less that of the query, from
            "farther back than 32" over -32 ... 32 to "farther ahead"; empty in cross-attention.
        kinds: by kind of token.
        tenths: by the key's place in the text, in tenths.
        tokens: the token strings with the most weight, the heaviest first.
        examples: rows that show each role.
        nearest: the heads significantly more similar to this one than heads drawn at random
            are, each with its distance (0 to 1), the nearest first; often none.
        place: in the plane of heads of its kind; None where nothing was compared.
        undecided: roles that the means support, but not surely.
        stability: what stays when texts are drawn anew; None where that was not asked for.
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
    undecided: tuple[Role, ...] = ()
    stability: Stability | None = None

    @property
    def head(self) -> Head:
        """Which head."""
        return self.scores.head

    def evidence(self, role: Role) -> Estimate:
        """Return what a role rests on; those from annotation have estimates of their own."""
        return self.estimates.get(role.score) or self.estimates[role.title]


@dataclass(frozen=True, eq=False, slots=True)
class Alike:
    """How much alike n heads of one kind of layer are, in a plane.

    Attributes:
        heads: which.
        places: [n, 2], in the unit of the distances; the plane that keeps most of them.
        nearest: of each, the heads most alike and their distances, the nearest first.
        kept: share of the squared distances that the plane keeps.
        rows, texts: how many rows were compared, of ``texts`` texts.
    """

    heads: tuple[Head, ...]
    places: NDArray[np.float64]
    nearest: tuple[tuple[tuple[Head, float], ...], ...]
    kept: float
    rows: int
    texts: int


@dataclass(frozen=True, kw_only=True, repr=False)
class Profile(ByHead[HeadProfile], Renderable, Result):
    """What the heads of a model do over many texts.

    Attributes:
        heads: one for each.
        windows, tokens: how many ran, with ``tokens`` in all; a long text runs in several.
        clusters: independent units: texts, or groups of them where ``grouped``.
        simultaneous: whether the intervals hold for all heads and scores at once.
        width, rare_width: half the width of a simultaneous interval in standard errors, else None;
            of scores that few texts have, ``rare_width``.
        likeness: [n, n] distances (0 to 1) between the heads of each kind of site, in the layout's
            order, to the digits that are known; empty where nothing was compared.
        alike_texts: texts on which likeness was measured.
        bad_count: texts that could not be used; ``bad`` are the first of them, place and reason.
        empty_rows: query rows without any weight, counted once per layer.
        files: what was read.
        quantity: what was scored, a name of :data:`attnviz.core.quantities.QUANTITIES`; all but
            weights with rows divided by their sums.
        sink_rate: as Gu et al. 2024 define it; None where no text has the tokens for it, or the
            model is not a single causal stack.
        matching: prefix matching on random tokens; None where it is not defined.
        user_defined: the scores and roles that are no part of attnviz.
        findings: what attached results say of these heads.
        copies: clusters that repeat another one word for word, whatever the case; they are no
            independent units.
        questions: of how many pairs of heads and scores it was asked at once whether they show a
            role; a role is given where the answer is sure in the whole family.
        resamples: how often texts were drawn anew for the stability of heads; 0 for never.
        distribution: heads that were selected, row by row; None where none were.
    """

    schema: ClassVar[str] = "attnviz.profile/1"
    command: ClassVar[str] = "profile"

    heads: tuple[HeadProfile, ...]
    windows: int
    tokens: int
    clusters: int
    grouped: bool
    simultaneous: bool
    width: float | None
    likeness: Mapping[SiteKind, tuple[tuple[float, ...], ...]]
    alike_texts: int
    bad_count: int
    bad: tuple[tuple[str, str], ...]
    empty_rows: int
    files: tuple[str, ...]
    quantity: Annotated[str, OneOf(*QUANTITIES)] = "weights"
    sink_rate: SinkRate | None = None
    matching: PrefixMatching | None = None
    rare_width: float | None = None
    copies: int = 0
    questions: int = 0
    resamples: int = 0
    user_defined: tuple[UserDefined, ...] = ()
    distribution: Distribution | None = None
    findings: tuple[Finding, ...] = field(default=(), compare=False)

    def __repr__(self) -> str:
        unit = "groups" if self.grouped else "texts"
        return (
            f"<Profile {self.source.model}, {self.texts:,} texts, {self.clusters:,} {unit} as "
            f"clusters, {self.tokens:,} tokens, {len(self.heads)} heads"
            f"{'' if self.quantity == 'weights' else f', {self.quantity}'}>"
        )

    def rule_trees(self) -> Mapping[Head, tuple[Leaf, ...]]:
        """Return what the heads that were selected look at, by rules."""
        return {
            head.head: tuple(
                (leaf.path, tuple(name for name, _ in leaf.rules)) for leaf in head.behaviours.tree
            )
            for head in (self.distribution.heads if self.distribution else ())
        }


@dataclass(frozen=True)
class CorpusSettings(Settings, panel=INPUT):
    """Which texts of the files, and how they are cut."""

    column: str | None = setting(
        None, "The column or field that holds the text.", metavar="NAME", common=True
    )
    group: str | None = setting(
        None,
        "The column that names what a text belongs to. Such as its document; intervals then take "
        "these as independent, and their texts must follow each other.",
        metavar="NAME",
        common=True,
    )
    whole: bool = setting(
        False, "Read each file as one text. In windows of the model's length.", common=True
    )
    stride: int | None = setting(
        None,
        "Tokens between the starts of successive windows of a long text; rows in an overlap count "
        "in both.",
        least=1,
        shown="no overlap",
    )
    window: int | None = setting(
        None,
        "Tokens of a window of a long text. Memory grows in proportion, time with its square.",
        least=1,
        shown="1,024, or what the model takes",
    )
    special_tokens: bool = setting(True, "Leave out the tokens that the tokenizer adds.", shown="")
    limit: int | None = setting(None, "Take at most the first N texts.", least=1, common=True)
    sample: int | None = setting(None, "Take N of the texts at random, after {limit}.", least=1)
    strict: bool = setting(False, "Stop at the first text that cannot be used.", panel=RUN)


@dataclass(frozen=True)
class ProfileOptions(CorpusSettings):
    """The same, what is scored, and how certain it is."""

    quantity: str = like(MapSettings, "quantity")
    select: str | None = like(
        MapSettings,
        "select",
        help="Look at these heads row by row: 3.0, or 2.0, 3.*. What they do in rows drawn from "
        "every decile, by which rules, and what they write; -o PAGE.html shows it.",
    )
    interval: Literal["each", "simultaneous"] = setting(
        "each", "95 % for each score by itself, or for all at once.", common=True
    )
    stability: bool = setting(
        False, "Also say how often roles and nearest heads recur when the texts are resampled."
    )
    seed: int = setting(0, "Seed of {sample} and of the bootstrap.", least=0)
    jobs: int | None = like(Parallel, "jobs", default=None, shown="one per core for many texts")
    ray: str | None = like(Parallel, "ray")
