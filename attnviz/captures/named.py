"""Named parts of texts, looked for before a model cuts the texts into tokens."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from attnviz.captures.loading import light
from attnviz.core.capture import Capture
from attnviz.core.heads import Head
from attnviz.core.interface import interface
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.result import Result
from attnviz.core.scores import HeadScores
from attnviz.core.source import Source
from attnviz.core.spans import (
    Span,
    box_of,
    found_in,
    no_picture,
    no_span,
    places,
    ranges_of,
    span_query,
)
from attnviz.errors import UsageError
from attnviz.scoring import select as selection
from attnviz.scoring.arrange import leading
from attnviz.scoring.observe import score_capture
from attnviz.scoring.passes import score_batch

_ANY = sys.maxsize
"""More tokens than a text has."""


def check_spans(prompt: Prompt) -> None:
    """Look whether the named parts of a text are in it, before a model cuts it into tokens."""
    for name, written in (prompt.spans or {}).items():
        query = span_query(name, written)
        if query.kind == "box":
            box_of(query)
            if prompt.image is None:
                raise no_picture(name)
        elif query.kind in ("tokens", "chars"):
            ranges_of(query)
        elif prompt.text is not None and prompt.generate is None:
            found_in(query, prompt.text)


def known_spans(what: Iterable[str | Prompt | Capture]) -> tuple[str, ...] | None:
    """The names of the spans of some texts; None where a model tells them, or attention holds them.

    The messages of a chat and what a model writes are spans too.
    """
    names: dict[str, None] = {}
    for given in what:
        if isinstance(given, str):
            continue
        if isinstance(given, Capture) or given.text is None or given.generate is not None:
            return None
        names |= dict.fromkeys(given.spans or ())
    return tuple(names)


def check_part(rows: str | None, keys: str | None, prompt: Prompt) -> None:
    """Look whether the rows and keys of a part can be meant, before a model cuts a text."""
    names = known_spans([prompt])
    if names is not None:
        spans = [Span(name, ()) for name in names]
        for what, asked in (("rows", rows), ("keys", keys)):
            if asked is not None:
                places(asked, spans, _ANY, what)


def check_span(name: str, prompts: Iterable[Prompt]) -> None:
    """Look whether any of some texts has a span of that name, where their spans are all known."""
    known = known_spans(prompts)
    if known is not None and name not in known:
        raise no_span(name, known)


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
