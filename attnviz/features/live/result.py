"""A page with a network in it, and how it opens."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import ClassVar

from attnviz.core.settings import Settings, setting
from attnviz.web.written import Page


@dataclass(frozen=True, eq=False, repr=False)
class LivePage(Page):
    """One page with a network in it, as :func:`attnviz.live` makes it.

    ``error`` says how far storing the weights moves attention, see there.
    """

    command: ClassVar[str] = "live"

    error: float

    def _repr_html_(self) -> str:
        """Say how to show it: a notebook that kept the page would hold the whole model twice."""
        return (
            f"<p>{escape(self.title)}, {self.size}: a whole model, not kept in a notebook. "
            "Save it, <code>page.save('live.html')</code>, and open that file, or show it here: "
            "<code>IPython.display.IFrame('live.html', '100%', 760)</code>.</p>"
        )


@dataclass(frozen=True)
class LiveSettings(Settings):
    """How the page opens."""

    select: str | None = setting(
        None,
        "Heads that are on when it opens: 2.0,3.*, or @circuit.json of attnviz patch.",
        short="s",
        metavar="HEADS",
        shown="all",
        common=True,
    )
