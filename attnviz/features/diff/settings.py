"""How two runs are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from attnviz.core.settings import Settings, setting


@dataclass(frozen=True)
class DiffSettings(Settings):
    """With what, and which rows belong together."""

    other_model: Any = setting(
        None,
        "Also run the texts through this model, and compare.",
        metavar="MODEL",
        typed=str,
        common=True,
    )
    align: Literal["token", "position", "word"] = setting(
        "token",
        "Match rows and keys by token, position or word. That is, the same token at the same "
        "position, the same position of texts of the same length, or the n-th word.",
        common=True,
    )
