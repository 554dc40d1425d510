"""What ``attnviz check`` finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from attnviz.core.problems import FileProblem
from attnviz.drawing.forms import Renderable


@dataclass(frozen=True, kw_only=True)
class FileCheck(Renderable):
    """Whether a file can be read as recorded attention, and what is wrong with it.

    Attributes:
        file: its name.
        format: ``recording`` for attnviz's own, else the other tool's in words.
        problems: what is wrong, each with its path in the file; empty where nothing is.
        shapes: [layers, heads, queries, keys] by kind of layer, of what can be read.
        items: how many items its batch has.
        notes: what a reader will be told.
    """

    schema: ClassVar[str] = "attnviz.check/1"
    command: ClassVar[str] = "check"

    file: str
    format: str
    problems: tuple[FileProblem, ...] = ()
    shapes: Mapping[str, tuple[int, ...]]
    items: int = 1
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the file can be read."""
        return not self.problems
