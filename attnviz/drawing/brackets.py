"""Named parts of a text along an axis of a map: brackets with names and colours.

A part inside of another stands nearer to the map, and one that comes in several pieces has a
bracket for each. A name that is longer than its bracket is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnviz.core.spans import depth
from attnviz.core.tokens import Tokens
from attnviz.drawing.labels import visible
from attnviz.drawing.palette import SPAN_COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attnviz.drawing.fonts import Ruler

_LEVEL, _TEXT, _HOOK = 0.17, 6.0, 0.05
"""The room of a row of brackets in inches, the size of their names, and how far ends reach."""
_LEAST = 0.12  # a bracket has to be so long to have a name, in inches


@dataclass(frozen=True, slots=True)
class Bracket:
    """A run of tokens with a name."""

    name: str  # of the span
    start: int  # its first token; ``end`` the one after the last
    end: int
    level: int  # how many rows of brackets are between it and the map
    color: str  # of the span


def brackets(tokens: Tokens, names: Sequence[str] = ()) -> tuple[Bracket, ...]:
    """Return the brackets along an axis of these tokens."""
    order = list(dict.fromkeys((*names, *(span.name for span in tokens.spans))))
    depths = {
        (span.name, run): depth(span, run, tokens.spans)
        for span in tokens.spans
        for run in span.ranges
    }
    deepest = max(depths.values(), default=0)
    return tuple(
        Bracket(
            visible(span.name),
            *run,
            deepest - depths[span.name, run],
            SPAN_COLORS[order.index(span.name) % len(SPAN_COLORS)],
        )
        for span in tokens.spans
        for run in span.ranges
    )


def room(brackets: Sequence[Bracket]) -> float:
    """Return what they take beside a map, in inches."""
    return (1 + max(bracket.level for bracket in brackets)) * _LEVEL + 0.03 if brackets else 0.0


def fitting(name: str, length: float, ruler: Ruler) -> str:
    """Return a name cut to a length in inches; empty where there is no room for a letter."""
    if ruler.width(name, _TEXT) <= length:
        return name
    for count in range(len(name) - 1, 0, -1):
        if length >= _LEAST and ruler.width(f"{name[:count]}…", _TEXT) <= length:
            return f"{name[:count]}…"
    return ""


def cut(brackets: Sequence[Bracket], cell: float, ruler: Ruler) -> bool:
    """Whether a name does not fit, where a token is so long in inches."""
    return any(fitting(b.name, cell * (b.end - b.start), ruler) != b.name for b in brackets)


def named(several: Iterable[Sequence[Bracket]]) -> str:
    """Return the names of all, in a line below the picture."""
    names = dict.fromkeys(bracket.name for brackets in several for bracket in brackets)
    return f"brackets: {', '.join(names)}"


def draw(axes: Axes, brackets: Sequence[Bracket], cell: float, ruler: Ruler, *, down: bool) -> None:
    """Draw the brackets outside of a map, on its left or below; ``cell``: a token's inches."""
    if not brackets:
        return
    figure = axes.get_figure(root=True)
    assert figure is not None
    box, (width, height) = axes.get_position(), figure.get_size_inches()
    deep, length = room(brackets), max(axes.get_ylim() if down else axes.get_xlim()) + 0.5
    if down:
        place = (box.x0 - deep / width, box.y0, deep / width, box.height)
    else:
        place = (box.x0, box.y0 - deep / height, box.width, deep / height)
    strip = figure.add_axes(place)
    strip.axis("off")
    if down:
        strip.set(xlim=(deep, 0), ylim=(length, 0))
    else:
        strip.set(xlim=(0, length), ylim=(deep, 0))
    for b in brackets:
        line = b.level * _LEVEL + 0.045
        inset = min(0.12, 0.02 / cell)
        along = [b.start + inset, b.start + inset, b.end - inset, b.end - inset]
        across = [line - _HOOK / 2, line, line, line - _HOOK / 2]
        xs, ys = (across, along) if down else (along, across)
        strip.plot(xs, ys, color=b.color, linewidth=1.2, solid_capstyle="butt", clip_on=False)
        name = fitting(b.name, cell * (b.end - b.start), ruler)
        middle, beside = (b.start + b.end) / 2, line + 0.02
        strip.text(*((beside, middle) if down else (middle, beside)), name, fontsize=_TEXT,
                   color=b.color, family=ruler.families, rotation=90 if down else 0,
                   ha="right" if down else "center", va="center" if down else "top")  # fmt: skip
