"""What ``attnviz shapes`` shows of a layer or a model, and where that goes.

What a view is about is declared where its functions take it: a layer and a model in
:mod:`attnviz.features.shapes.answers.subject`, what runs through them in
:mod:`attnviz.attention.spec`, numbers in :mod:`attnviz.features.shapes.answers.worked`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from attnviz.core.settings import Settings, setting
from attnviz.errors import UsageError

VIEWS = ("diagram", "numbers", "animation", "scaling", "compare", "verify", "presets")
DIGITS = 3
_DIGITS = re.compile("[0-9]|1[0-2]")
VIEW, OUTPUT = "Views (the walk by default)", "Output"


@dataclass(frozen=True)
class ViewSettings(Settings, panel=VIEW):
    """Which view, at most one, and what some of them take."""

    show: str | None = setting(
        None,
        "diagram, numbers, animation, scaling, compare, verify or presets. Boxes and arrows; a "
        "tiny layer in numbers (numbers:5 to so many digits); the same as an animation; what 1/√d "
        "is for; MHA, GQA, MQA and MLA side by side (compare:80GB says what fits beside the "
        "weights); the real layer against every step; a list of published models. Or costs along "
        "one size, such as seq=128..131072, also kv-heads=1..H, d-model, heads, context-length; "
        ":x4 or :+512 sets the step.",
        metavar="VIEW",
        common=True,
    )
    explain: bool = setting(False, "Explain every step of the walk.", common=True)

    @property
    def view(self) -> str | None:
        """The view without what is said of it; a sweep for a size that is varied."""
        written = self.show or ""
        return "sweep" if "=" in written else written.partition(":")[0] or None

    @property
    def detail(self) -> str | None:
        """What is said of the view: the size and its range, memory, or digits."""
        written = self.show or ""
        return written if "=" in written else written.partition(":")[2] or None

    @property
    def precision(self) -> int:
        """Digits of numbers."""
        return DIGITS if self.detail is None else int(self.detail)

    def check(self) -> None:
        """Raise UsageError for a view that there is not, or not in such a way."""
        if self.view is not None and self.view not in (*VIEWS, "sweep"):
            raise UsageError(
                "{show} takes {}, or a size such as seq=1..8, not {!r}",
                ", ".join(VIEWS),
                self.view[:40],
                show=...,
            )
        if self.detail is None:
            return
        if self.view == "numbers" and not _DIGITS.fullmatch(self.detail):
            raise UsageError("{show} must be numbers:0 to numbers:12", show=self.show)
        if self.view not in ("numbers", "compare", "sweep"):
            raise UsageError("{show} takes nothing more; write {}", self.view, show=self.show)


@dataclass(frozen=True)
class ShapesOutput(Settings, panel=OUTPUT):
    """Where an answer goes, and how it is written."""

    out: tuple[Path, ...] | None = setting(
        None,
        "Draw what {show} asks for into a file. A diagram, scaling or a sweep into .svg, .png or "
        ".pdf, an animation into .html; repeatable.",
        short="o",
        common=True,
    )
    json: bool = setting(False, "Print JSON.", common=True)
    csv: bool = setting(False, "Print CSV.", common=True)
    markdown: bool = setting(False, "Print Markdown.")
