"""Heads by their names, of whatever has heads."""

from __future__ import annotations

from attnviz.captures.loading import light
from attnviz.core.capture import Capture
from attnviz.core.heads import Head
from attnviz.core.interface import interface
from attnviz.core.prompt import Inputs
from attnviz.core.result import Result
from attnviz.core.scores import HeadScores
from attnviz.core.source import Source
from attnviz.errors import UsageError
from attnviz.scoring import select as selection
from attnviz.scoring.arrange import leading
from attnviz.scoring.observe import score_capture
from attnviz.scoring.passes import score_batch


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


def scored(text: Capture | Inputs, source: Source | None = None) -> tuple[HeadScores, ...]:
    """What every head does with a text, or every one that a capture holds."""
    if isinstance(text, Capture):
        return tuple(score_capture(text).result())
    assert source is not None, "tokens are run by a model"
    observer = score_batch(light(source), [text])
    return tuple(observer.result())


def clearest(text: Capture | Inputs, source: Source | None = None) -> str:
    """The head with the clearest evidence for what it does, as a selection; see :func:`scored`."""
    return min(scored(text, source), key=leading).head.qualified
