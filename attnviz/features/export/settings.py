"""What an export draws and how: everything that changes a picture, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from attnviz.core.arguments import check_fields
from attnviz.drawing.figure import check_format
from attnviz.drawing.style import Style
from attnviz.errors import UsageError
from attnviz.features.export.names import KINDS

WEIGHTS = ("npz", "safetensors")


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """Which heads of every input are drawn, as which kinds of picture.

    Attributes:
        select: heads, as in :mod:`attnviz.scoring.select`; all by default.
        role: only heads that have this role on the input, or in the results attached:
            ``induction``, ``syntactic: obj``, ``obj``.
        top: only so many heads of each input, those with the largest lift.
        kinds: kinds of picture, of :data:`attnviz.features.export.names.KINDS`.
        rows: pictures have these queries alone: tokens such as ``100-160``, from 0 and with both
            ends; an input that does not have them is left out. ``keys`` the same of keys.
        keys: see ``rows``.
        style: how they look.
        format: ``png``, ``svg`` or ``pdf``.
        weights: ``npz`` or ``safetensors`` to keep the numbers beside the pictures.
        special_tokens: whether the tokenizer adds its tokens.
        truncate: whether texts that are too long are cut.
    """

    select: str | None = None
    role: str | None = None
    top: int | None = None
    kinds: tuple[str, ...] = ("heads",)
    rows: str | None = None
    keys: str | None = None
    style: Style = field(default_factory=Style)
    format: str = "png"
    weights: str | None = None
    special_tokens: bool = True
    truncate: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self) -> None:
        """Raise UsageError for what makes no sense."""
        check_format(self.format)
        if not self.kinds:
            raise UsageError(f"no kind of picture; choose from {', '.join(KINDS)}")
        for kind in self.kinds:
            if kind not in KINDS:
                raise UsageError(
                    f"unknown kind of picture {kind!r}; choose from {', '.join(KINDS)}"
                )
        if self.top is not None and self.top < 1:
            raise UsageError("{top} must be at least 1, not {}", self.top, top=...)
        if self.weights not in (None, *WEIGHTS):
            raise UsageError(f"cannot write weights as {self.weights!r}; choose npz or safetensors")

    def document(self) -> dict[str, Any]:
        """The settings as JSON values."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        found["kinds"] = [kind for kind in KINDS if kind in self.kinds]
        return found


def difference(before: Mapping[str, Any], now: Mapping[str, Any], path: str = "") -> str | None:
    """What differs first between two documents, in words, or None."""
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            found = difference(old, new, f"{path}{name} ")
            if found:
                return found
        elif old != new:
            return f"{path}{name} was {_shown(old)} and is now {_shown(new)}"
    return None


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else text[:57] + "..."
