"""What can be asked of an atlas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from attnviz.core.settings import Settings, like, setting
from attnviz.features.profile.settings import CorpusSettings


@dataclass(frozen=True)
class AtlasSettings(Settings):
    """How many texts, and which annotation heads are compared with."""

    treebank: str | Path | None = setting(
        None, "A treebank, as for syntax.", metavar="FILE", typed=Path, common=True
    )
    pronouns: str | Path | None = setting(
        None, "Pronouns or entities, as for coref.", metavar="FILE", typed=Path, common=True
    )
    limit: int | None = like(
        CorpusSettings,
        "limit",
        help="Take at most the first N texts. Heads are ablated on 64 of them at most.",
        panel=None,
    )
