"""Heads by their names, of whatever has heads."""

from __future__ import annotations

from attnviz.core.capture import Capture
from attnviz.core.heads import Head
from attnviz.core.result import Result
from attnviz.core.source import Source
from attnviz.errors import UsageError
from attnviz.scoring import select as selection


def select(text: str, where: Capture | Result | Source) -> tuple[Head, ...]:
    """The heads that a selection such as ``"4.11, 5.*"`` means; SelectionError if it is junk."""
    if not hasattr(where, "layout"):
        raise UsageError("{where} takes a capture, a report or a model, not {!r}", where, where=...)
    return selection.select(text, where.layout)
