"""What can be asked of sinks."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.core.scores import SINK_SHARE
from attnviz.core.settings import Settings, setting

SINK = SINK_SHARE
DORMANT = 0.5
"""A head whose output is smaller than this share of its layer's mean is called dormant."""


@dataclass(frozen=True)
class SinksSettings(Settings):
    """What counts as a sink, and whether its cost is measured."""

    threshold: float = setting(
        SINK, "Mean weight on a key that makes it a sink.", least=0, common=True
    )
    dormant: float = setting(
        DORMANT,
        "A head is dormant below this share of its layer's mean output.",
        least=0,
        command=False,
    )
    ablate: bool = setting(
        False,
        "Also measure what it costs to ablate each head with a sink, and its sink alone.",
        common=True,
    )
