"""The options of how maps look, for the commands that draw them."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from attnviz.drawing.style import Style
from attnviz.errors import UsageError

DEFAULT = Style()


def _look(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Look", **more)


def _paper(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="For papers", **more)


PALETTE = _look("viridis, magma, cividis, blues, greys.")
SCALE = _look("linear, sqrt or log: how colour scales with weight. Long texts show more with log.")
DPI = _look("Resolution in dots per inch.")


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


@dataclasses.dataclass(frozen=True)
class StyleOptions:
    """How maps look; the defaults are those of :class:`attnviz.drawing.style.Style`."""

    palette: Annotated[str, PALETTE] = DEFAULT.palette
    normalize: Annotated[
        str,
        _look(
            "Upper end of the colour scale: the largest weight shown (global), of each "
            "head (head) or "
            "of each row (row)."
        ),
    ] = DEFAULT.normalize
    scale: Annotated[str, SCALE] = DEFAULT.scale
    size: Annotated[
        float | None,
        _look("Longer side of a map in inches; by default it follows from the tokens."),
    ] = DEFAULT.size
    dpi: Annotated[float, DPI] = DEFAULT.dpi
    words: Annotated[
        bool,
        _look("Merge subwords into words: sum over keys, mean over queries.", "--words"),
    ] = DEFAULT.words
    hide_sink: Annotated[
        bool,
        _look("Hide the first token and separators, and renormalize the rows.", "--hide-sink"),
    ] = DEFAULT.hide_sink
    labels: Annotated[bool, _look("Label the axes with tokens.", "--labels/--no-labels")] = (
        DEFAULT.labels
    )
    values: Annotated[
        bool | None,
        _look(
            "Print weights in the cells, where they fit.",
            "--values/--no-values",
            show_default="few tokens",
        ),
    ] = DEFAULT.values

    def style(self) -> Style:
        """The style; UsageError for a value that there is not."""
        return Style(**dataclasses.asdict(self))
