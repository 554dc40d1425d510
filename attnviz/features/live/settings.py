"""What can be asked of the page that runs the model."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.core.settings import Settings, setting


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
