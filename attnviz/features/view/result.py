"""A page of every head of some captures."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from attnviz.core.capture import Capture
from attnviz.web.written import Page


@dataclass(frozen=True, eq=False, repr=False)
class Viewer(Page):
    """One page with every head of some captures, as :func:`attnviz.view` makes it.

    ``captures`` are those that it shows, ``notes`` what must be said of all of it.
    """

    command: ClassVar[str] = "view"

    captures: tuple[Capture, ...]
    notes: tuple[str, ...] = ()

    def widget(self) -> Any:
        """Give the same page as a widget of a notebook, with what is chosen in it going both ways.

        ``widget.head`` is the head that is shown, and shows another one where it is set;
        ``widget.on_head(f)`` calls ``f`` with the name of each that is chosen. It works in
        JupyterLab, VS Code, marimo and Colab, offline.
        """
        made = import_module(f"{__package__}.widget").widget
        return made(self.page.decode("utf-8"), self.title, self.captures)
