"""What can be asked of an explanation."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.core.settings import Settings, setting


@dataclass(frozen=True)
class ExplainSettings(Settings):
    """Which word, and over which other one."""

    answer: str | None = setting(
        None, "The word to explain.", metavar="WORD", shown="the most probable", common=True
    )
    against: str | None = setting(
        None,
        "The word that its lead is measured over.",
        metavar="WORD",
        shown="the most probable other word",
        common=True,
    )
    seed: int = setting(0, "Seed of resample ablation and of sampling.", least=0)
