"""How heads are compared with antecedents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.core.settings import Parallel, like, setting
from attnviz.corpus.gold.settings import COUNTED, GoldSettings


@dataclass(frozen=True)
class CorefSettings(GoldSettings, panel=COUNTED):
    """Where heads may point, and how much is read at a time."""

    candidates: Literal["words", "mentions"] = setting(
        "words",
        "Of CoNLL-U, where heads may point. To any of the words that are read together (Clark et "
        "al. 2019), or only to the head words of earlier mentions, from which the baselines choose "
        "too.",
        common=True,
    )
    window: int = setting(
        128, "Of CoNLL-U, tokens of a document that are read at a time.", least=16, common=True
    )
    jobs: int = like(Parallel, "jobs")
    ray: str | None = like(Parallel, "ray")
