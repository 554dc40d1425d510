"""What can be asked of a profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.captures.settings import INPUT, MapSettings
from attnviz.core.settings import RUN, Parallel, Settings, like, setting


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
