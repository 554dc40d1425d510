"""What can be asked of circuits."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.captures.settings import MapSettings
from attnviz.core.settings import Settings, like, setting


@dataclass(frozen=True)
class CircuitsSettings(Settings):
    """Which edges, and on how many tokens copying is measured."""

    select: str | None = like(
        MapSettings,
        "select",
        help="Only edges from or into these heads: 4.11, L4H11, 5.*, *.3, 0-3.*, or a "
        "comma-separated list. All by default.",
    )
    edges: int = setting(1000, "Number of edges in JSON and CSV, for each of Q, K and V.", least=1)
    sample: int = setting(
        4096, "Number of vocabulary tokens, drawn at random, to measure copying on.", least=1
    )
    seed: int = setting(
        0, "Seed of random matrices and of the sample of tokens.", least=0, most=(1 << 63) - 1
    )
