"""A page with a network in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnviz.web.written import Page


@dataclass(frozen=True, eq=False, repr=False)
class LivePage(Page):
    """One page with a network in it, as :func:`attnviz.live` makes it.

    ``error`` says how far storing the weights moves attention, see there.
    """

    command: ClassVar[str] = "live"

    error: float
