"""What can be asked of a head's score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.core.parsing import number_or
from attnviz.core.settings import Settings, like, setting
from attnviz.core.split import EVERYTHING, Splitting, check_split
from attnviz.errors import UsageError


@dataclass(frozen=True)
class SourcesSettings(Settings):
    """Whose score is split, at which query and key, and what it is compared with."""

    select: str = setting(..., "The head, such as 2.0.", short="s", metavar="HEAD", common=True)
    query: int | None = setting(
        None, "Position of the query. From 0; -1 is the last.", shown="the last", common=True
    )
    key: int | None = setting(
        None, "Position of the key.", shown="the one with most weight", common=True
    )
    other_key: int | Literal["mean", "rest"] | None = setting(
        None,
        "Split the difference from this key's score. Or from the mean over all other keys: "
        "unweighted (mean; what several texts are compared with) or by their weights (rest: what "
        "changes the logarithm of the weight's odds).",
        metavar="N|mean|rest",
        parser=number_or("mean", "rest"),
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
