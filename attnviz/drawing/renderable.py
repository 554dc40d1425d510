"""What adapts itself to the console that prints it, from a function that draws it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

Values = ParamSpec("Values")


@dataclass(frozen=True, eq=False, slots=True)
class Drawn:
    """A renderable: draws itself when it is printed."""

    draw: Callable[[Console, ConsoleOptions], RenderResult]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console."""
        return self.draw(console, options)


def renderable(
    draw: Callable[Concatenate[Console, ConsoleOptions, Values], RenderResult],
) -> Callable[Values, RenderableType]:
    """A function of console, options and values as one of values, which gives a renderable."""

    @wraps(draw)
    def of(*args: Values.args, **kwargs: Values.kwargs) -> RenderableType:
        return Drawn(lambda console, options: draw(console, options, *args, **kwargs))

    return of


def coloured(console: Console) -> bool:
    """Whether a console shows colours."""
    return console.color_system is not None and not console.no_color


def table_of(*columns: str, fold: bool = True, no_wrap: bool = False, gap: int = 1) -> Table:
    """An empty table with a rule below its headings.

    Args:
        columns: headings; below one that begins with ``>``, which is not shown, cells stand to the
            right, as numbers do.
        fold: whether words that are too long go on in the next line, and are not cut.
        no_wrap: whether all that is too long is cut.
        gap: columns of the console on either side of one of its own.
    """
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, gap))
    for heading in columns:
        right = heading.startswith(">")
        drawn.add_column(
            Text(heading[right:]), justify="right" if right else "left", no_wrap=no_wrap,
            overflow="fold" if fold and not no_wrap else "ellipsis",
        )  # fmt: skip
    return drawn
