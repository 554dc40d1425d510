"""Two runs side by side: captures row by row, reports figure by figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from attnviz.core.settings import Settings, setting

Alignment = Literal["token", "position", "word"]
"""How rows and keys are matched: by the same tokens at the same positions; by positions, of texts
of the same length; or by words, the n-th of both texts."""


@dataclass(frozen=True)
class DiffSettings(Settings):
    """With what two runs are compared, and which rows belong together."""

    other_model: Any = setting(
        None,
        "Also run the texts through this model, and compare.",
        metavar="MODEL",
        typed=str,
        common=True,
    )
    align: Alignment = setting(
        "token",
        "Match rows and keys by token, position or word. That is, the same token at the same "
        "position, the same position of texts of the same length, or the n-th word.",
        common=True,
    )
