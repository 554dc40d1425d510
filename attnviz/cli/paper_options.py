"""The options of what a paper asks of pictures, for the commands that draw some."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated, Any

import typer

from attnviz.errors import UsageError


def _paper(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="For papers", **more)


_LENGTH = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([a-z]*)\s*")
_UNITS = {"": 72.0, "in": 72.0, "cm": 72 / 2.54, "mm": 72 / 25.4, "pt": 1.0}
"""Points of each unit of length; TeX's point is a 0.4 % smaller one."""


def _inches(text: str) -> float:
    """A length with its unit, in inches."""
    return _measured(text, "3.3in, 84mm, 8.4cm or 240pt") / 72


def _points(text: str) -> float:
    """A size of text, in points."""
    return _measured(text, "8 or 8pt", plain=1.0)


def _measured(text: str, such: str, plain: float = 72.0) -> float:
    """A length in points; UsageError for what is none."""
    found = _LENGTH.fullmatch(str(text))
    if found is None or found[2] not in _UNITS:
        raise UsageError(f"{str(text)[:20]!r} is no length; write {such}")
    return float(found[1]) * (_UNITS[found[2]] if found[2] else plain)


@dataclasses.dataclass(frozen=True)
class PaperOptions:
    """What a paper asks of a picture; see :class:`attnviz.drawing.paper.Paper`."""

    width: Annotated[
        float | None,
        _paper(
            "Width of the file: 3.3 or 3.3in, 84mm, 8.4cm, 240pt.",
            show_default="as the picture needs",
            parser=_inches,
            metavar="LENGTH",
        ),
    ] = None
    font: Annotated[str | None, _paper("Font family of all text, such as 'Times New Roman'.")] = (
        None
    )
    font_size: Annotated[
        float | None,
        _paper(
            "Font size of the axis labels in points, 8 or 8pt; other text in proportion.",
            parser=_points,
            metavar="SIZE",
        ),
    ] = None
    title: Annotated[str | None, _paper("Title in place of the picture's own.")] = None
    no_title: Annotated[bool, _paper("Draw no title.", "--no-title")] = False
    no_caption: Annotated[bool, _paper("Draw no small print.", "--no-caption")] = False
    name: Annotated[
        str | None, _paper("What to call the model, in place of its path.", metavar="NAME")
    ] = None
    mplstyle: Annotated[
        str | None,
        _paper(
            "A style of matplotlib's, by name or file; attnviz.drawing.column is for a paper's "
            "column.",
            metavar="STYLE",
        ),
    ] = None

    def options(self) -> dict[str, Any]:
        """What was asked for, as pictures take it; UsageError for a title and none."""
        if self.no_title and self.title is not None:
            raise UsageError("--title and --no-title exclude each other; give one of them")
        asked = {
            "width": self.width,
            "font": self.font,
            "font_size": self.font_size,
            "title": "" if self.no_title else self.title,
            "caption": False if self.no_caption else None,
            "name": self.name,
            "mplstyle": self.mplstyle,
        }
        return {name: value for name, value in asked.items() if value is not None}
