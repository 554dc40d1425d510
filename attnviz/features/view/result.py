"""A page of every head of some captures; as a widget of a notebook through anywidget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar

from attnviz.core.capture import Capture
from attnviz.errors import SelectionError, UsageError, install
from attnviz.web.written import Page

HEIGHT = 760
"""Pixels of the frame of a widget until the page says how much it needs."""


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
        page, places = self.page.decode("utf-8"), _places(self.captures)
        return _kind()(page=page, title=self.title, places=places, height=HEIGHT)


def _places(captures: Sequence[Capture]) -> dict[str, list[str]]:
    """Get the name of each head, and what the page calls it: a kind of layer and a number in it."""
    return {
        capture.layout.name(head): [head.site.kind, head.name]
        for capture in captures
        for head in capture.layout
    }


@cache
def _kind() -> Any:
    """Return the class of widgets, made where it is first needed: anywidget is an extra."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise UsageError(
            f"anywidget is not installed; {install('attnviz[widget]')}, or show the page itself"
        ) from None

    class ViewWidget(anywidget.AnyWidget):
        """A page in a notebook, with the head that is chosen in it.

        Attributes:
            head: the name of the head, such as ``"2.4"``; empty until the page is shown. Setting it
                shows that head.
            heads: the names of all heads that are on.
            text: the number of the text that is shown, from 0.
        """

        _esm = (files(__package__) / "widget.js").read_text("utf-8")
        page = traitlets.Unicode().tag(sync=True)
        title = traitlets.Unicode().tag(sync=True)
        places = traitlets.Dict().tag(sync=True)
        height = traitlets.Int(HEIGHT).tag(sync=True)
        head = traitlets.Unicode("").tag(sync=True)
        heads = traitlets.List(traitlets.Unicode(), read_only=False).tag(sync=True)
        text = traitlets.Int(0).tag(sync=True)

        @traitlets.validate("head")
        def _known(self, proposal: Any) -> str:
            name = str(proposal["value"])
            if name and name not in self.places:
                first = ", ".join(list(self.places)[:4])
                raise SelectionError(f"the page has no head {name[:40]!r}; there are {first}, ...")
            return name

        def on_head(self, function: Callable[[str], Any]) -> Callable[[], None]:
            """Call a function with the name of the head whenever another one is chosen."""

            def heard(change: Any) -> None:
                function(change["new"])

            self.observe(heard, names="head")
            return lambda: self.unobserve(heard, names="head")

        def __repr__(self) -> str:
            return f"<ViewWidget {self.title!r}, head {self.head or 'none yet'}>"

    return ViewWidget
