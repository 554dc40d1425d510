"""What ``attnviz check`` finds, of a file and of a module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from attnviz.core.result import FileProblem
from attnviz.drawing.renderable import Renderable
from attnviz.files import packaged


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


Verdict = Literal["right", "bug", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Bug:
    """One thing that is wrong with an attention module.

    Attributes:
        name: of the bug, such as ``scale`` or ``off by one``.
        step: the step of the walk (``attnviz shapes``) at which it is.
        what: what the module does.
        change: how that step should be.
        off: the largest difference of the output from the right one; None where it is not known.
        after: the same once it is mended, against the formula between the module's own matrices.
    """

    name: str
    step: str
    what: str
    change: str
    off: float | None = None
    after: float | None = None

    @classmethod
    def of(cls, kind: str, **values: object) -> Bug:
        """Return a bug by its entry in ``bugs.toml``, with what is filled in."""
        bug, name = packaged(__file__, "bugs.toml")[kind], kind.partition("/")[0]
        step, fault, change = (bug[key].format(**values) for key in ("step", "what", "change"))
        return cls(name=name, step=step, what=fault, change=change)


@dataclass(frozen=True, kw_only=True)
class ModuleCheck(Renderable):
    """Whether an attention module is right, and what is wrong with it.

    Attributes:
        module: the name of its class.
        verdict: ``right``; ``bug``; or ``unknown``, where something fails that has no name, or
            nothing could be followed.
        bugs: what is wrong, in the order in which to mend it.
        failed: tests that fail without a name for it, and what could not be followed.
        notes: what is unusual and right, and how it was called.
        heads: how many maps an item has.
        sizes: B, T and D of the call.
        map: the first map as the module has it, where there is a bug.
        mended_map: the same once that is mended, where that can be computed.
    """

    schema: ClassVar[str] = "attnviz.module-check/1"
    command: ClassVar[str] = "check"

    module: str
    verdict: Verdict
    bugs: tuple[Bug, ...] = ()
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    heads: int = 0
    sizes: tuple[int, ...] = ()
    map: tuple[tuple[float, ...], ...] = ()
    mended_map: tuple[tuple[float, ...], ...] = ()

    @property
    def right(self) -> bool:
        """Whether nothing is wrong: every step was followed and holds."""
        return self.verdict == "right"

    @property
    def holds(self) -> bool:
        """The same, as of a file."""
        return self.right
