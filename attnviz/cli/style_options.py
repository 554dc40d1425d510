"""The options of how maps look, for the commands that draw them."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from attnviz.drawing.style import Style

DEFAULT = Style()


def _look(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Look", **more)


PALETTE = _look("viridis, magma, cividis, blues, greys.")
SCALE = _look("linear, sqrt or log: how colour scales with weight. Long texts show more with log.")
DPI = _look("Resolution in dots per inch.")


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
