"""Heads as rows."""

from __future__ import annotations

from attnviz.drawing.tables import HEAD, Row, which_head
from attnviz.features.sinks.result import SinkMean, Sinks

COLUMNS = (
    *HEAD, "position", "token", "texts", "share", "share_low", "share_high", "chance", "weight",
    "norm", "written", "learned", "output", "dormant", "without", "without_low", "without_high",
    "without_sink", "without_sink_low", "without_sink_high",
)  # fmt: skip
_NONE = SinkMean(None)


def rows(result: Sinks) -> list[Row]:
    """A row for each head."""
    listed = []
    for head in result.heads:
        without, moved = head.without or _NONE, head.without_sink or _NONE
        listed.append(
            {
                **which_head(result.layout, head.head),
                "position": head.position,
                "token": head.token,
                "texts": head.texts,
                "share": head.share.value,
                "share_low": head.share.low,
                "share_high": head.share.high,
                "chance": head.chance,
                "weight": head.weight.value,
                "norm": head.norm.value,
                "written": head.written.value,
                "learned": head.learned.value,
                "output": head.output.value,
                "dormant": result.is_dormant(head),
                "without": without.value,
                "without_low": without.low,
                "without_high": without.high,
                "without_sink": moved.value,
                "without_sink_low": moved.low,
                "without_sink_high": moved.high,
            }
        )
    return listed
