"""What a run of needles is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.core.parsing import numbers
from attnviz.core.settings import like, setting
from attnviz.corpus.gold.settings import GoldSettings
from attnviz.errors import UsageError

NEEDLES, HEADS = "Needles", "Heads"
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_NEEDLES = 100_000
"""Prompts of one run."""
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
