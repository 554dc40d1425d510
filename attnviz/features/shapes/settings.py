"""What ``attnviz shapes`` shows of a layer or a model, and where that goes.

What a view is about is declared where its functions take it: a layer and a model in
:mod:`attnviz.features.shapes.answers.subject`, what runs through them in
:mod:`attnviz.attention.spec`, numbers in :mod:`attnviz.features.shapes.answers.worked`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attnviz.core.settings import Settings, setting
from attnviz.features.shapes.answers.worked import NUMBERS

VIEW, OUTPUT = "Views (the walk by default)", "Output"


@dataclass(frozen=True)
class ViewSettings(Settings):
    """Which view, at most one, and what some of them take."""

    show: Literal["diagram", "numbers", "animation", "scaling", "presets"] | None = setting(
        None,
        "diagram, numbers, animation, scaling or presets. Boxes and arrows, a tiny layer in "
        "numbers, the same as an animation, what 1/√d is for, or a list of published models.",
        panel=VIEW,
        metavar="VIEW",
        common=True,
    )
    verify: bool = setting(False, "Run the real layer and compare.", panel=VIEW, common=True)
    compare: bool = setting(False, "MHA, GQA, MQA and MLA side by side.", panel=VIEW, common=True)
    memory: str | None = setting(
        None, "What fits into this memory beside the weights: 80GB; for {compare}.", panel=VIEW,
        metavar="SIZE",
    )  # fmt: skip
    sweep: str | None = setting(
        None,
        "Costs along one size, such as seq=128..131072. Also kv-heads=1..H, d-model, heads, "
        "context-length; :x4 or :+512 sets the step.",
        panel=VIEW,
        metavar="SWEEP",
        common=True,
    )
    explain: bool = setting(False, "Explain every step of the walk.", panel=VIEW, common=True)
    precision: int = setting(
        3, "Digits of {show} numbers.", panel=NUMBERS, metavar="N", least=0, most=12
    )


@dataclass(frozen=True)
class ShapesOutput(Settings):
    """Where an answer goes, and how it is written."""

    out: tuple[Path, ...] | None = setting(
        None,
        "Draw {show} or {sweep} into a file. A diagram, scaling or a sweep into .svg, .png or "
        ".pdf, an animation into .html; repeatable.",
        short="o",
        panel=OUTPUT,
        metavar="FILE",
        common=True,
    )
    json: bool = setting(False, "Print JSON.", panel=OUTPUT, common=True)
    csv: bool = setting(False, "Print CSV.", panel=OUTPUT, common=True)
    markdown: bool = setting(False, "Print Markdown.", panel=OUTPUT)
