"""Heads by their names, of whatever has heads."""

from __future__ import annotations

from attnviz.core.capture import Capture
from attnviz.core.heads import Head
from attnviz.core.interface import interface
from attnviz.core.result import Result
from attnviz.core.source import Source
from attnviz.errors import UsageError
from attnviz.scoring import select as selection


@interface
def select(text: str, where: Capture | Result | Source) -> tuple[Head, ...]:
    """The heads that a selection means.

    Args:
        text: such as ``"4.11, 5.*"``.
        where: whose heads.

    Raises:
        SelectionError: it is junk, or names heads that are not there.
    """
    if not hasattr(where, "layout"):
        raise UsageError("{where} takes a capture, a report or a model, not {!r}", where, where=...)
    return selection.select(text, where.layout)
