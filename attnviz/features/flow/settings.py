"""What can be asked of a flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.core.settings import POSITIONS, Settings, number_or_text, setting
from attnviz.errors import UsageError


@dataclass(frozen=True)
class FlowSettings(Settings):
    """How tokens are followed, and which."""

    method: Literal["alti", "rollout", "max-flow"] | None = setting(
        None,
        "How shares pass through a layer; max-flow is for up to 128 tokens.",
        shown="alti where the vectors that attention moves are at hand, else rollout",
        common=True,
    )
    position: str | int | None = setting(
        None,
        "Trace what reaches these tokens. " + POSITIONS,
        metavar="TOKENS",
        parser=number_or_text,
        common=True,
    )
    key: str | int | None = setting(
        None,
        "Trace where these tokens go, given as for {position}.",
        metavar="TOKENS",
        parser=number_or_text,
        common=True,
    )

    def check(self) -> None:
        """Raise UsageError for both directions at once."""
        if self.position is not None and self.key is not None:
            raise UsageError(
                "{position} and {key} exclude each other; give one of them", position=..., key=...
            )
