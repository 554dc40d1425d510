"""The page as a widget of a notebook, through anywidget where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from attnviz.core.capture import Capture
from attnviz.errors import SelectionError, UsageError, install

HEIGHT = 760
"""Pixels of the frame until the page says how much it needs."""


def widget(page: str, title: str, captures: Sequence[Capture]) -> Any:
    """Return a page as a widget; see :meth:`attnviz.features.view.result.Viewer.widget`."""
    return _kind()(page=page, title=title, places=_places(captures), height=HEIGHT)


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
