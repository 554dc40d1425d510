"""What can be asked of maps as pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.captures.settings import KeptSettings, PartSettings
from attnviz.core.heads import Mean
from attnviz.core.settings import like, setting


@dataclass(frozen=True)
class HeatmapSettings(PartSettings):
    """Which maps, and what their cells show."""

    select: str | None = like(KeptSettings, "select")
    quantity: str = like(KeptSettings, "quantity", common=True)
    mean: Mean | None = like(KeptSettings, "mean")
    tiles: Literal["max", "sum"] = setting(
        "max",
        "What a cell shows of a text of more than 2,048 tokens, which is a tile of tokens: the "
        "largest weight in it (max), or the sum over its keys as a mean over its rows.",
        command=False,
    )
