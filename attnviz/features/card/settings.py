"""What can be asked of a model's card."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.core.settings import Settings, like, setting
from attnviz.features.profile.settings import CorpusSettings

PICTURE = "attention-heads.png"
"""Beside the card."""
NONE = "none"


@dataclass(frozen=True)
class CardSettings(Settings):
    """How many texts, and the picture."""

    limit: int | None = like(CorpusSettings, "limit", panel=None)
    picture: str = setting(
        PICTURE,
        "Name of the picture beside the card; none for no picture.",
        metavar="NAME",
        common=True,
    )

    @property
    def drawn(self) -> str:
        """The name of the picture; empty for none."""
        return "" if self.picture == NONE else self.picture
