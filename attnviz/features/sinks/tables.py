"""Heads as rows."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.sinks.result import SinkMean, Sinks

COLUMNS = (
    "head", "position", "token", "texts", "share", "share_low", "share_high", "chance", "weight",
    "norm", "written", "learned", "output", "dormant", "without", "without_low", "without_high",
    "without_sink", "without_sink_low", "without_sink_high",
)  # fmt: skip
_NONE = SinkMean(None)


def rows(found: Sinks) -> list[Row]:
    """A row for each head."""
    listed = []
    for one in found.heads:
        without, moved = one.without or _NONE, one.without_sink or _NONE
        listed.append(
            {
                "head": found.layout.name(one.head),
                "position": one.position,
                "token": one.token,
                "texts": one.texts,
                "share": one.share.value,
                "share_low": one.share.low,
                "share_high": one.share.high,
                "chance": one.chance,
                "weight": one.weight.value,
                "norm": one.norm.value,
                "written": one.written.value,
                "learned": one.learned.value,
                "output": one.output.value,
                "dormant": found.is_dormant(one),
                "without": without.value,
                "without_low": without.low,
                "without_high": without.high,
                "without_sink": moved.value,
                "without_sink_low": moved.low,
                "without_sink_high": moved.high,
            }
        )
    return listed
