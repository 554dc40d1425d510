"""A page of every head of some captures."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.core.capture import Capture
from attnviz.web.written import Page


@dataclass(frozen=True, eq=False, repr=False)
class Viewer(Page):
    """One page with every head of some captures, as :func:`attnviz.view` makes it.

    ``captures`` are those that it shows, ``notes`` what must be said of all of it.
    """

    captures: tuple[Capture, ...]
    notes: tuple[str, ...] = ()
