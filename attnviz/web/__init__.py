"""The kit of pages: template, policy, style, and the scripts that all pages share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.core.settings import Settings, setting


@dataclass(frozen=True)
class PageSettings(Settings, panel="Page"):
    """How exact and how large a page may be."""

    bits: Literal[8, 16] | None = setting(
        None,
        "Bits per weight: 16 (off by at most 0.00002), or 8 (by at most 0.004) and half the size.",
        metavar="8|16",
        shown="16 up to 8 MB",
    )
    max_mb: float = setting(
        100.0, "Largest size of the page, in megabytes.", metavar="MB", least=0.1
    )
    title: str | None = setting(None, "Title of the page; the model by default.", metavar="TEXT")
