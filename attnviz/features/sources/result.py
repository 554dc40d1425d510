"""A score before softmax, and what it is made of on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from attnviz.core.heads import Head
from attnviz.core.lengths import Axes, Place
from attnviz.core.reasons import Origin
from attnviz.core.result import Result, Value
from attnviz.core.settings import Settings, like, number_or_text, setting
from attnviz.core.split import EVERYTHING, Splitting, check_split
from attnviz.drawing.renderable import Renderable
from attnviz.errors import UsageError

ScoreSide = Literal["query", "key"]

Others = Literal["mean", "rest"]

MEAN: Literal["mean"] = "mean"  # against the other keys of the row, each as heavy as the next
REST: Literal["rest"] = "rest"
"""Against the other keys of the row, each as heavy as its weight among them: so changes the
logarithm of the weight's odds."""

CANCELS = 0.05
"""Below this share of what its parts come to without their signs, a sum has no shares."""


@dataclass(frozen=True, slots=True)
class SideSum:
    """What one source adds to a score on one side, whatever stands on the other.

    Attributes:
        origin: the source.
        value: in units of the score.
        share: of the sum over all sources; None where these cancel.
    """

    origin: Origin
    value: float
    share: float | None


@dataclass(frozen=True, slots=True)
class ReadToken:
    """What an earlier head adds through one token that it reads: one level down.

    Attributes:
        side: on which the head counts.
        head: the earlier head.
        position: of the token that it reads.
        token: its text.
        weight: of the earlier head on it.
        value: what comes through it, in units of the score.
    """

    side: ScoreSide
    head: Head
    position: int
    token: str
    weight: float
    value: float


@dataclass(frozen=True, slots=True)
class RowKey:
    """One key of the query's row.

    Attributes:
        position: of the key.
        token: its text.
        weight: of the head on it.
        score: s q·k and what its position adds.
        added: by its position alone: ALiBi or a relative bias; in ``score``.
        by_key: what each source of the key adds, in the order of ``key_origins``.
    """

    position: Annotated[int, Place("keys")]
    token: str
    weight: float
    score: float
    added: float
    by_key: Annotated[tuple[float, ...], Axes("key sources")]


@dataclass(frozen=True, slots=True)
class SourceShare:
    """What one source adds to a contrast of keys, over the rows of many texts.

    Attributes:
        origin: the source.
        value: mean over the texts of the means over their rows, in units of the score.
        share: of the contrast, a ratio of two such means.
        low, high: ends of the share's own 95 % interval over texts; None from fewer than five.
        joint_low, joint_high: ends of the intervals that hold for all sources of the side at once;
            None from fewer than twenty texts.
        detectable: the share that would have been told from 0 in 80 % of such samples; None where
            there is no interval.
    """

    origin: Origin
    value: float
    share: float
    low: float | None = None
    high: float | None = None
    joint_low: float | None = None
    joint_high: float | None = None
    detectable: float | None = None

    @property
    def sure(self) -> bool:
        """Whether it is told from 0, among all of its side where there are texts enough."""
        low, high = self.low, self.high
        if self.joint_low is not None:
            low, high = self.joint_low, self.joint_high
        return low is not None and high is not None and (low > 0 or high < 0)


@dataclass(frozen=True, kw_only=True, repr=False)
class SourceShares(Renderable, Result):
    """Where a head finds its keys, over the rows of many texts on which it can.

    On every row the contrast is the mean score of the keys that count less that of all others.

    Attributes:
        head: whose.
        score: whose target keys count, a name of the head scores; empty for the key with the
            largest weight in each row.
        other_key: ``mean`` where all keys count alike in both means; ``rest`` where each counts by
            its weight among them, so that the contrast is what changes the logarithm of the odds.
        chosen: whether the score was asked for; else it is of the role that the head has here.
        split: which texts that role was chosen on, see :mod:`attnviz.core.split`.
        chosen_on: how many these were; 0 where the score was asked for.
        rows: how many there are; on so many of ``of_rows``.
        of_rows: rows of the texts.
        contrast: its mean over the texts, of each the mean over its rows.
        added: what positions add to it beside (ALiBi, a relative bias).
        by_query, by_key: what every source of the query adds, the largest first; ``by_key`` of the
            keys.
    """

    schema: ClassVar[str] = "attnviz.source-shares/1"
    command: ClassVar[str] = "sources"

    head: Head
    score: str
    other_key: Others
    chosen: bool
    split: str
    chosen_on: int
    rows: int
    of_rows: int
    contrast: float
    added: float
    by_query: tuple[SourceShare, ...]
    by_key: tuple[SourceShare, ...]

    @property
    def name(self) -> str:
        """Of the head."""
        return self.layout.name(self.head)

    def both_signs(self, side: ScoreSide) -> tuple[float, float]:
        """Give shares of a side's sources that add to the contrast, and of those that take away."""
        shares = [part.share for part in self.side(side)]
        return sum(x for x in shares if x > 0), sum(x for x in shares if x < 0)

    def side(self, side: ScoreSide) -> tuple[SourceShare, ...]:
        """Return what every source of one side adds, the largest first."""
        return self.by_query if side == "query" else self.by_key

    def measured_edges(self) -> Mapping[tuple[str, Head, Head], Value]:
        """Return the shares of earlier heads in its queries and keys."""
        return {
            (name, share.origin.head, self.head): (share.share, share.low, share.high)
            for name, shares in (("Q", self.by_query), ("K", self.by_key))
            for share in shares
            if share.origin.head is not None
        }

    def __repr__(self) -> str:
        top = ", ".join(
            f"{part.origin.name(self.layout)} {100 * part.share:.0f} %" for part in self.by_key[:3]
        )
        return f"<SourceShares of {self.name}, {self.texts} texts, {self.rows} rows: keys {top}>"


