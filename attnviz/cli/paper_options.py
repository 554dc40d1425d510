"""The options of what a paper asks of pictures, for the commands that draw some."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from attnviz.errors import UsageError


def _paper(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="For papers", **more)


@dataclasses.dataclass(frozen=True)
class PaperOptions:
    """What a paper asks of a picture; see :class:`attnviz.drawing.paper.Paper`."""

    width: Annotated[
        float | None,
        _paper("Width of the file in inches.", show_default="as the picture needs"),
    ] = None
    font: Annotated[str | None, _paper("Font family of all text, such as 'Times New Roman'.")] = (
        None
    )
    font_size: Annotated[
        float | None, _paper("Font size of the axis labels in points; other text in proportion.")
    ] = None
    title: Annotated[str | None, _paper("Title in place of the picture's own.")] = None
    no_title: Annotated[bool, _paper("Draw no title.", "--no-title")] = False
    no_caption: Annotated[bool, _paper("Draw no small print.", "--no-caption")] = False
    name: Annotated[
        str | None, _paper("What to call the model, in place of its path.", metavar="NAME")
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
        }
        return {name: value for name, value in asked.items() if value is not None}
