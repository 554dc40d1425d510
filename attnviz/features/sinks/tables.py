"""Heads as rows."""

from __future__ import annotations

from attnviz.drawing.tables import Row, spread, which_head
from attnviz.features.sinks.result import Sinks


def rows(result: Sinks) -> list[Row]:
    """A row for each head."""
    return [
        {
            **which_head(result.layout, head.head),
            "position": head.position,
            "token": head.token,
            "texts": head.texts,
            **spread("share", head.share),
            "chance": head.chance,
            "weight": head.weight.value,
            "norm": head.norm.value,
            "written": head.written.value,
            "learned": head.learned.value,
            "output": head.output.value,
            **spread("gate", head.gate),
            "dormant": result.is_dormant(head),
            **spread("without", head.without),
            **spread("without_sink", head.without_sink),
        }
        for head in result.heads
    ]
