"""An atlas on the terminal: the sentences at the top of its page."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.drawing.terminal import Line
from attnviz.features.atlas import words
from attnviz.features.atlas.result import Atlas


def parts(atlas: Atlas) -> Iterator[Line]:
    """The summary, line by line."""
    return map(Line, words.summary(atlas))
