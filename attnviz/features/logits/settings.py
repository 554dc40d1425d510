"""What can be asked of a logit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.core.parsing import number_or
from attnviz.core.settings import Settings, setting


@dataclass(frozen=True)
class LogitsSettings(Settings):
    """Which word's logit is split, and where."""

    answer: str | None = setting(
        None,
        "The word whose logit is split.",
        metavar="WORD",
        shown="the most probable",
        common=True,
    )
    against: str | None = setting(
        None,
        "A word whose logit is taken off: what favours one over the other?",
        metavar="WORD",
        common=True,
    )
    position: int | Literal["all"] | None = setting(
        None,
        "Predict after this token, from 0 (-1 is the last), or all. In masked models the word "
        "stands at it. The last of several is the one whose logit is split.",
        metavar="N|all",
        shown="the last, or every mask",
        parser=number_or("all"),
        common=True,
    )
    predictions: int = setting(
        5, "Number of predictions to list at a position.", least=1, most=1000
    )
