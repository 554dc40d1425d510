"""Records of what single heads do row by row: sampled by deciles, by rules, by what they write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from attnviz.core.heads import Head
from attnviz.core.lengths import Axes
from attnviz.core.result import ByHead


@dataclass(frozen=True, slots=True)
class SampledText:
    """A text, or a window of a long one, with rows that are shown.

    Attributes:
        number, place: the text, by its number and by file and line.
        window: which window of it, from 0.
        first: position of the first of its ``tokens``.
        tokens: their readable texts.
    """

    number: int
    place: str
    window: int
    first: int
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SampledRow:
    """One row of a head.

    Attributes:
        text: its place in :attr:`Distribution.texts`.
        row, key: the position of its query; ``key`` that of the key with the largest weight.
        key_token: the text of that key, which long windows may have cut off.
        weight, norm, written, effect: the largest weight, ``norm`` the largest α‖f(x)‖, ``written``
            the norm of what the head wrote, ``effect`` what that does to the loss, in nats and to
            first order: above 0 the text is predicted better for it. None where a model does not
            say.
        weights: of the row on the tokens of its text, in thousandths.
        relations: what sets the key apart, by the names of relations.
        raises, lowers: the tokens whose logits the row raised most against the mean of all, the
            most first; empty where that is not known.
        next, added: the token that follows, and what the row added to its logit against the mean of
            all; None where that is not known.
    """

    text: int
    row: int
    key: int
    key_token: str
    weight: float
    norm: float | None
    written: float | None
    effect: float | None
    weights: tuple[int, ...]
    relations: tuple[str, ...]
    raises: tuple[str, ...] = ()
    lowers: tuple[str, ...] = ()
    next: str | None = None
    added: float | None = None


@dataclass(frozen=True, slots=True)
class Decile:
    """A tenth of the rows, by the size of something.

    Attributes:
        low, high: its smallest value, to 0.4 %; ``high`` the largest.
        rows: how many rows it has, of all; by effect, of :attr:`Distribution.whole`.
        written: its share of the norms that the head wrote in these; None where not known.
        examples: rows drawn at random from it, as places in :attr:`HeadDistribution.rows`.
    """

    low: float
    high: float
    rows: float
    written: float | None
    examples: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowShare:
    """A share of rows.

    Attributes:
        value, rows: of so many ``rows``; None without any.
        chance: of a key drawn at random from those that are allowed.
        low, high: the 95 % interval of the share, with texts as clusters; None from too few.
    """

    value: float | None
    rows: int
    chance: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class RuleLeaf:
    """Rules for rows of one kind.

    Attributes:
        path: what the query is, by the names of conditions, each with whether it holds.
        share: of the rows that were held out.
        rules: relations in their order, each with the share of the rows that are left to it in
            which the strongest key is its target: its precision on texts that it was not found on.
    """

    path: tuple[tuple[str, bool], ...]
    share: float
    rules: tuple[tuple[str, RowShare], ...]


@dataclass(frozen=True, slots=True)
class Behaviours:
    """What a head does, as rules that were found on one half of the sampled texts.

    Attributes:
        found_on, measured_on: rows of that half; ``measured_on`` of the other, which all shares are
            of.
        shares: by relation, the share of rows in which its rule is the one that holds.
        unexplained: the share in which none holds.
        tree: the rules, leaf by leaf.
    """

    found_on: int
    measured_on: int
    shares: Mapping[str, RowShare]
    unexplained: RowShare
    tree: tuple[RuleLeaf, ...]


@dataclass(frozen=True, slots=True)
class Residue:
    """Rows in which a role's rule does not hold that are alike.

    Attributes:
        name: the relation whose target the strongest key is, or the class of the key.
        relation: whether it is a relation.
        share: of the rows in which the rule does not hold.
        examples: as places in :attr:`HeadDistribution.rows`.
    """

    name: str
    relation: bool
    share: float
    examples: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """In how many rows a head does what its role says.

    Attributes:
        role: its title.
        holds: of the sampled rows in which the role has a target, the share in which the strongest
            key is one.
        possible: of all sampled rows, those.
        residue: what the strongest key is in the others, the most frequent first.
    """

    role: str
    holds: RowShare
    possible: float
    residue: tuple[Residue, ...]


@dataclass(frozen=True, slots=True)
class TokenPair:
    """A token and that of its strongest key.

    Attributes:
        query, key: their texts.
        rows: how often they came together; too large by at most
            :attr:`HeadDistribution.pair_error`.
        expected: how often they would under uniform attention.
        lift: ``rows`` over ``expected``.
    """

    query: str
    key: str
    rows: float
    expected: float
    lift: float


@dataclass(frozen=True, slots=True)
class SpecificToken:
    """A token as a key.

    Attributes:
        text: of it.
        weight, uniform: its share of the head's weight; ``uniform`` under uniform attention.
    """

    text: str
    weight: float
    uniform: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """Positions of texts that stand together, each stretch twice as long as the one before.

    Attributes:
        first, last: its first position, ``last`` its last.
        rows: how many rows it is from.
        entropy: of the weights in bits; ``uniform_entropy`` of uniform attention.
        sink, uniform_entropy, uniform_sink: the weight on position 0 and special tokens.
    """

    first: int
    last: int
    rows: int
    entropy: float
    uniform_entropy: float
    sink: float
    uniform_sink: float


@dataclass(frozen=True, slots=True)
class Plane:
    """Vectors of a head in the two directions in which those of the corpus differ most.

    Attributes:
        kept: the shares of the variance over all rows that the two directions have.
        points: of the rows that are kept whole, in the order of :attr:`Distribution.points`.
    """

    kept: tuple[float, float]
    points: Annotated[tuple[tuple[float, float], ...], Axes("points")]


@dataclass(frozen=True, slots=True)
class Singular:
    """A singular direction of a head's matrix, read out in tokens.

    Attributes:
        value: the singular value over the largest one.
        share: of the sum of squares of all of them.
        first, second: tokens at the positive end on the side of the query (QK) or of what is read
            (OV), with those of ``second``, the side of the key or of what is written.
        first_other, second_other: the tokens at the negative ends, which also belong together.
    """

    value: float
    share: float
    first: tuple[str, ...]
    second: tuple[str, ...]
    first_other: tuple[str, ...]
    second_other: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClassWeight:
    """Weight from one class of queries to one of keys.

    Attributes:
        query, key: the classes.
        weight, uniform: the share of the weight of these queries; ``uniform`` under uniform
            attention.
        rows: of these queries.
    """

    query: str
    key: str
    weight: float
    uniform: float
    rows: int


@dataclass(frozen=True, slots=True)
class HeadDistribution:
    """One head, row by row.

    Attributes:
        head: which.
        rows: that are shown, in no order; others name their places.
        deciles: by ``weight``, ``norm`` and ``effect``, as far as they are known, the smallest
            first.
        behaviours: what it does, by rules.
        calibrations: of its roles that say which keys they mean.
        classes: weight from classes of queries to classes of keys.
        pairs: tokens that meet more often than under uniform attention.
        pair_error: by how much their numbers of rows are too large at most, in 98 % of cases.
        specific, unspecific: tokens with the most weight for their frequency, the most telling
            first; ``unspecific`` those with the least.
        along: entropy and the weight on the sink along the text.
        planes: of ``q``, ``k``, ``v`` and ``z``, as far as they are known.
        decile: of each point, by weight, from 0.
        qk, ov: the largest singular directions of W_Q W_Kᵀ; ``ov`` of W_V W_O; empty where not
            known.
    """

    head: Head
    rows: tuple[SampledRow, ...]
    deciles: Mapping[str, tuple[Decile, ...]]
    behaviours: Behaviours
    calibrations: tuple[Calibration, ...]
    classes: tuple[ClassWeight, ...]
    pairs: tuple[TokenPair, ...]
    pair_error: float
    specific: tuple[SpecificToken, ...]
    unspecific: tuple[SpecificToken, ...]
    along: tuple[Stretch, ...]
    planes: Mapping[str, Plane] = field(default_factory=dict)
    decile: Annotated[tuple[int, ...], Axes("points")] = ()
    qk: tuple[Singular, ...] = ()
    ov: tuple[Singular, ...] = ()


@dataclass(frozen=True, slots=True)
class RowPoint:
    """A row in a plane.

    Attributes:
        token, token_class, position: of the query; ``token_class`` its class, ``position`` its
            place.
    """

    token: str
    token_class: str
    position: int


@dataclass(frozen=True, slots=True)
class Distribution(ByHead[HeadDistribution]):
    """Some heads row by row, over the same rows.

    Attributes:
        heads: one for each that was selected.
        rows: of the corpus that count: no special token, and two keys or more to choose from.
        sampled, whole: drawn from them at random, of which rules and pairs are; ``whole`` of these
            are kept with all their weights.
        texts: of the rows that are shown.
        points: the rows of the planes.
        no_effect: why there are no effects on the loss; empty where there are.
        no_words: why nothing is read out in tokens; empty where it is.
    """

    heads: tuple[HeadDistribution, ...]
    rows: int
    sampled: int
    whole: int
    texts: tuple[SampledText, ...]
    points: Annotated[tuple[RowPoint, ...], Axes("points")]
    no_effect: str = ""
    no_words: str = ""
