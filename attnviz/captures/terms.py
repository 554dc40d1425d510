"""The heads of a capture whose queries and keys it holds, to explain their weights."""

from __future__ import annotations

from collections.abc import Collection

from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout
from attnviz.errors import SelectionError, UsageError
from attnviz.scoring.select import select


def asked(why: str | None, shown: Collection[Head], layout: Layout) -> tuple[Head, ...]:
    """The heads whose queries and keys are to be kept."""
    if why is None:
        return ()
    if layout.whole:
        raise UsageError("{why} explains the weights of single heads, not of layers", why=why)
    chosen = select(why, layout)
    missing = [layout.name(head) for head in chosen if head not in shown]
    if missing:
        raise SelectionError(
            "{why} asks about {}, which {select} leaves out", missing[0], why=why, select=...
        )
    return chosen


def check_terms(capture: Capture, why: str | None) -> None:
    """UsageError where a capture does not hold the queries and keys that are wanted."""
    if why is not None:
        for head in select(why, capture.layout):
            if head not in capture.terms:
                raise unknown(capture, head)


def unknown(capture: Capture, head: Head) -> UsageError:
    """What to say of a head whose queries and keys a capture does not hold."""
    name = capture.layout.name(head)
    if capture.source.backend == "recorded":
        return UsageError(
            "the queries and keys of {} are not known: recorded attention has none; run the "
            "model itself",
            name,
        )
    return UsageError(
        "the queries and keys of {} were not kept; capture the text again with {why}",
        name,
        why=name,
    )
