"""Retrieval heads, and the needles that they were found by. What is not known is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from attnviz.core.heads import Head
from attnviz.core.lengths import Axes, Grid
from attnviz.core.result import Interval, Result
from attnviz.core.settings import like, numbers, setting
from attnviz.core.split import chosen_on, measured_on
from attnviz.corpus.gold.settings import GoldSettings
from attnviz.drawing.renderable import Renderable
from attnviz.errors import UsageError

RankedBy = Literal["copied", "query"]  # which of the two scores heads are ranked by
LEAST_COPIED = 0.1
"""A head that copies more of the needles than this is a retrieval head (Wu et al. 2024)."""
RETRIEVED = 0.5  # a needle is retrieved when more of the answer's tokens than this were generated


@dataclass(frozen=True, slots=True)
class RetrievalScore:
    """One head, on the needles that it was not chosen on.

    Attributes:
        head: which.
        copied: the share of the answer's tokens that it copies while the model generates: the
            generated token is in the answer, and the head's largest weight is on that place of it
            (Wu et al. 2024, arXiv:2404.15574); over the needles that the model retrieved.
        copied_all: the same over all needles, retrieved or not.
        query: weight from the question's tokens to the needle, less that from a question without
            content (QRHead, arXiv:2506.09944).
        weight: weight from the question's tokens to the needle, as it is.
        where_chosen: the score that heads are ranked by, where they are ranked.
    """

    head: Head
    copied: Interval
    copied_all: Interval
    query: Interval
    weight: Interval
    where_chosen: float | None


@dataclass(frozen=True, slots=True)
class RetrievalCell:
    """The needles of one length and depth.

    Attributes:
        length: tokens of the prompt.
        depth: where the needle stands, from 0 (first) to 1 (last).
        needles: how many.
        accuracy: share of them that the model retrieved; None for a model that generates nothing.
        copied: mean over the retrieved ones of the chosen head's score.
        query: mean over all of them of the chosen head's query-focused score.
    """

    length: int
    depth: float
    needles: int
    accuracy: float | None
    copied: float | None
    query: float | None


@dataclass(frozen=True, slots=True)
class RetrievalControl:
    """The needles that heads are measured on, with random weights in the same model.

    Such a model answers nothing, so it is given the answer, token by token.

    Attributes:
        seed: of the weights.
        needles: how many.
        copied, copied_most: mean over heads and needles; ``copied_most`` of the head that has most.
        chance: of ``copied``, for a head whose largest weight is on a key drawn at random.
        query, query_most: mean over heads and needles; ``query_most`` of the head that has most.
    """

    seed: int
    needles: int
    copied: float | None
    copied_most: float | None
    chance: float | None
    query: float
    query_most: float


@dataclass(frozen=True, slots=True)
class RetrievalAblation:
    """The needles without the first heads, and without as many others that are drawn.

    The others are drawn from heads that are no retrieval heads where the ranking was done, or from
    all but the first where these are too few.

    Attributes:
        heads: the first of the ranking, whose outputs are set to zero.
        accuracy: without them, of the needles that heads were not chosen on.
        random: the mean of the draws.
        least, most: the worst draw; ``most`` the best one.
        draws: how many.
        margin: accuracy without random heads minus that without the first, needle by needle.
    """

    heads: tuple[Head, ...]
    accuracy: Interval
    random: Interval
    least: float
    most: float
    draws: int
    margin: Interval


@dataclass(frozen=True, slots=True)
class NeedleExample:
    """A needle, and what became of it.

    Attributes:
        length, depth: tokens of its prompt; ``depth`` where it stands.
        needle: its text.
        question: the end of the prompt.
        answer: what is asked for.
        generated: what the model wrote.
    """

    length: int
    depth: float
    needle: str
    question: str
    answer: str
    generated: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Retrieval(Renderable, Result):
    """Which heads copy a needle out of a long text, and what is lost without them.

    Attributes:
        task: ``words`` for needles of random words, or the name of a file.
        by: which score heads are ranked by.
        split: ``halves`` where heads are ranked on even needles and measured on odd ones.
        needles: prompts in all; ``retrieved`` how many the model answered.
        retrieved: see ``needles``; None for a model that generates nothing.
        accuracy: of the needles that heads were not chosen on.
        chance: of ``copied``: a head whose largest weight is on a key drawn at random.
        weight_chance: of ``weight``: the needle's share of the keys that a row may attend to.
        cells: lengths and depths.
        heads: all of them, the first of the ranking first.
        ablations: see :class:`RetrievalAblation`; none where that was not asked for.
        control: random weights; None where that was not asked for.
        examples: the first needles.
    """

    schema: ClassVar[str] = "attnviz.retrieval/1"
    command: ClassVar[str] = "retrieval"

    task: str
    by: RankedBy
    split: str
    needles: int
    retrieved: int | None
    accuracy: Interval
    chance: float | None
    weight_chance: float
    cells: Annotated[tuple[RetrievalCell, ...], Axes(least=1), Grid("length", "depth")]
    heads: Annotated[tuple[RetrievalScore, ...], Axes(least=1)]
    ablations: tuple[RetrievalAblation, ...] = ()
    control: RetrievalControl | None = None
    examples: tuple[NeedleExample, ...] = ()

    @property
    def generates(self) -> bool:
        """Whether the model wrote answers."""
        return self.retrieved is not None

    @property
    def lengths(self) -> tuple[int, ...]:
        """Of the prompts, the shortest first."""
        return tuple(sorted({cell.length for cell in self.cells}))

    @property
    def depths(self) -> tuple[float, ...]:
        """Of the needles."""
        return tuple(sorted({cell.depth for cell in self.cells}))

    @property
    def retrieval_heads(self) -> tuple[RetrievalScore, ...]:
        """The retrieval heads: those that copy more than :data:`LEAST_COPIED`."""
        return tuple(head for head in self.heads if (head.copied.value or 0.0) > LEAST_COPIED)

    @property
    def ranked_on(self) -> str:
        """The needles that heads are ranked on, in words."""
        return chosen_on(self.split, "needles")

    @property
    def held_out(self) -> str:
        """Those that figures are from, in words."""
        return measured_on(self.split, "needles")

    def __repr__(self) -> str:
        first = self.layout.name(self.heads[0].head) if self.heads else "none"
        return f"<Retrieval {self.source.model}, {self.needles} needles, first head {first}>"


NEEDLES, HEADS = "Needles", "Heads"
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_NEEDLES = 100_000  # prompts of one run
_MANY = 10_000


@dataclass(frozen=True)
class RetrievalSettings(GoldSettings):
    """Needles, and how heads are judged by them."""

    lengths: tuple[int, ...] | None = setting(
        None,
        "Tokens of the prompts: 512,1024,2048.",
        panel=NEEDLES,
        metavar="N,N",
        shown="four, up to the model's or 1,024",
        parser=numbers(int),
        typed=str,
        least=1,
        most=1 << 20,
        items=1000,
        common=True,
    )
    depths: tuple[float, ...] = setting(
        DEPTHS,
        "Where needles stand, from 0 (first) to 1 (last).",
        panel=NEEDLES,
        metavar="X,X",
        shown="0,0.25,0.5,0.75,1",
        parser=numbers(float),
        typed=str,
        least=0,
        most=1,
        items=1000,
        common=True,
    )
    count: int = setting(
        4, "Needles of random words for each length and depth.", panel=NEEDLES, least=1, most=_MANY
    )
    needle: tuple[int, int] = setting(
        (3, 5),
        "Words of a random needle: its cue, which the question repeats, and the answer, which is "
        "asked for.",
        panel=NEEDLES,
        metavar="N,N",
        shown="3,5",
        parser=numbers(int),
        typed=str,
        least=1,
        most=1000,
    )
    generate: int | None = setting(
        None,
        "Tokens that the model writes at most.",
        panel=NEEDLES,
        least=1,
        most=_MANY,
        shown="as the answer has; of a file 50",
    )
    rank_by: Literal["copied", "query"] = setting(
        "copied",
        "Rank heads by what they copy, or by the weight from the question.",
        panel=HEADS,
        common=True,
    )
    group_size: tuple[int, ...] = setting(
        (1, 2, 5),
        "Ablate so many of the first heads. And as many others; 0 for none.",
        panel=HEADS,
        metavar="K,K",
        shown="1,2,5",
        parser=numbers(int),
        typed=str,
        least=0,
        items=1000,
        common=True,
    )
    draws: int = setting(
        5, "Sets of other heads for each of these.", panel=HEADS, least=1, most=_MANY
    )
    split: str = like(GoldSettings, "split", panel=HEADS, common=False)
    strict: bool = like(GoldSettings, "strict", command=False, python=False)
    control: int = setting(
        1, "Also run the model with random weights; 0 for not.", panel=HEADS, least=0, most=1
    )
    seed: int = setting(
        0,
        "Seed of words, of heads drawn at random and of random weights.",
        least=0,
        most=(1 << 63) - 1,
    )

    @property
    def cue(self) -> int:
        """Words of a needle that the question repeats."""
        return self.needle[0]

    @property
    def answer(self) -> int:
        """Words of a needle that are asked for."""
        return self.needle[1]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many of the first heads are ablated together."""
        return tuple(size for size in self.group_size if size)

    def check(self) -> None:
        """Raise UsageError for no such split, or no lengths or depths."""
        super().check()
        if self.lengths == () or not self.depths:
            raise UsageError(
                "{lengths} and {depths} need at least one number each", lengths=..., depths=...
            )


def check_many(needles: int) -> None:
    """Refuse more prompts than anybody waits for."""
    if needles > MOST_NEEDLES:
        raise UsageError(
            "{:,} needles are more than {:,}; take fewer {lengths}, {depths} or a smaller {count}",
            needles, MOST_NEEDLES, lengths=..., depths=..., count=...,
        )  # fmt: skip
