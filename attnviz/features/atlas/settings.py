"""What can be asked of an atlas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnviz.core.settings import Settings, like, setting
from attnviz.features.profile.result import CorpusSettings


@dataclass(frozen=True)
class AtlasSettings(Settings):
    """How many texts, and which annotation heads are compared with."""

    gold: str | Path | Sequence[str | Path] | None = setting(
        None,
        "Gold annotation. A treebank (CoNLL-U), as for syntax; pronouns (.tsv) or coref=FILE, a "
        "treebank with entities, as for coref; repeatable.",
        metavar="FILE",
        typed=tuple[str, ...],
        common=True,
    )
    limit: int | None = like(
        CorpusSettings,
        "limit",
        help="Take at most the first N texts. Heads are ablated on 64 of them at most.",
        panel=None,
    )
