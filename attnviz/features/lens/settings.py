"""What can be asked of a lens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.core.parsing import number_or
from attnviz.core.settings import Settings, setting
from attnviz.errors import UsageError


@dataclass(frozen=True)
class LensSettings(Settings):
    """What is decoded, and where."""

    by: Literal["layer", "head"] = setting(
        "layer",
        "Decode the state after each layer, or what each head writes. Of several texts the mean "
        "over all positions.",
        common=True,
    )
    answer: str | None = setting(
        None,
        "The word whose rank and probability to follow across layers.",
        metavar="WORD",
        shown="what each position predicts in the end",
        common=True,
    )
    position: int | Literal["all"] | None = setting(
        None,
        "Read this token alone, from 0 (-1 is the last), or all. By default every position or, of "
        "a masked model, every mask; of heads the last token of a single text.",
        metavar="N|all",
        shown="all",
        parser=number_or("all"),
        common=True,
    )
    predictions: int = setting(
        10, "Number of words to list for each layer or head.", least=1, most=1000
    )

    def check(self) -> None:
        """Raise UsageError for a word that is followed along no layers."""
        if self.by == "head" and self.answer is not None:
            raise UsageError(
                "{answer} is followed along the layers; leave out {by}",
                answer=self.answer,
                by=self.by,
            )
