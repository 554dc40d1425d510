"""What can be asked of a reasoning trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.core.settings import Settings, setting

APART = 4
"""Sentences from one to the first that counts as later (Bogdan et al. 2025)."""


@dataclass(frozen=True)
class ThoughtsSettings(Settings, panel="Sentences"):
    """Which sentences count as later, and what is measured beside attention."""

    apart: int = setting(
        APART,
        "Vertical scores are from sentences at least N later.",
        least=1,
        most=10_000,
        command=False,
    )
    method: Literal["suppress", "attention"] = setting(
        "suppress",
        "suppress, which also runs the model with attention to each sentence suppressed for all "
        "that follows; or attention alone.",
        common=True,
    )
    draws: int = setting(
        3,
        "Controls of receiver heads: the same sentences in random order; 0 for none.",
        least=0,
        most=1000,
    )
    resample: int = setting(
        0,
        "Regenerate each sentence N times: how much less likely is the answer?",
        least=0,
        most=1000,
        metavar="N",
        common=True,
    )
    seed: int = setting(0, "Seed of random orders, halves and continuations.", least=0)
    batch_tokens: int | None = setting(
        None, "Largest number of tokens run at once.", least=1, shown="by memory"
    )

    @property
    def causal(self) -> bool:
        """Whether attention is suppressed."""
        return self.method == "suppress"
