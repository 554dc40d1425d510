"""What can be asked of the page of all heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attnviz.captures.settings import KeptSettings, MapSettings
from attnviz.core.heads import Mean
from attnviz.core.settings import like, setting, without_clearest
from attnviz.errors import UsageError


@dataclass(frozen=True)
class ViewSettings(MapSettings):
    """Which heads and which part of the maps, and what stands beside them."""

    select: str | None = like(
        MapSettings,
        "select",
        help="Heads: 4.11, L4H11, 5.*, *.3, 0-3.*, or a comma-separated list; enc:, dec: or cross: "
        "goes in front; clearest:6 takes those with the strongest evidence of doing something. All "
        "by default.",
    )
    without: str | None = like(
        MapSettings,
        "without",
        help="Ablate these heads first: 2.4, role:first. With {other_model} in the first run "
        "alone.",
        common=True,
    )
    mean: Mean | None = like(KeptSettings, "mean")
    rows: str | None = setting(
        None,
        "Only these queries of a single text: tokens such as 4000-4400, or the name of a span. The "
        "page is then that of long texts, finer the smaller the part.",
        metavar="TOKENS",
    )
    keys: str | None = setting(None, "Only these keys, as for {rows}.", metavar="TOKENS")
    why: str | None = setting(
        None,
        "Explain these heads' weights. Their queries and keys are stored too.",
        metavar="HEADS",
        common=True,
    )
    other_model: Any = setting(
        None,
        "A second model or capture to compare. A model that the same texts go through, without any "
        "ablation, or a capture (.npz, .safetensors) of a single text.",
        metavar="MODEL|FILE",
        typed=str,
        common=True,
    )
    ablate: bool = setting(False, "Also ablate every head on these texts.", common=True)

    @property
    def heads(self) -> str | None:
        """The heads that are selected, without how many of them."""
        return without_clearest(self.select)[0]

    @property
    def clearest(self) -> int | None:
        """How many of these, the clearest of them; None for all."""
        return without_clearest(self.select)[1]

    def check(self) -> None:
        """Raise UsageError for what is of one model beside two runs."""
        if self.other_model is not None and self.ablate:
            raise UsageError(
                "{other_model} shows two runs, and {ablate} is of one model: make a page of each",
                other_model=...,
                ablate=...,
            )
        if self.mean is not None and (self.ablate or self.why or self.clearest is not None):
            raise UsageError(
                "{mean} hides what single heads do; leave out what is of heads (ablate, why, "
                "clearest)",
                mean=self.mean,
            )
        if self.ablate and self.without is not None:
            raise UsageError(
                "{ablate} measures the whole model; leave out {without}", ablate=True, without=...
            )