@dataclass(frozen=True, kw_only=True, repr=False)
class Sources(Renderable, Result):
    """One score before softmax, or the difference of two, as a sum over pairs of sources.

    score = Σ_ab matrix[a][b] + added, with a over ``query_origins`` and b over ``key_origins``.

    Attributes:
        head: whose.
        query, key: position of the query; ``key`` of the key.
        other_key: position of the key whose score is taken off; ``mean`` for the mean over all
            others, ``rest`` for that by their weights among themselves; None for nothing.
        queries, keys: text of every query's token; ``keys`` of every key's.
        weight: of the query on the key.
        score: as the model has it, before softmax and before any soft cap.
        added: by position, outside of the matrix: ALiBi or a relative bias.
        sum: of the matrix and ``added``.
        softcap: c of c tanh(score / c), which cannot be split; None for scores that are not capped.
        query_origins, key_origins: sources of the query, in the order in which they write;
            ``key_origins`` of the key.
        matrix: what each pair of sources adds, row by row of ``query_origins``.
        row: the keys that the query may attend to.
        reads: the strongest earlier heads of both sides, by the token that they read.
    """

    schema: ClassVar[str] = "attnviz.sources/1"
    command: ClassVar[str] = "sources"

    head: Head
    query: Annotated[int, Place("queries")]
    key: Annotated[int, Place("keys")]
    other_key: Annotated[int | Others | None, Place("keys")]
    queries: Annotated[tuple[str, ...], Axes("queries")]
    keys: Annotated[tuple[str, ...], Axes("keys")]
    weight: float
    score: float
    added: float
    sum: float
    softcap: float | None
    query_origins: Annotated[tuple[Origin, ...], Axes("query sources", least=1)]
    key_origins: Annotated[tuple[Origin, ...], Axes("key sources", least=1)]
    matrix: Annotated[tuple[tuple[float, ...], ...], Axes("query sources", "key sources")]
    row: tuple[RowKey, ...] = ()
    reads: tuple[ReadToken, ...] = ()

    def side(self, side: ScoreSide) -> tuple[SideSum, ...]:
        """Return what every source of one side adds, the largest first."""
        rows = self.matrix if side == "query" else tuple(zip(*self.matrix, strict=True))
        origins = self.query_origins if side == "query" else self.key_origins
        sums = [sum(row) for row in rows]
        total = sum(sums)
        stable = abs(total) > CANCELS * sum(map(abs, sums))
        sides = [
            SideSum(origin, value, value / total if stable else None)
            for origin, value in zip(origins, sums, strict=True)
        ]
        return tuple(sorted(sides, key=lambda part: -abs(part.value)))

    @property
    def name(self) -> str:
        """Of the head."""
        return self.layout.name(self.head)

    def __repr__(self) -> str:
        top = ", ".join(
            f"{part.origin.name(self.layout)} {part.value:+.2g}" for part in self.side("key")[:3]
        )
        return (
            f"<Sources of {self.name}, {self.query} to {self.key}: {self.score:.3g}; "
            f"key side {top}>"
        )


@dataclass(frozen=True)
class SourcesSettings(Settings):
    """Whose score is split, at which query and key, and what it is compared with."""

    select: str = setting(..., "The head, such as 2.0.", short="s", metavar="HEAD", common=True)
    query: str | int | None = setting(
        None, "The query: its position (from 0; -1 is the last), or its text.",
        metavar="TOKEN", parser=number_or_text, shown="the last", common=True,
    )  # fmt: skip
    key: str | int | None = setting(
        None, "The key, given as for {query}.",
        metavar="TOKEN", parser=number_or_text, shown="the one with most weight", common=True,
    )  # fmt: skip
    other_key: str | int | None = setting(
        None,
        "Split the difference from this key's score. Or from the mean over all other keys: "
        "unweighted (mean; what several texts are compared with) or by their weights (rest: what "
        "changes the logarithm of the weight's odds).",
        metavar="TOKEN|mean|rest",
        parser=number_or_text,
        common=True,
    )
    role: str | None = setting(
        None,
        "Of several texts, the role whose target keys count, such as induction.",
        metavar="ROLE",
        shown="the head's own, else the key with the largest weight",
    )
    split: str = like(
        Splitting,
        "split",
        default=EVERYTHING,
        help="Of several texts, which part the role is chosen on; shares are from the other: "
        "halves, a share by a hash of each (hash:0.5), those with a value of a field of {texts} "
        "(field:NAME, field:NAME=VALUE), or both on everything (all).",
        common=False,
    )
    seed: int = setting(0, "Seed of the bootstrap and of sampling.", least=0)

    def check(self) -> None:
        """Raise UsageError for no such split."""
        check_split(self.split)

    def check_one(self) -> None:
        """Raise UsageError for what only several texts have."""
        if self.role is not None:
            raise UsageError("{role} is for several texts; leave it out", role=self.role)
        if self.split != EVERYTHING:
            raise UsageError("{split} is for several texts; leave it out", split=self.split)

    def check_several(self) -> None:
        """Raise UsageError for what only a single text has, or for nothing that is chosen."""
        if self.role is not None and self.split != EVERYTHING:
            raise UsageError(
                "{role} says whose targets count, so that nothing is chosen; leave out {split}",
                role=self.role,
                split=...,
            )
        for name in ("query", "key", "other_key"):
            value = getattr(self, name)
            if isinstance(value, int):
                raise UsageError(
                    "{query}, {key} and {other_key} name positions of a single text; of several "
                    "every row is looked at",
                    query=..., key=..., other_key=...,
                )  # fmt: skip
